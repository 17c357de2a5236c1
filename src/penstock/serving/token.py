"""Access by a token: in the address once, in a cookie from then on, or as a bearer for programs."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode

from penstock.serving.guard import Application, Receive, Scope, Send, local_address

__all__ = ["BY_COOKIE", "SIGN_OUT", "TWICE", "VISITOR", "Admission", "TokenDoor", "new_token"]

Admission: TypeAlias = Callable[[str, Mapping[str, str]], object | None]
"""Token and headers of a request -> who comes with them; None: nobody who is let in.

Values of a header that is there several times are joined by `TWICE`, which no single value contains.
"""
TWICE = "\n"
VISITOR = "penstock.visitor"  # in the scope of a request: who comes
BY_COOKIE = "penstock.by_cookie"  # in the scope of a request: whether the visitor has signed in here, so can sign out
SIGN_OUT = "/sign-out"

_MONTH_S = 30 * 24 * 3600
_PARAMETER = "token"
_HELP = "open the address that was printed at the start, which ends in ?token=...; if the console has users, use yours"
_READS = ("GET", "HEAD")
_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;color-scheme:light dark;max-width:28rem;margin:15vh auto;padding:0 1rem}"
    "label,input,button{display:block;font:inherit}input{box-sizing:border-box;width:100%;margin:.3rem 0 1rem;"
    "padding:.4rem}button{padding:.4rem 1.2rem}[role=alert]{color:#c62828}"
)
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in \u00b7 Penstock</title><style>{style}</style></head>
<body><main><h1>Penstock</h1>{said}<p>This console asks for a token: your own if it has users, else the one that was
printed at the start, at the end of the address: <code>?token=...</code></p>
<form method="get" action="{action}">{kept}
<label for="token">Token</label><input id="token" name="token" type="password" autocomplete="current-password" required
 autofocus><button>Sign in</button></form></main></body></html>
"""
_WRONG = '<p role="alert">This is not a token of this console.</p>'
_SIGNED_OUT = "<p><b>You are signed out</b> in this browser. The token itself stays valid.</p>"
_POLICY = "default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


def new_token() -> str:
    """Make a token of 32 random bytes, as text for an address."""
    return secrets.token_urlsafe(32)


class TokenDoor:
    """An ASGI application that serves only requests with a token; others get 401.

    A browser opens an address with ``?token=...``; the answer moves the token into a cookie that no script can read and
    that other sites can send with links alone, and redirects to the address without it. The cookie is named by the
    port, as browsers share cookies between the ports of a host, and travels encrypted alone if the request did. A
    browser without the cookie gets a page that asks for the token, programs get JSON. ``/sign-out`` deletes the cookie.

    Args:
        application: The ASGI application.
        admission: Says who comes with a token; the application finds them in its scope, as `VISITOR`.
    """

    def __init__(self, application: Application, admission: Admission) -> None:
        self._application = application
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        headers = _headers_of(scope)
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == _PARAMETER]
        cookie = f"penstock-{(scope.get('server') or ('', 0))[1]}"
        attributes = "; HttpOnly; SameSite=Lax" + ("; Secure" if _is_encrypted(scope, headers) else "")
        is_reading = scope["method"] in _READS
        if is_reading and _inner_path_of(scope) == SIGN_OUT and _is_own_link(headers):
            gone = [
                ("set-cookie", f"{cookie}=; Path=/; Max-Age=0{attributes}"),
                ("clear-site-data", '"cache", "storage"'),
            ]
            start = local_address(str(scope.get("root_path", "")) + "/")
            await _answer_page(send, 200, _page(start, [], said=_SIGNED_OUT), gone)
        elif tokens and is_reading and self._admission(tokens[-1], headers) is not None:
            rest = urlencode([(name, value) for name, value in query if name != _PARAMETER])
            value = f"{cookie}={quote(tokens[-1], safe='')}; Path=/; Max-Age={_MONTH_S}{attributes}"
            location = local_address(_path_of(scope), rest)
            await _answer(
                send, 303, b"", [("location", location), ("set-cookie", value), ("cache-control", "no-store")]
            )
        elif (visitor := self._admission(_bearer(headers), headers)) is not None:
            await self._application({**scope, VISITOR: visitor}, receive, send)
        elif (visitor := self._admission(_cookie(headers, cookie), headers)) is not None:
            await self._application({**scope, VISITOR: visitor, BY_COOKIE: True}, receive, send)
        elif is_reading and _is_page(headers):
            page = _page(local_address(_path_of(scope)), query, said=_WRONG if tokens else "")
            await _answer_page(send, 401, page, [("www-authenticate", "Bearer")])
        else:
            body = json.dumps({"error": {"code": "UNAUTHORIZED", "message": "a token is needed", "hint": _HELP}})
            await _answer(
                send, 401, body.encode(), [("content-type", "application/json"), ("www-authenticate", "Bearer")]
            )


def _headers_of(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        between = "; " if name == "cookie" else TWICE
        headers[name] = f"{headers[name]}{between}{value}" if name in headers else value
    return headers


def _inner_path_of(scope: Scope) -> str:
    return str(scope["path"]).removeprefix(str(scope.get("root_path", "")))


def _path_of(scope: Scope) -> str:
    return str(scope.get("root_path", "")) + _inner_path_of(scope)


def _is_encrypted(scope: Scope, headers: Mapping[str, str]) -> bool:
    """Return whether a visitor's request came encrypted, to here or to a proxy.

    Any client may say that it came through a proxy, which can only keep its own cookie from plain connections.
    """
    outermost = headers.get("x-forwarded-proto", "").replace(TWICE, ",").partition(",")[0]
    return scope.get("scheme") == "https" or outermost.strip().lower() == "https"


def _is_own_link(headers: Mapping[str, str]) -> bool:
    """Return whether a browser follows a link of this console, or an address that its user typed."""
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def _is_page(headers: dict[str, str]) -> bool:
    """Return whether a browser wants to show the answer, as opposed to a script or a program."""
    return "text/html" in headers.get("accept", "") and headers.get("sec-fetch-dest", "document") == "document"


def _page(action: str, query: list[tuple[str, str]], *, said: str) -> str:
    """Make the page that asks for the token, which then leads to the address that was wanted."""
    kept = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in query
        if name != _PARAMETER
    )
    return _PAGE.format(style=_STYLE, said=said, action=escape(action), kept=kept)


async def _answer_page(send: Send, status: int, page: str, more: list[tuple[str, str]]) -> None:
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    headers = [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", _POLICY.format(digest=digest)),
        ("cache-control", "no-store"),
        *more,
    ]
    await _answer(send, status, page.encode("utf-8", "backslashreplace"), headers)


def _bearer(headers: Mapping[str, str]) -> str:
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" else ""


def _cookie(headers: Mapping[str, str], name: str) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if morsel is None else unquote(morsel.value)


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
    pairs = [*headers, ("content-length", str(len(body))), ("referrer-policy", "no-referrer")]
    raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
