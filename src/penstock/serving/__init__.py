"""HTTP servers: listening, access rules, limits and shutdown, shared by every server of the package."""

from __future__ import annotations

from penstock.serving.access import CHANGING, READING, AccessRules, parse_users
from penstock.serving.guard import Beside, Limits, Mounted
from penstock.serving.server import Certificate, HttpServer, listen
from penstock.serving.token import VISITOR, TokenDoor, new_token

__all__ = [
    "CHANGING",
    "READING",
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
