"""The console's own server, for ``penstock ui``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock.console.web.visitors import OneToken
from penstock.errors import EnvironmentProblemError

if TYPE_CHECKING:
    from penstock.console.web.site import Site
    from penstock.serving.token import Admission

__all__ = ["ConsoleAddress", "ConsoleServer", "require_console_libraries"]

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
        from penstock.console.web.writing import BODY_BYTES, MARK, methods_of
        from penstock.serving import AccessRules, HttpServer, Limits, TokenDoor, listen

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
