"""HTTP servers: listening, access rules, limits and shutdown, shared by every server of the package."""

from __future__ import annotations

from penstock.serving.access import CHANGING, READING, AccessRules, parse_users
from penstock.serving.guard import Beside, Limits, Mounted
from penstock.serving.server import Certificate, HttpServer, listen
from penstock.serving.token import BY_COOKIE, SIGN_OUT, VISITOR, TokenDoor, new_token

__all__ = [
    "BY_COOKIE",
    "CHANGING",
    "READING",
    "SIGN_OUT",
    "VISITOR",
    "AccessRules",
    "Beside",
    "Certificate",
    "HttpServer",
    "Limits",
    "Mounted",
    "TokenDoor",
    "listen",
    "new_token",
    "parse_users",
]
