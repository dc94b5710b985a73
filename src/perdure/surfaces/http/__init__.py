"""The HTTP API: whose job it is, decided on the server."""
