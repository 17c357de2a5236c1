"""The driver of connectors under test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.base.clock import unix_ms
from penstock.connect.api import Connector, SinkConnector, SinkTask, SourceTask
from penstock.connect.connectors import with_own
from penstock.connect.data import Header, Headers, RetriableError, SettingError, SinkRecord, SourceRecord, Struct
from penstock.connect.delivery import Converters, Pipeline, SinkDelivery, Step
from penstock.connect.delivery.local_run import PLAIN_CONVERTERS, SingleSource, plainly, single_sink, topics_of
from penstock.connect.delivery.pipeline import batches_of
from penstock.connect.functions import FunctionSourceTask, installed_plugins, plugin_of
from penstock.connect.plugins import Plugin, Plugins
from penstock.connect.testing.source_check import SourceModel, check_source
from penstock.errors import ConfigError
from penstock.log.base import OffsetAndMetadata, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.open import open_log

__all__ = ["ConnectTestDriver"]

T = TypeVar("T")


class _Killed(BaseException):
    """The crash that a test has asked for: no handler of errors may stop it."""


class ConnectTestDriver:
    """A driver that runs a connector in the test's own process, one step at a time, over a real log.

    The tasks do what a worker's do: they poll, transform, convert and commit, or read, put, flush and commit. A crash
    leaves them as they are at that step, without ``stop``, and starts new ones from what is stored.

    Args:
        connector: A decorated function, a connector's class, or a name that a config would have.
        config: The connector's config. Converters that it does not name are plain text for keys, JSON for values.
        log: The log; by default one in memory.
        tasks: The number of tasks (``tasks.max``).
        exactly_once: Records and source offsets are one transaction, as with ``delivery.guarantee=exactly_once``;
            False: records are written first, then the offsets.

    Example:
        >>> from penstock.connect.functions import Record, source
        >>> @source("Letters", topic=str)
        ... def letters(settings, offsets):
        ...     for at in range(offsets.get({}, {"next": 0})["next"], 3):
        ...         yield [Record(settings.topic, "abc"[at], partition={}, offset={"next": at + 1})]
        ...         yield 0
        >>> driver = ConnectTestDriver(letters, {"topic": "letters"})
        >>> _ = driver.poll(), driver.poll(crash=Step.WRITTEN), driver.poll(crash=Step.COMMITTED), driver.poll()
        >>> [record.value for record in driver.read("letters")]
        ['a', 'b', 'c']
    """

    def __init__(
        self,
        connector: Callable[..., Any] | type[Connector] | str,
        config: Mapping[str, Any],
        *,
        log: TopicLog | None = None,
        tasks: int = 1,
        plugins: Plugins | None = None,
        exactly_once: bool = True,
    ) -> None:
        self.exactly_once = exactly_once
        self.plugins = plugins or with_own(installed_plugins())
        plugin = _named(self.plugins, connector) if isinstance(connector, str) else plugin_of(connector, "connector")
        self.name = str(config.get("name", "test"))
        self.config = {key: _text(value) for key, value in config.items()}
        self.config.setdefault("name", self.name)
        for sentence in (plugin.model.refusal(key, value) for key, value in self.config.items()):
            if sentence is not None:
                raise SettingError(sentence)
        self.log = log or open_log("memory://")
        self.converters = Converters.of(self.config, self.plugins, PLAIN_CONVERTERS)
        self._make: Callable[[], Connector] = plugin.make
        self._max_tasks = tasks
        self._crash: Step | None = None
        self._start()

    @property
    def is_sink(self) -> bool:
        """Whether the connector is a sink."""
        return isinstance(self.connector, SinkConnector)

    # Sources

    def poll(self, *, crash: Step | None = None) -> list[SourceRecord]:
        """Poll each task once and write what comes.

        Args:
            crash: Kill the tasks after this step, and start new ones; nothing is returned then.
        """
        return self._dying(crash, lambda: [record for task in self.sources for record in task.deliver()], [])

    def offsets(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the stored source partitions with their offsets."""
        return self.sources[0].offsets.all() if self.sources else []

    def read_all(self) -> list[SinkRecord]:
        """Return all committed records of all topics, but for those of source offsets."""
        offsets = {source.offsets.topic for source in self.sources}
        return [record for info in self.log.topics() if info.name not in offsets for record in self.read(info.name)]

    @property
    def has_ended(self) -> bool:
        """Whether all tasks are functions that have returned."""
        tasks = [source.task for source in self.sources]
        return all(isinstance(task, FunctionSourceTask) and task.has_ended for task in tasks)

    def poll_acknowledged_twice(self) -> list[SourceRecord]:
        """Poll each task once, write what comes, and acknowledge it once more, as after an answer that was lost."""
        records: list[SourceRecord] = []
        for source in self.sources:
            delivered = source.deliver()
            for record in delivered:
                source.task.commit_record(record, None)
            if delivered:
                source.task.commit()
            records += delivered
        return records

    @staticmethod
    def check_source(
        make: Callable[[], ConnectTestDriver],
        model: Callable[[ConnectTestDriver], SourceModel] | Mapping[Any, Sequence[Any]],
        *,
        runs: int = 30,
        seed: int = 0,
        quiet_polls: int = 3,
        schedule: Sequence[str] | None = None,
    ) -> None:
        """Run a source through crashes, restarts and rebalances, and compare what it has written with a model.

        One disturbance alone comes first, after none, one and two polls: a crash at each `Step`, one between polls, a
        clean restart, one, two or three tasks, an acknowledgement that comes twice. Then come schedules at random. At
        the end of each, and once more after a restart, the topics must hold every record of the model; in the order of
        its part of the source, within a partition of a topic; and once, or with ``exactly_once=False`` more often
        only where a task crashed.

        Args:
            make: Makes the driver of a run; each has a source and a log of its own.
            model: The values of the source by its parts, or a function of the driver that returns a `SourceModel`.
                Values must differ.
            runs: The number of schedules at random.
            seed: The same seed makes the same schedules.
            quiet_polls: The source is at its end when so many polls have brought nothing.
            schedule: Run this one alone, as an error names it.

        Raises:
            SourceFaultError: Records are lost, doubled, or out of order; it has the shortest schedule that shows it.

        Example:
            >>> from penstock.connect.functions import Record, source
            >>> @source("Letters", topic=str)
            ... def letters(settings, offsets):
            ...     for at in range(offsets.get({}, {"next": 0})["next"], 3):
            ...         yield [Record(settings.topic, "abc"[at], partition={}, offset={"next": at + 1})]
            >>> ConnectTestDriver.check_source(
            ...     lambda: ConnectTestDriver(letters, {"topic": "letters"}), {"letters": "abc"}, runs=3
            ... )
        """
        check_source(make, model, runs=runs, seed=seed, quiet_polls=quiet_polls, schedule=schedule)

    def read(self, topic: str) -> list[SinkRecord]:
        """Return all committed records of a topic, read by the connector's converters."""
        rows = []
        for number in range(self.log.partitions(topic)):
            tp = TopicPartition(topic, number)
            first, end = self.log.beginning_offset(topic, number), self.log.end_offset(topic, number)
            for batch in self.log.read_range(topic, number, first, end):
                rows += [self.converters.decode(tp, row) for row in batch.to_pylist()]
        return rows

    # Sinks

    def produce(
        self, topic: str, *values: Any, key: Any = None, headers: Mapping[str, Any] | None = None, partition: int = 0
    ) -> None:
        """Write values to a topic, as the connector's converters write them; structs with their schemas."""
        record_headers = Headers(Header(name, value) for name, value in (headers or {}).items())
        now = unix_ms()
        count = ensure_topic(self.log, topic, partition + 1)
        if count <= partition:
            self.log.create_partitions(topic, partition + 1)
            count = partition + 1
        records = [
            SourceRecord(
                topic=topic,
                partition=partition,
                key=key,
                key_schema=key.schema if isinstance(key, Struct) else None,
                value=value,
                value_schema=value.schema if isinstance(value, Struct) else None,
                headers=record_headers,
            )
            for value in values
        ]
        encoded = [self.converters.encode(record, now) for record in records]
        for tp, batch in batches_of(encoded, {topic: count}, 0):
            self.log.append(tp.topic, tp.partition, batch)
        self._share()

    def put(self, *, crash: Step | None = None, commit: bool = True) -> list[SinkRecord]:
        """Read what is new in the topics, put it, and commit; returns what the tasks were given.

        Args:
            crash: Kill the tasks after this step, and start new ones; nothing is returned then.
            commit: Flush and commit the offsets after the put.
        """

        def put() -> list[SinkRecord]:
            delivered: list[SinkRecord] = []
            for task in self.sinks:
                try:
                    delivered += task.deliver()
                except RetriableError:
                    continue
                if commit:
                    task.commit()
            return delivered

        return self._dying(crash, put, [])

    def put_all(self) -> int:
        """Put until nothing is left; returns the number of records."""
        count = 0
        while any(task.behind() for task in self.sinks):
            before = sum(task.behind() for task in self.sinks)
            count += len(self.put())
            if sum(task.behind() for task in self.sinks) >= before:
                break  # the sink asks for the same records again
        return count

    def group_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the sink's group."""
        return self.log.group_offsets(f"connect-{self.name}")

    # Life

    def restart(self) -> None:
        """Stop the tasks cleanly and start new ones from what is stored."""
        self.stop()
        self._start()

    def kill(self) -> None:
        """Leave the tasks as they are between two polls, without ``stop``, and start new ones from what is stored."""
        self.connector.stop()  # its threads would outlive a process that is gone
        self._start()

    def rebalance(self, tasks: int) -> None:
        """Share the work among another number of tasks; partitions that stay with a task are not touched."""
        self._max_tasks = tasks
        if not self.is_sink:
            self.restart()
            return
        for gone in self.sinks[tasks:]:
            gone.stop()
        del self.sinks[tasks:]
        self._add_sinks(tasks)

    def stop(self) -> None:
        """Stop the tasks cleanly; sinks flush and commit."""
        for source in self.sources:
            source.stop()
        for sink in self.sinks:
            sink.stop()
        self.connector.stop()

    def _start(self) -> None:
        self.connector = self._make()
        self.sources: list[SingleSource] = []
        self.sinks: list[SinkDelivery] = []
        self.connector.start(self.config)
        if self.is_sink:
            self._add_sinks(self._max_tasks)
            return
        for number, settings in enumerate(self.connector.task_configs(self._max_tasks)):
            task = self.connector.task_class()
            if not isinstance(task, SourceTask):
                raise ConfigError(f"{type(task).__name__} is not a task of a source")
            own = {**self.config, **settings}
            source = SingleSource(
                self.log, (self.name, number), task, own, self._pipeline(own),
                exactly_once=self.exactly_once, on_step=self._at,
            )  # fmt: skip
            source.start()
            self.sources.append(source)

    def _pipeline(self, settings: Mapping[str, str]) -> Pipeline:
        return Pipeline.of(settings, self.plugins, PLAIN_CONVERTERS)

    def _add_sinks(self, tasks: int) -> None:
        for settings in self.connector.task_configs(tasks)[len(self.sinks) :]:
            task = self.connector.task_class()
            if not isinstance(task, SinkTask):
                raise ConfigError(f"{type(task).__name__} is not a task of a sink")
            own = {**self.config, **settings}
            sink = single_sink(self.log, task, own, self._pipeline(own), on_step=self._at)
            sink.start()
            self.sinks.append(sink)
        self._share()

    def _share(self) -> None:
        """Give each sink's task its partitions, keeping those that it has."""
        if not self.sinks:
            return
        topics = topics_of(self.config, self.log)
        counts = {info.name: info.partitions for info in self.log.topics()}
        places = [TopicPartition(name, n) for name in topics for n in range(counts.get(name, 0))]
        fair = -(-len(places) // len(self.sinks))
        shares = [[tp for tp in task.assignment if tp in places][:fair] for task in self.sinks]
        free = [tp for tp in places if not any(tp in share for share in shares)]
        for tp in free:
            min(shares, key=len).append(tp)
        for task, share in sorted(zip(self.sinks, shares, strict=True), key=lambda pair: -len(pair[0].assignment)):
            task.assign(share)

    def _at(self, step: Step) -> None:
        if step is self._crash:
            raise _Killed

    def _dying(self, crash: Step | None, work: Callable[[], T], nothing: T) -> T:
        self._crash = crash
        try:
            with plainly():
                return work()
        except _Killed:
            self._crash = None
            self.kill()
            return nothing
        finally:
            self._crash = None


def _named(plugins: Plugins, name: str) -> Plugin:
    try:
        return plugins.connector(name)
    except LookupError as error:
        raise ConfigError(
            f"there is no connector {name!r}", hint="penstock connect list shows those that there are."
        ) from error


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
