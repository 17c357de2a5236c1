"""The console of a running application, at its own HTTP port."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.base.secrets import resolved
from penstock.console.applications import Applications, OwnApplication
from penstock.console.web.application import make_console
from penstock.console.web.site import Permissions, Site
from penstock.console.web.tokens import kept_token
from penstock.console.web.writing import BODY_BYTES, MARK, methods_of
from penstock.engines.application.app_log import log_settings
from penstock.log.open import open_log
from penstock.serving import Beside, TokenDoor

if TYPE_CHECKING:
    from penstock.config import StreamsConfig

__all__ = ["EmbeddedConsole"]

_PREFIX = "/ui"
_STREAMS = 128


class EmbeddedConsole:
    """A console for an application's own port, below ``/ui``.

    Args:
        own: The application.
        config: Its settings.
    """

    def __init__(self, own: OwnApplication, config: StreamsConfig) -> None:
        url = str(config["bootstrap.servers"])
        opened = partial(open_log, url, log_settings(config))
        self._log = opened()
        places = {name: config.given[name] for name in ("bootstrap.servers", "state.dir") if name in config.given}
        self._applications = Applications(self._log, places, own=own)
        self._applications.open_log = opened
        permissions = Permissions(
            messages=config["penstock.console.messages"],
            masked=tuple(config["penstock.console.mask"]),
            writes=config["penstock.console.allow.writes"],
        )
        self._site = Site(self._applications, self._log, permissions, root=_PREFIX)
        token = config["penstock.console.token"]
        self._token = kept_token() if token is None else resolved("penstock.console.token", str(token))

    def beside(self) -> Beside:
        """Return it for a server with another application."""
        return Beside(
            _PREFIX,
            TokenDoor(make_console(self._site, _STREAMS), self._token),
            methods_of(self._site.permissions),
            MARK,
            BODY_BYTES if self._site.permissions.writes else 0,
            _STREAMS,
        )

    def served_at(self, url: str, is_stopping: Callable[[], bool]) -> str:
        """Take notice of its server; return the console's address with the token."""
        self._site.is_stopping = is_stopping
        return f"{url}{_PREFIX}/?{urlencode({'token': self._token})}"

    def close(self) -> None:
        """Release its log."""
        self._applications.close()
        self._log.close()
