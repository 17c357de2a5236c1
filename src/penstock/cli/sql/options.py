"""Options of the commands of `penstock sql`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.cli.options import (
    Bootstrap,
    CommandConfig,
    ConfigFile,
    ConfigPairs,
    read_command_config,
    read_config,
)

if TYPE_CHECKING:
    from penstock.sql.session import SqlSession

__all__ = ["SqlOptions"]


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """The log of a session, and its settings: of files, of the command line; the last one wins."""

    bootstrap: Bootstrap = "penstock.db"
    command_config: CommandConfig = None
    config: ConfigPairs = field(default_factory=list)
    config_file: ConfigFile = None

    def settings(self) -> dict[str, Any]:
        """Return the config of a session."""
        return {
            "bootstrap.servers": self.bootstrap,
            **read_command_config(self.command_config),
            **read_config(self.config, self.config_file),
        }

    def session(self, queries: Literal["run", "wait"], *, scripts: bool = True) -> SqlSession:
        """Open a session; an embedded log is made if there is none."""
        from penstock.sql.session import SqlSession

        return SqlSession(self.settings(), queries=queries, scripts=scripts)
