"""Connections to the nodes of a server. Imports the rooms of rules and of the wire."""
