"""Headers of all answers: those that the worker's settings add, and those for pages of other sites."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate

from penstock.errors import ConfigError
from penstock.serving.access import AccessRules, RefusedRequest

__all__ = ["CrossOrigin", "ExtraHeaders", "WorkerAccess"]

_RULE = re.compile(r"(set|add|setDate|addDate)\s+([^\s:]+)\s*:\s*(.*)", re.DOTALL)
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class ExtraHeaders:
    """``response.http.headers.config``: headers that all answers have.

    Example:
        >>> list(ExtraHeaders.of("add X-Test: yes, set X-Frame-Options: DENY"))
        [('X-Test', 'yes'), ('X-Frame-Options', 'DENY')]
    """

    rules: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, text: str) -> ExtraHeaders:
        """Read the setting.

        Raises:
            ConfigError: It has another form.
        """
        rules = []
        for part in _parts(text or ""):
            match = _RULE.fullmatch(part)
            if match is None:
                raise ConfigError(
                    f"response.http.headers.config: {part!r} is not a rule",
                    hint="For example: set X-Frame-Options: DENY",
                )
            rules.append((match[1], match[2], match[3].strip()))
        return cls(tuple(rules))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for action, name, value in self.rules:
            shown = (
                formatdate(int(value) / 1000, usegmt=True) if action.endswith("Date") and value.isdecimal() else value
            )
            yield name, shown


def _parts(text: str) -> list[str]:
    """Return the rules: they are separated by commas, and quoted where they have some."""
    pairs = re.findall(r'"([^"]*)"|([^,]+)', text)
    return [part for part in ((quoted or plain).strip() for quoted, plain in pairs) if part]


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    """``access.control.allow.*``: pages of other sites that may use the interface.

    Attributes:
        origins: The sites, separated by commas; ``*``: all.
        methods: The methods.
    """

    origins: str
    methods: str

    def allows(self, origin: str | None) -> bool:
        """Return whether pages of this site may use the interface."""
        allowed = [each.strip() for each in (self.origins or "").split(",") if each.strip()]
        return origin is not None and ("*" in allowed or origin in allowed)

    def headers(self, method: str, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the headers of an answer."""
        origin = headers.get("origin")
        if origin is None or not self.allows(origin):
            return
        yield "access-control-allow-origin", origin
        if method == "OPTIONS" and "access-control-request-method" in headers and self.methods:
            yield "access-control-allow-methods", self.methods


@dataclass(frozen=True, slots=True)
class WorkerAccess:
    """The rules that a request to a worker must meet: an `AccessRules` for an interface without pages.

    Clients send any content type (the endpoints refuse it), and reach the worker by any name, unless it listens on this
    machine alone. A page of another site cannot change anything.

    Attributes:
        rules: Users and hosts.
        cross_origin: Sites that may use the interface.
        checks_host: Whether a request must name a host that is known.
    """

    rules: AccessRules
    cross_origin: CrossOrigin
    checks_host: bool

    def refusal(self, method: str, headers: Mapping[str, str]) -> RefusedRequest | None:
        """Check the headers of a request."""
        origin = headers.get("origin")
        if method in _CHANGING and origin is not None and not self.cross_origin.allows(origin):
            host = headers.get("host", "")
            if origin.lower() not in {f"http://{host.lower()}", f"https://{host.lower()}"}:
                return RefusedRequest(403, "requests of other sites are refused")
        checked = {**headers} if self.checks_host else {**headers, "host": "localhost"}
        return self.rules.refusal("GET", checked)
