"""Tokens of identity providers: of client credentials, of clouds, and of functions of users."""
