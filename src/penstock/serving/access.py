"""Access rules of the HTTP servers: users and passwords, known host names, requests from other sites."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import ConfigError

__all__ = ["CHANGING", "READING", "AccessRules", "RefusedRequest", "is_authority", "parse_users"]

BY_BROWSERS = frozenset({"origin", "referer", "sec-fetch-site", "sec-fetch-mode", "cookie"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})
CHANGING = frozenset({"POST", "PUT", "DELETE"})
# A Host header as a whole: a name, an IPv4 address or an IPv6 address in brackets, then perhaps a port.
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[\w.~-]+)?)\]|([\w.-]+))(?::\d{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """The response to a request that is refused: HTTP status, text, and further headers."""

    status: int
    message: str
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules that a request must meet before it is served.

    A browser lets any page send requests to servers of the user's own machine. Three rules keep such pages out: a
    request must name a host that this server is known by (a name that an attacker points here is refused), it must use
    a method of the server's list, and one that changes something must come from the same site and have a JSON body.

    Attributes:
        hosts: Host names besides IP addresses, ``localhost`` and the machine's own names.
        users: Passwords by user name; None serves requests without a password.
        realm: The name that a browser shows when it asks for a password.
        bodies: Content types of bodies besides JSON, in lower case, for clients that are not browsers; "" is none.
            A browser names the page's site with each request that has a body.
        methods: The methods that are served.
        mark: A header that requests which change something must have, besides an ``Origin`` of this server, so that no
            form and no page of another site can send them; empty for programs' interfaces, which need neither.
    """

    hosts: frozenset[str] = frozenset()
    users: Mapping[str, str] | None = None
    realm: str = "penstock"
    bodies: frozenset[str] = frozenset()
    methods: frozenset[str] = READING
    mark: str = ""

    def refusal(self, method: str, headers: Mapping[str, str]) -> RefusedRequest | None:
        """Check the headers of a request (lower-case names); return None if it may be served.

        >>> AccessRules().refusal("GET", {"host": "127.0.0.1:8081"}) is None
        True
        >>> AccessRules().refusal("GET", {"host": "rebound.example"}).status
        421
        """
        host = headers.get("host", "")
        name = _name_of(host)
        if name is None or not self._is_known(name):
            return RefusedRequest(421, f"this server is not known as {host[:100]!r}; use its address or its own name")
        if self.users is not None and not _is_authenticated(headers.get("authorization", ""), self.users):
            return RefusedRequest(401, "Unauthorized", (("www-authenticate", f'Basic realm="{self.realm}"'),))
        if method not in self.methods:
            allowed = ", ".join(sorted(self.methods))
            return RefusedRequest(405, f"{method[:20]} is not served here; {allowed} are", (("allow", allowed),))
        if method not in READING:
            return self._unmarked(headers) or _cross_site(host, headers, self.bodies)
        return None

    def _unmarked(self, headers: Mapping[str, str]) -> RefusedRequest | None:
        if self.mark and not ("origin" in headers and headers.get(self.mark.lower())):
            return RefusedRequest(403, f"a request that changes something needs the headers Origin and {self.mark}: 1")
        return None

    def _is_known(self, name: str) -> bool:
        if name in {"localhost", *self.hosts}:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in _own_names()
        return True


def parse_users(lines: Iterable[str], where: str) -> dict[str, str]:
    """Read lines ``NAME:PASSWORD``, skipping empty lines and those that begin with ``#``.

    >>> parse_users(["# readers", "ann:secret"], "users.txt")
    {'ann': 'secret'}

    Args:
        lines: The lines.
        where: Their source, for the error.

    Raises:
        ConfigError: A line has another form; the message does not show its text, which may hold a password.
    """
    users = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, separator, password = text.partition(":")
        if not (name and separator and password):
            raise ConfigError(
                f"{where}, line {number}, is not NAME:PASSWORD", hint="One user a line, for example ann:secret"
            )
        users[name] = password
    return users


def is_authority(host: str) -> bool:
    """Return whether a Host header is a name or an address, with or without a port, and nothing else.

    >>> is_authority("127.0.0.1:8081"), is_authority("[::1]:8081"), is_authority("127.0.0.1:8081.evil.example")
    (True, True, False)
    """
    return _AUTHORITY.fullmatch(host) is not None


def _name_of(host: str) -> str | None:
    """Return the name in a Host header, without the port and the brackets of an IPv6 address; None if it is none."""
    match = _AUTHORITY.fullmatch(host)
    return None if match is None else str(match[1] or match[2]).lower()


def _own_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset({name, name.partition(".")[0], socket.getfqdn().lower()})


def _is_authenticated(header: str, users: Mapping[str, str]) -> bool:
    """Check HTTP basic authentication against the users."""
    kind, _, encoded = header.partition(" ")
    try:
        name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return False
    expected = users.get(name)
    matches = secrets.compare_digest(password.encode(), (expected or "").encode())
    return kind.lower() == "basic" and expected is not None and matches


def _cross_site(host: str, headers: Mapping[str, str], bodies: frozenset[str]) -> RefusedRequest | None:
    """Refuse a changing request that comes from another site, or whose body could be sent by an HTML form."""
    origin = headers.get("origin")
    own = {f"{scheme}://{host.lower()}" for scheme in ("http", "https")}  # a proxy may end the encryption
    foreign = origin is not None and origin.lower() not in own
    if foreign or headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
        return RefusedRequest(403, "requests of other sites are refused")
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if has_body and not is_json and (kind not in bodies or not BY_BROWSERS.isdisjoint(headers)):
        return RefusedRequest(415, f"the content type {kind[:60]!r} is not JSON; send application/json")
    return None
