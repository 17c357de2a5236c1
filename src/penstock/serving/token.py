"""Access by a token: in the address once, in a cookie from then on, or as a bearer for programs."""

from __future__ import annotations

import json
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from penstock.serving.guard import Application, Receive, Scope, Send

__all__ = ["TokenDoor", "new_token"]

_MONTH_S = 30 * 24 * 3600
_PARAMETER = "token"
_HELP = "open the address that was printed at the start: it ends in ?token=..."


def new_token() -> str:
    """Make a token of 32 random bytes, as text for an address."""
    return secrets.token_urlsafe(32)


class TokenDoor:
    """An ASGI application that serves only requests with a token; others get 401.

    A browser opens an address with ``?token=...``; the answer moves the token into a cookie that no script can read and
    no other site can send, and redirects to the address without it. The cookie is named by the port, as browsers share
    cookies between the ports of a host.

    Args:
        application: The ASGI application.
        token: The token.
    """

    def __init__(self, application: Application, token: str) -> None:
        self._application = application
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in query if name == _PARAMETER]
        cookie = f"penstock-{(scope.get('server') or ('', 0))[1]}"
        if given and scope["method"] in ("GET", "HEAD") and self._fits(given[-1]):
            rest = urlencode([(name, value) for name, value in query if name != _PARAMETER])
            path = scope.get("root_path", "") + scope["path"].removeprefix(scope.get("root_path", ""))
            place = "/" + path.lstrip("/") + (f"?{rest}" if rest else "")  # "//host" would be another site
            value = f"{cookie}={given[-1]}; Path=/; Max-Age={_MONTH_S}; HttpOnly; SameSite=Strict"
            await _answer(send, 303, b"", [("location", place), ("set-cookie", value), ("cache-control", "no-store")])
        elif self._fits(_bearer(headers)) or self._fits(_cookie(headers, cookie)):
            await self._application(scope, receive, send)
        else:
            body = json.dumps({"error": {"code": "UNAUTHORIZED", "message": "a token is needed", "hint": _HELP}})
            await _answer(
                send, 401, body.encode(), [("content-type", "application/json"), ("www-authenticate", "Bearer")]
            )

    def _fits(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token)


def _bearer(headers: dict[str, str]) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _cookie(headers: dict[str, str], name: str) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
    pairs = [*headers, ("content-length", str(len(body))), ("referrer-policy", "no-referrer")]
    raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
