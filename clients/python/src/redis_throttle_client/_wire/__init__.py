"""Commands that calls send, and replies to them. Imports the room of rules."""
