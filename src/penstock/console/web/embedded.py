"""The console of a running application, at its own HTTP port."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.base.log_lines import own_logger
from penstock.base.secrets import resolved
from penstock.console.applications import Applications, OwnApplication
from penstock.console.schemas import Schemas
from penstock.console.web.application import make_console
from penstock.console.web.site import Permissions, Site
from penstock.console.web.tokens import kept_token
from penstock.console.web.visitors import OneToken, Users
from penstock.console.web.writing import BODY_BYTES, MARK, methods_of
from penstock.engines.application.app_log import log_settings
from penstock.errors import ConfigError
from penstock.log.open import open_log
from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES
from penstock.serving import Beside, TokenDoor

if TYPE_CHECKING:
    from penstock.config import StreamsConfig

__all__ = ["EmbeddedConsole"]

_log = own_logger("penstock.app")
_PREFIX = "/ui"
_STREAMS = 128


class EmbeddedConsole:
    """A console for an application's own port, below ``/ui``.

    Args:
        own: The application.
        config: Its settings.
    """

    def __init__(self, own: OwnApplication, config: StreamsConfig) -> None:
        file = config["penstock.console.users"]
        users = None if file is None else Users.read(Path(file))
        ignored = {"penstock.console.token", "penstock.console.allow.writes"} & config.given.keys()
        if users is not None and ignored:
            raise ConfigError(
                f"penstock.console.users excludes {min(ignored)}",
                hint="Users have tokens of their own, and roles that say what they may change.",
                setting=min(ignored),
            )
        url = str(config["bootstrap.servers"])
        opened = partial(open_log, url, log_settings(config))
        self._log = opened()
        places = {name: config.given[name] for name in ("bootstrap.servers", "state.dir") if name in config.given}
        self._applications = Applications(self._log, places, own=own)
        self._applications.open_log = opened
        permissions = Permissions(
            messages=config["penstock.console.messages"],
            masked=tuple(config["penstock.console.mask"]),
            writes=config["penstock.console.allow.writes"] if users is None else users.may_write,
        )
        self._site = Site(self._applications, self._log, permissions, root=_PREFIX)
        self._site.schemas = _registry_of(config)
        token = config["penstock.console.token"]
        self._token = kept_token() if token is None else resolved("penstock.console.token", str(token))
        self._users = users

    def beside(self) -> Beside:
        """Return it for a server with another application."""
        return Beside(
            _PREFIX,
            TokenDoor(
                make_console(self._site, _STREAMS),
                self._users or OneToken(self._token, self._site.permissions.everybody.role),
            ),
            methods_of(self._site.permissions),
            MARK,
            BODY_BYTES if self._site.permissions.writes else 0,
            _STREAMS,
        )

    def served_at(self, url: str, is_stopping: Callable[[], bool]) -> str:
        """Take notice of its server; return the console's address, with the token if all have the same."""
        self._site.is_stopping = is_stopping
        return f"{url}{_PREFIX}/" + (f"?{urlencode({'token': self._token})}" if self._users is None else "")

    def close(self) -> None:
        """Release its log, and its registry."""
        if self._site.schemas is not None:
            self._site.schemas.close()
        self._applications.close()
        self._log.close()


def _registry_of(config: StreamsConfig) -> Schemas | None:
    """Return the registry of the application; None if it has none, or without the client: it may do without."""
    if not config.given.get("schema.registry.url"):
        return None
    try:
        return Schemas({name: value for name, value in config.given.items() if name.startswith(REGISTRY_PREFIXES)})
    except ConfigError as error:
        _log.info("the console has no page of schemas: %s", error.message)
        return None
