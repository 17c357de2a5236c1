"""Pages: what a page is, and what its function gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.console.web.visitors import Role, Visitor
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.console.exposed_application import Exposed
    from penstock.console.web.site import Site

__all__ = ["NotThereError", "Page", "Visit", "whole"]


_READABLE = 2**40


class NotThereError(PenstockError):
    """The console has no such page, application or thing; the answer is 404."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One look at a page.

    Attributes:
        site: The console.
        path: The page's path, without the prefix of the console.
        parameters: The parameters of the address.
        visitor: Who looks.
        is_signed_in: Whether the browser keeps their token, and so can forget it.
    """

    site: Site
    path: str
    parameters: Mapping[str, str]
    visitor: Visitor = field(default_factory=Visitor)
    is_signed_in: bool = False

    @property
    def operates(self) -> bool:
        """Whether the visitor may do what operators do."""
        return self.visitor.role >= Role.OPERATOR

    @property
    def administers(self) -> bool:
        """Whether the visitor may do everything."""
        return self.visitor.role >= Role.ADMIN

    def get(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        return self.parameters.get(name, default)

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the address is true, 1 or yes."""
        return self.get(name).lower() in ("true", "1", "yes")

    @property
    def application_name(self) -> str:
        """The application that the address names, else the first one; empty if there is none."""
        names = self.site.applications.names()
        return self.get("app") or next(iter(names), "")

    @property
    def application(self) -> Exposed | None:
        """The application, as visitors may see it; None if the log has none."""
        name = self.application_name
        if not name:
            return None
        if name not in self.site.applications.names():
            raise NotThereError(f"no application is named {name!r}", hint="Choose one at the top of the page.")
        return self.site.application(name)


Build = Callable[[Visit], Mapping[str, Any]]


def _always(visit: Visit) -> object:  # noqa: ARG001 - the form of stamps
    return None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the console.

    Attributes:
        name: The name of its template.
        title: Its title.
        build: Returns what its template shows; runs in a thread.
        seconds: The time between two looks for an open page.
        stamp: Returns a value that changes when the page may; None: it must be built to know. Runs in a thread.
    """

    name: str
    title: str
    build: Build
    seconds: float = 2.0
    stamp: Callable[[Visit], object] = _always


def whole(text: str, name: str, default: int, most: int) -> int:
    """Read a whole number of an address, from 0 to ``most``.

    >>> whole("7", "limit", 100, 1000), whole("", "limit", 100, 1000)
    (7, 100)
    """
    if not text:
        return default
    if not text.isdecimal() or len(text) > 19 or int(text) > most:
        range_ = "from 0 on" if most > _READABLE else f"from 0 to {most:,}"
        raise PenstockError(f"{name} is {text[:30]!r}", hint=f"It is a whole number {range_}.")
    return int(text)
