"""The life of a call, and what decides it without an answer. Imports the rooms below it."""
