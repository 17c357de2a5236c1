"""The web console beside the demo, where its libraries are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import EnvironmentProblemError
from penstock.log.base import TopicLog

__all__ = ["shown_console"]


@contextmanager
def shown_console(log: TopicLog, home: Path) -> Iterator[str]:
    """Serve the console of the demo's log at a free port; yield its address, or how to get it.

    Args:
        log: The demo's log.
        home: The folder with the demo's state.
    """
    from penstock.console.web.server import ConsoleAddress, ConsoleServer, require_console_libraries

    try:
        require_console_libraries()
    except EnvironmentProblemError as error:
        yield error.hint
        return
    from penstock.console.applications import Applications
    from penstock.console.web.site import Site
    from penstock.console.web.tokens import kept_token

    applications = Applications(log, {"bootstrap.servers": log.url, "state.dir": str(home / "state")})
    server = ConsoleServer(Site(applications, log), ConsoleAddress(port=0, token=kept_token()))
    server.start()
    try:
        yield server.url
    finally:
        server.close()
        applications.close()
