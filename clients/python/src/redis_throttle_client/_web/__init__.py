"""The limits of web requests, for the middlewares. Imports the limiters and the rooms below."""
