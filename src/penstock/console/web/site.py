"""What all pages of a console read, and what it allows."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.console.exposed_application import Exposed
from penstock.console.exposure import Exposure
from penstock.console.group_watch import GroupWatch
from penstock.console.web.visitors import Role, Visitor

if TYPE_CHECKING:
    from penstock.console.applications import Applications
    from penstock.console.part_interfaces import Connectors, Statements
    from penstock.console.schemas import Schemas
    from penstock.log.base import TopicLog

__all__ = ["Permissions", "Site"]


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the visitors of a console may see and do.

    Attributes:
        messages: Whether they may see keys and values of messages.
        masked: Paths in keys and values that are hidden, for example ``value.card``.
        needs_token: Whether visitors need the token; without, the page says so.
        writes: Whether they may change something: all of them, or those whose role allows it where they have names.
    """

    messages: bool = True
    masked: tuple[str, ...] = ()
    needs_token: bool = True
    writes: bool = False

    @property
    def everybody(self) -> Visitor:
        """A visitor where nobody has a name: everybody may change everything, or nothing."""
        return Visitor("", Role.ADMIN if self.writes else Role.VIEWER)

    @property
    def exposure(self) -> Exposure:
        """What of records they may see."""
        return Exposure.of(messages=self.messages, masked=self.masked)


@dataclass(slots=True)
class Site:
    """A console.

    Attributes:
        applications: Its applications.
        log: Its log; None beside a checkpoint alone.
        permissions: What visitors may see and do.
        root: The prefix of its addresses: empty, or ``/ui`` beside other servers at the same port.
        connectors: The connectors of a group of workers; None: no worker is known.
        statements: A server of SQL; None: none is known.
        schemas: A schema registry; None: none is known.
        groups: The groups of the log, and how their lag has moved while somebody looked.
        is_stopping: Returns whether the server is to stop, so that streams must end.
    """

    applications: Applications
    log: TopicLog | None
    permissions: Permissions = field(default_factory=Permissions)
    root: str = ""
    connectors: Connectors | None = None
    statements: Statements | None = None
    schemas: Schemas | None = None
    is_stopping: Callable[[], bool] = bool
    groups: GroupWatch = field(default_factory=GroupWatch)
    identity: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def exposure(self) -> Exposure:
        """What of records visitors may see."""
        return self.permissions.exposure

    def application(self, name: str) -> Exposed:
        """Return an application as visitors may see it.

        Raises:
            PenstockError: There is none of this name.
        """
        return Exposed(self.applications.get(name), self.exposure)
