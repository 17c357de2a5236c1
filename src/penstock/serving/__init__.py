"""HTTP servers: listening, access rules, limits and shutdown, shared by every server of the package."""

from __future__ import annotations

from penstock.serving.access import AccessRules, parse_users
from penstock.serving.guard import Limits
from penstock.serving.server import Certificate, HttpServer, listen
from penstock.serving.token import TokenDoor, new_token

__all__ = ["AccessRules", "Certificate", "HttpServer", "Limits", "TokenDoor", "listen", "new_token", "parse_users"]
