"""Workers seen from outside: their REST interface, plans of changes, and records of a connector."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from penstock.base.masking import without_passwords
from penstock.connect.connectors import known_plugins
from penstock.connect.data import Header, Headers, SinkRecord
from penstock.connect.delivery import Converters
from penstock.errors import ConfigError, ConnectError, EnvironmentProblemError, PenstockError
from penstock.log.base import TopicLog, TopicPartition

if TYPE_CHECKING:
    import httpx

__all__ = ["ConnectClient", "Plan", "PlannedChange", "Tap", "make_plan"]

REBALANCING = 409
TRIES, WAIT_S = 10, 1.0


class ConnectClient:
    """Requests to a group of workers; any of them answers.

    Args:
        url: The address of a worker, such as ``http://localhost:8083``.
        user: ``name:password``, for workers with basic authentication.
        timeout_s: The longest time of a request.

    Raises:
        ConfigError: The URL is none.
    """

    def __init__(self, url: str, user: str | None = None, *, timeout_s: float = 60.0) -> None:
        try:
            import httpx
        except ImportError as error:
            raise EnvironmentProblemError("httpx is not installed", hint='pip install "penstock[connect]"') from error
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r} is not the URL of a worker", hint="For example http://localhost:8083")
        name, colon, password = (user or "").partition(":")
        self.url = without_passwords(url)
        self._client: httpx.Client = httpx.Client(
            base_url=url.rstrip("/"), auth=(name, password) if colon else None, timeout=timeout_s
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def configs(self) -> dict[str, dict[str, str]]:
        """Return the configs of all connectors, by name."""
        connectors = self._ask("GET", "/connectors?expand=info")
        if isinstance(connectors, list):  # workers before Kafka 2.3
            return {name: dict(self._ask("GET", f"{_path(name)}/config")) for name in connectors}
        return {name: dict(each["info"]["config"]) for name, each in connectors.items()}

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Return the config (``info``) and the state (``status``) of all connectors, by name."""
        return dict(self._ask("GET", "/connectors?expand=info&expand=status"))

    def restart(self, name: str, *, only_failed: bool = False) -> None:
        """Restart a connector with its tasks, or only those of them that have failed."""
        self._ask("POST", f"{_path(name)}/restart?includeTasks=true&onlyFailed={str(only_failed).lower()}")

    def pause(self, name: str) -> None:
        """Pause a connector."""
        self._ask("PUT", f"{_path(name)}/pause")

    def resume(self, name: str) -> None:
        """Resume a paused connector."""
        self._ask("PUT", f"{_path(name)}/resume")

    def config(self, name: str) -> dict[str, str]:
        """Return the config of a connector.

        Raises:
            ConnectError: There is none of this name.
        """
        return dict(self._ask("GET", f"{_path(name)}/config"))

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """Return what is wrong with a config, by the worker's own validation: setting and error."""
        kind = config.get("connector.class", "").rpartition(".")[2]
        if not kind:
            return ["connector.class: it must be set"]
        try:
            body = self._ask("PUT", f"/connector-plugins/{quote(kind, safe='')}/config/validate", dict(config))
        except ConnectError as error:
            return [error.message]
        values = [each["value"] for each in body["configs"]]
        return [f"{each['name']}: {text}" for each in values for text in each["errors"]]

    def experimental(self) -> frozenset[str]:
        """Return the connectors of the worker that it calls experimental; none if the worker does not know the word."""
        plugins = self._ask("GET", "/connector-plugins")
        return frozenset(str(each["class"]) for each in plugins if each.get("experimental"))

    def put_config(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change its config."""
        self._ask("PUT", f"{_path(name)}/config", dict(config))

    def delete(self, name: str) -> None:
        """Delete a connector."""
        self._ask("DELETE", _path(name))

    def topics(self, name: str) -> list[str]:
        """Return the topics that a connector has written or read since they were reset last."""
        reply = self._ask("GET", f"{_path(name)}/topics")
        return list(reply.get(name, {}).get("topics", []))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask, and ask again while the workers rebalance.

        Raises:
            ConnectError: The worker refuses, or cannot be reached.
        """
        import httpx

        answer: httpx.Response | None = None
        for attempt in range(TRIES):
            try:
                answer = self._client.request(method, path, json=body)
            except httpx.TransportError as error:
                raise ConnectError(
                    f"the worker {self.url} cannot be reached: {error}",
                    hint="Check that it runs. `penstock connect worker` starts one; --url names another one.",
                ) from error
            if answer.status_code != REBALANCING or attempt == TRIES - 1:
                break
            time.sleep(WAIT_S)
        assert answer is not None  # noqa: S101 - there is at least one attempt
        if answer.is_success:
            return answer.json() if answer.content else None
        raise ConnectError(
            f"the worker {self.url} refuses {method} {path}: {_message(answer)} ({answer.status_code})",
            hint="Check the name." if answer.status_code == 404 else "Correct what it names.",
        )


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or answer.reason_phrase


MOST = 500


class Tap:
    """A reader of a connector's topics without its group, from their ends on or from their beginnings.

    Args:
        log: The log.
        topics: The topics.
        config: The connector's config, whose converters read the records. Those of the worker cannot be seen from
            outside: where the connector names none, JSON and text are shown as they are.
        from_start: Begin with the oldest records.
    """

    def __init__(
        self, log: TopicLog, topics: Iterable[str], config: Mapping[str, Any], *, from_start: bool = False
    ) -> None:
        self._log = log
        named = [role for role in ("key", "value", "header") if config.get(f"{role}.converter")]
        self._named = frozenset(named)
        self._converters = Converters.of(config, known_plugins()) if named else None
        self._positions: dict[TopicPartition, int] = {}
        for topic in topics:
            for number in range(log.partitions(topic)):
                tp = TopicPartition(topic, number)
                first = log.beginning_offset if from_start else log.end_offset
                self._positions[tp] = first(topic, number)

    def read(self) -> Iterator[SinkRecord]:
        """Yield the records that have come since the last call."""
        for tp, position in sorted(self._positions.items()):
            fetched = self._log.read(tp.topic, tp.partition, position, MOST)
            for row in fetched.records.to_pylist():
                record = self._record(tp, row)
                self._positions[tp] = row["offset"] + 1  # one record at a time: the caller may end after any
                yield record
            self._positions[tp] = fetched.next_offset

    def _record(self, tp: TopicPartition, row: Mapping[str, Any]) -> SinkRecord:
        headers = [Header(each["key"], self._part("header", tp.topic, each["value"])) for each in row["headers"] or ()]
        return SinkRecord(
            topic=tp.topic,
            partition=tp.partition,
            offset=row["offset"],
            timestamp=row["timestamp"],
            key=self._part("key", tp.topic, row["key"]),
            value=self._part("value", tp.topic, row["value"]),
            headers=Headers(headers),
        )

    def _part(self, role: str, topic: str, data: bytes | None) -> Any:
        if data is None or self._converters is None or role not in self._named:
            return _plain(data)
        try:
            return getattr(self._converters, role).to_connect(topic, data).value
        except PenstockError:
            return data  # what cannot be read is shown as it is


def _plain(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


SECRET = re.compile(r"password|secret|token|credential|authorization|\bkey\b|\.key$|jaas", re.IGNORECASE)
REFERENCE = re.compile(r"\$\{[^}]+\}")


class Action(Enum):
    """A change of a connector's state."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The change of one connector.

    Attributes:
        name: The connector.
        action: What happens to it.
        config: Its config afterwards; empty if it is deleted.
        lines: The settings that differ, ``+`` new, ``-`` old, secrets masked.
    """

    name: str
    action: Action
    config: Mapping[str, str]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, and the connectors that stay.

    Attributes:
        changes: The changes, in the order in which they are made.
        unchanged: Connectors whose config is what it should be.
        others: Connectors that no file names, and that stay.
    """

    changes: tuple[PlannedChange, ...]
    unchanged: tuple[str, ...]
    others: tuple[str, ...]


def make_plan(
    configs: Mapping[str, Mapping[str, str]], present: Mapping[str, Mapping[str, str]], *, prunes: bool = False
) -> Plan:
    """Compare configs.

    Args:
        configs: The configs that there should be, by name.
        present: Those that there are.
        prunes: Connectors that are not wanted are deleted.

    Example:
        >>> plan = make_plan({"a": {"topic": "x"}}, {"a": {"topic": "y", "name": "a"}, "b": {}})
        >>> [(change.action.value, change.lines) for change in plan.changes], plan.others
        ([('change', ('- topic=y', '+ topic=x'))], ('b',))
    """
    changes, unchanged = [], []
    for name in sorted(configs):
        config = {**configs[name], "name": name}
        old = {**present[name], "name": name} if name in present else None
        if old == config:
            unchanged.append(name)
        elif old is None:
            changes.append(PlannedChange(name, Action.CREATE, config, tuple(_difference({}, config))))
        else:
            changes.append(PlannedChange(name, Action.CHANGE, config, tuple(_difference(old, config))))
    others = sorted(present.keys() - configs.keys())
    if prunes:
        changes += [PlannedChange(name, Action.DELETE, {}, ()) for name in others]
    return Plan(tuple(changes), tuple(unchanged), () if prunes else tuple(others))


def _difference(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    lines = []
    for key in sorted(old.keys() | new.keys()):
        if key == "name" or old.get(key) == new.get(key):
            continue
        lines += [f"- {key}={_shown(key, old[key])}"] if key in old else []
        lines += [f"+ {key}={_shown(key, new[key])}"] if key in new else []
    return lines


def _shown(key: str, value: str) -> str:
    """Return the value for people: not of secrets, unless it only refers to one."""
    if SECRET.search(key) and not REFERENCE.fullmatch(value):
        return "[hidden]"
    return re.sub(r"//[^/@\s]*@", "//[hidden]@", value)
