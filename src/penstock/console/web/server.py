"""Servers of a console: its own, for ``penstock ui``, and that of a running application at its HTTP port.

Without the libraries of the extra ``ui`` this module can be imported all the same: it says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.base.log_lines import own_logger
from penstock.base.secrets import resolved
from penstock.console.applications import Applications, OwnApplication
from penstock.console.schemas import Schemas
from penstock.console.web.site import Permissions, Site
from penstock.console.web.visitors import OneToken, Users, kept_token
from penstock.engines.application.locations import log_settings
from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.log.open import open_log
from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES
from penstock.serving import READING, Beside, TokenDoor

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.serving.token import Admission

__all__ = [
    "MARK",
    "ConsoleAddress",
    "ConsoleServer",
    "EmbeddedConsole",
    "require_console_libraries",
]

MARK = "X-Penstock"
BODY_BYTES = 64 * 1024


def methods_of(permissions: Permissions) -> frozenset[str]:
    """Return the methods that a console serves: those that read, and POST if its visitors may write."""
    return READING | {"POST"} if permissions.writes else READING


_STREAMS = 128
_CONNECTIONS = 256


def require_console_libraries() -> None:
    """Raise EnvironmentProblemError unless the libraries of the extra ``ui`` are installed."""
    try:
        import jinja2  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise EnvironmentProblemError(
            f"the console needs {error.name}, which is not installed",
            hint='Install it with: pip install "penstock[ui]"',
        ) from error


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    """Where a console listens.

    Attributes:
        host: The address.
        port: The port; 0 for a free one.
        names: Further names of this host, of a proxy before it.
        token: The token that visitors need; None: none.
        admission: Says who comes with which token, in place of one token for all.
    """

    host: str = "127.0.0.1"
    port: int = 7070
    names: tuple[str, ...] = ()
    token: str | None = None
    admission: Admission | None = None


class ConsoleServer:
    """A server of a console.

    Args:
        site: What it shows.
        address: Where it listens.
    """

    def __init__(self, site: Site, address: ConsoleAddress) -> None:
        require_console_libraries()
        from penstock.console.web.application import make_console
        from penstock.serving import AccessRules, HttpServer, Limits, listen

        listener = listen(address.host, address.port, "console")
        console = make_console(site, _STREAMS)
        admission = address.admission
        if admission is None and address.token is not None:
            admission = OneToken(address.token, site.permissions.everybody.role)
        self._server = HttpServer(
            console if admission is None else TokenDoor(console, admission),
            listener,
            access=AccessRules(
                frozenset({address.host.lower(), *(name.lower() for name in address.names)}),
                methods=methods_of(site.permissions),
                mark=MARK,
            ),
            limits=Limits(connections=_CONNECTIONS, requests=_STREAMS + 32, body_bytes=BODY_BYTES),
        )
        site.is_stopping = lambda: self._server.is_stopping
        shown = f"[{address.host}]" if ":" in address.host else address.host
        is_shown = address.token is not None and address.admission is None
        query = f"?{urlencode({'token': address.token})}" if is_shown else ""
        self.port = listener.port
        self.url = f"http://{shown}:{listener.port}/{query}"

    def start(self) -> None:
        """Serve in a thread."""
        self._server.start()

    def run(self) -> None:
        """Serve until Ctrl-C or SIGTERM; from the main thread of a process that does nothing else."""
        self._server.run()

    def close(self) -> None:
        """Stop serving; open streams end."""
        self._server.close()


_log = own_logger("penstock.app")
_PREFIX = "/ui"


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
        from penstock.console.web.application import make_console

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
