"""What a call sends and what an answer means. Imports the room of rules."""
