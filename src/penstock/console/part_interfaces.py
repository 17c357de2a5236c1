"""Parts that a console may show besides: workers of Connect, and a server of SQL. Their packages implement these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["ConnectorState", "Connectors", "SqlResult", "Statements"]


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """A connector as the worker describes it.

    Attributes:
        name: Its name.
        kind: "source" or "sink".
        state: RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, RESTARTING.
        worker: The worker that has it.
        tasks: For each task ``id``, ``state``, ``worker_id``, and of a failed one ``trace``.
        config: Its settings, secrets masked.
        trace: Why it failed.
        experimental: Its worker says that it was not compared with its model.
    """

    name: str
    kind: str
    state: str
    worker: str
    tasks: Sequence[Mapping[str, Any]]
    config: Mapping[str, str]
    trace: str = ""
    experimental: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether it, or one of its tasks, has failed."""
        return self.state == "FAILED" or any(task.get("state") == "FAILED" for task in self.tasks)

    @property
    def whole_state(self) -> str:
        """The state with that of its tasks: FAILED if all of them have failed, DEGRADED if some have.

        >>> ConnectorState("lines", "source", "RUNNING", "", [{"state": "FAILED"}], {}).whole_state
        'FAILED'
        """
        failed = [task.get("state") == "FAILED" for task in self.tasks]
        if self.state != "RUNNING" or not any(failed):
            return self.state
        return "FAILED" if all(failed) else "DEGRADED"


class Connectors(Protocol):
    """The connectors of a group of workers."""

    @property
    def url(self) -> str:
        """The worker's address."""
        ...

    def all(self) -> list[ConnectorState]:
        """Return all connectors by name; raise ConnectError if no worker answers."""
        ...

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector reads or writes."""
        ...

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart a connector with its tasks, or only those that have failed."""
        ...

    def pause(self, name: str, *, resume: bool) -> None:
        """Pause a connector, or resume it."""
        ...

    def configure(self, name: str, config: Mapping[str, str], *, dry_run: bool) -> list[str]:
        """Create a connector, or change its settings; masked ones stay as they are.

        Args:
            name: The connector.
            config: All its settings.
            dry_run: Whether nothing is changed.

        Returns:
            The settings that change, secrets masked.

        Raises:
            ConnectError: The worker finds something wrong with a setting.
        """
        ...


@dataclass(frozen=True, slots=True)
class SqlResult:
    """The result of one statement.

    Attributes:
        statement: The statement.
        columns: Names and types; empty for a message.
        rows: Rows of values.
        message: What was done, for a statement without rows.
        is_cut: Whether there are more rows than these.
        facts: Further facts of a query.
        topology: What a query runs, as the text of a topology; empty for other statements.
    """

    statement: str
    columns: Sequence[tuple[str, str]] = ()
    rows: Sequence[Sequence[Any]] = ()
    message: str = ""
    is_cut: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    topology: str = ""


class Statements(Protocol):
    """A server of SQL."""

    @property
    def url(self) -> str:
        """The server's address."""
        ...

    def run(self, text: str, *, writes: bool, records: bool = True) -> list[SqlResult]:
        """Run statements; those that change something are refused unless ``writes``.

        Without ``records`` only those run that neither show records nor write them under other names: SHOW, DESCRIBE,
        EXPLAIN.

        Raises:
            SqlError: A statement is wrong, or refused.
        """
        ...

    def complete(self, text: str, at: int) -> list[tuple[str, str, int]]:
        """Return what may stand at a place of a text: the word, its kind, and how many characters it replaces."""
        ...
