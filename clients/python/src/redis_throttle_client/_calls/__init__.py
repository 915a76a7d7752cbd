"""The life of a call, and what decides it without the server. Imports the rooms below it."""
