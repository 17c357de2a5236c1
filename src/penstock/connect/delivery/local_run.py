"""One connector in this process, without a worker: its tasks, their run until stopped, and a dry run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.connect.api import Connector, SinkConnector, SinkTask, SourceTask
from penstock.connect.data import ConnectRecord, RetriableError, SettingError, SourceRecord, java_name
from penstock.connect.delivery.pipeline import Converters, Encoded, OnStep, Pipeline
from penstock.connect.delivery.record_errors import EXCEEDED, NOT_PUT, NOT_SENT
from penstock.connect.delivery.sink import SinkDelivery
from penstock.connect.delivery.source import SourceContext, SourceDelivery, Unwatched, Watcher, boundary_of
from penstock.connect.delivery.source_encoding import SourceSteps
from penstock.connect.delivery.source_writer import RecordWriter, StoredOffsets, WritableLog
from penstock.connect.delivery.topic_creation import TopicCreation
from penstock.connect.plugins import Plugins, TransformationChain, start_notes, transformation_chain, validate_connector
from penstock.errors import ConfigError, ConnectError, PenstockError, UnknownTopicError
from penstock.log import Consumer
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic
from penstock.log.thread_clients import Writer

__all__ = [
    "PLAIN_CONVERTERS",
    "ConnectorRun",
    "SingleSource",
    "check_config",
    "dry_run",
    "plainly",
    "single_sink",
    "topics_of",
]


@contextmanager
def plainly() -> Iterator[None]:
    """Raise the errors of connectors and plugins themselves, without the words that a worker shows around them."""
    try:
        yield
    except ConnectError as error:
        if error.message in (EXCEEDED, NOT_SENT, NOT_PUT) and error.__cause__ is not None:
            raise error.__cause__ from None
        raise


class SingleSource:
    """A source's task that delivers exactly once, or at least once.

    Args:
        log: The log that is written to.
        identity: The name of the connector and the number of the task.
        task: The task, not started yet.
        settings: Its config.
        pipeline: Transformations and converters.
        exactly_once: Records and source offsets are one transaction.
        more: The ``watcher`` and ``on_step`` of a `SourceDelivery`.
    """

    def __init__(
        self,
        log: TopicLog,
        identity: tuple[str, int],
        task: SourceTask,
        settings: Mapping[str, str],
        pipeline: Pipeline,
        *,
        exactly_once: bool = True,
        **more: Any,
    ) -> None:
        self._exactly_once = exactly_once
        self.task, self._settings = task, settings
        self.offsets = StoredOffsets(log, identity[0])
        self._log, self._identity = log, identity
        self._pipeline, self._more = pipeline, more
        self._writer: RecordWriter | None = None
        self._delivery: SourceDelivery | None = None

    def start(self) -> None:
        """Fence an earlier run, and start the task at its stored offsets."""
        name, number = self._identity
        writable = cast("WritableLog", self._log)
        writer = Writer("connect", f"{name}-{number}", None, self._exactly_once)
        self._writer = RecordWriter(writable, writer, self.offsets.topic, number)
        boundary = boundary_of(self._settings)
        creation = TopicCreation(self._log, self._settings, enabled=True)
        steps = SourceSteps(self._pipeline)
        self._delivery = SourceDelivery(
            name, self.task, steps, self._writer, creation, boundary=boundary, **self._more
        )  # fmt: skip
        self.task.context = SourceContext(
            self._settings, self.offsets, boundary.context, self._exactly_once and self._pipeline.copies
        )
        self.task.start(self._settings)

    def deliver(self) -> Sequence[SourceRecord]:
        """Poll once, and write what is due; returns what the task returned.

        Raises:
            ConnectError: The task, a transformation or a converter fails.
        """
        assert self._delivery is not None  # noqa: S101 - start comes first
        try:
            return self._delivery.deliver()
        except RetriableError:
            return ()

    def stop(self, *, failed: bool = False) -> None:
        """Write what is pending, and stop the task."""
        try:
            if self._delivery is not None and not failed:
                self._delivery.finish()
        finally:
            self.task.stop()
            self._pipeline.close()
            if self._writer is not None:
                self._writer.close()


def single_sink(
    log: TopicLog,
    task: SinkTask,
    settings: Mapping[str, str],
    pipeline: Pipeline,
    *,
    watcher: Watcher | None = None,
    on_step: OnStep = lambda _step: None,
    topics: Sequence[str] = (),
) -> SinkDelivery:
    """Return a sink's task; the group is that of the connector in a worker.

    Args:
        log: The log.
        task: The task.
        settings: Its config.
        pipeline: Transformations and converters.
        watcher: As `SinkDelivery` has it.
        on_step: Likewise.
        topics: What it shares with the other members of the group; none: its partitions are assigned by hand.
    """
    group = f"connect-{settings['name']}"
    consumer = Consumer(log, group=group, assignors=("cooperative-sticky",)) if topics else Consumer(log, group=group)
    sink = SinkDelivery(log, consumer, task, settings, pipeline, watcher=watcher, on_step=on_step)
    if topics:
        consumer.subscribe(topics, listener=sink)
    return sink


PLAIN_CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
COMMIT_EVERY = 20  # puts; a sink that is idle commits at once
_log = own_logger(__name__)
_POLL_S = 0.1
_RETRY_MS = 1000


def check_config(config: Mapping[str, str], plugins: Plugins) -> None:
    """Validate a connector's config.

    Raises:
        SettingError: There is no such connector, or settings are wrong; the message names all of them.
    """
    chosen = config.get("connector.class") or ""
    try:
        validated = validate_connector(config, plugins)
    except LookupError as error:
        if not chosen:
            raise SettingError(
                "connector.class is missing", hint="It names the connector: a class, or file.py:name."
            ) from error
        raise SettingError(
            f"there is no connector {chosen!r}", hint="penstock connect list shows those that there are."
        ) from error
    values = [entry["value"] for entry in validated["configs"]]
    errors = [f"{value['name']}: {text}" for value in values for text in value["errors"]]
    if errors:
        raise SettingError("the config has errors:\n  " + "\n  ".join(errors), hint="Nothing has run yet.")


def topics_of(settings: Mapping[str, str], log: TopicLog) -> list[str]:
    """Return the topics that a sink reads: those of ``topics``, or those that ``topics.regex`` matches."""
    from penstock.base.java_text.regex import compile_java

    if settings.get("topics.regex"):
        pattern = compile_java(settings["topics.regex"])
        return [info.name for info in log.topics() if pattern.fullmatch(info.name)]
    return [name.strip() for name in settings.get("topics", "").split(",") if name.strip()]


class ConnectorRun:
    """A connector without a worker: no REST interface, no cluster, errors end it.

    Args:
        log: The log.
        config: Its config, with ``name`` and ``connector.class``.
        plugins: The plugins that there are.
        shares: Whether a sink shares its topics with other runs of that name; else it takes all partitions.

    Raises:
        SettingError: The config is wrong.
    """

    def __init__(self, log: TopicLog, config: Mapping[str, str], plugins: Plugins, *, shares: bool = False) -> None:
        check_config(config, plugins)
        for note in start_notes(config, plugins):
            _log.warning("%s", note)
        self.name, self.config = config["name"], dict(config)
        self.connector: Connector = plugins.connector(config["connector.class"]).make()
        self._log, self._shares = log, shares
        shared_topics = topics_of(config, log) if shares else ()
        self.connector.start(self.config)
        self._watcher = Unwatched()
        self.sources: list[SingleSource] = []
        self.sinks: list[SinkDelivery] = []
        for number, own in enumerate(self.connector.task_configs(int(config.get("tasks.max", "1")))):
            settings = {**self.config, **own}
            pipeline = Pipeline.of(settings, plugins, PLAIN_CONVERTERS)
            task = self.connector.task_class()
            if isinstance(task, SourceTask):
                identity = self.name, number
                self.sources.append(SingleSource(log, identity, task, settings, pipeline, watcher=self._watcher))
            elif isinstance(task, SinkTask):
                sink = single_sink(log, task, settings, pipeline, watcher=self._watcher, topics=shared_topics)
                self.sinks.append(sink)
            else:
                raise ConfigError(f"{type(task).__name__} is neither a task of a source nor of a sink")

    @property
    def records(self) -> int:
        """The records that were carried so far."""
        return self._watcher.records

    def run(self, stopped: threading.Event, *, once: bool = False, ending: threading.Event | None = None) -> None:
        """Carry records until it is stopped.

        Args:
            stopped: Set it to stop; all that is read is written and committed then.
            once: Stop by itself when the source has nothing, or the sink has read all.
            ending: Set it to stop so from then on.

        Raises:
            ConnectError: A task fails.
        """
        if isinstance(self.connector, SinkConnector):
            self._assign()
        for source in self.sources:
            source.start()
        failed = True
        try:
            with plainly():
                self._rounds(stopped, lambda: once or (ending is not None and ending.is_set()))
            failed = False
        finally:
            for source in self.sources:
                source.stop(failed=failed)
            for sink in self.sinks:
                sink.stop(failed=failed)
            self.connector.stop()

    def _rounds(self, stopped: threading.Event, is_ending: Callable[[], bool]) -> None:
        idle, rounds = 0, 0
        while not stopped.is_set():
            moved = sum(len(source.deliver()) for source in self.sources)
            moved += sum(self._put(sink, stopped) for sink in self.sinks)
            rounds += 1
            idle = 0 if moved else idle + 1
            if idle == 1 or rounds % COMMIT_EVERY == 0:
                for sink in self.sinks:
                    sink.commit()
            if idle and is_ending() and not any(sink.behind() for sink in self.sinks):
                break

    def _put(self, sink: SinkDelivery, stopped: threading.Event) -> int:
        try:
            return len(sink.deliver(timeout_s=_POLL_S / len(self.sinks)))
        except RetriableError:
            stopped.wait(sink.context.take_timeout_ms(_RETRY_MS) / 1000)
            return 0

    def _assign(self) -> None:
        for sink in self.sinks:
            sink.start()
        if self._shares:
            return
        places = []
        for topic in topics_of(self.config, self._log):
            places += [TopicPartition(topic, n) for n in range(ensure_topic(self._log, topic, 1))]
        for number, sink in enumerate(self.sinks):
            sink.assign(places[number :: len(self.sinks)])


PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class DryRecord:
    """A record on its way.

    Attributes:
        steps: The name of each step and the record after it: a record, its bytes (`Encoded`), None if it was dropped,
            or the text of an error.
    """

    steps: tuple[tuple[str, ConnectRecord | Encoded | str | None], ...]


class _ReadOnly:
    """Stored offsets that are read only, and not even created."""

    def __init__(self, log: TopicLog, name: str, topic: str) -> None:
        try:
            log.partitions(topic)
        except UnknownTopicError:
            self._stored = None
        else:
            self._stored = StoredOffsets(log, name, topic)

    def offset(self, partition: Mapping[str, Any]) -> dict[str, Any] | None:
        return None if self._stored is None else self._stored.offset(partition)

    def offsets(self, partitions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | None]:
        return [self.offset(partition) for partition in partitions]

    def all(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [] if self._stored is None else self._stored.all()


def dry_run(log: TopicLog, config: Mapping[str, str], plugins: Plugins, count: int = 10) -> Iterator[DryRecord]:
    """Yield the next records of a connector with all steps up to the bytes of a topic, or up to a sink's ``put``.

    A source is polled as it would be; a sink is not started at all. Its records are those that it would read next.

    Args:
        log: The log.
        config: The connector's config.
        plugins: The plugins that there are.
        count: The number of records.

    Raises:
        SettingError: The config is wrong.
        ConnectError: The source fails.
    """
    check_config(config, plugins)
    connector = plugins.connector(config["connector.class"]).make()
    chain = transformation_chain(config, plugins)
    converters = Converters.of(config, plugins, PLAIN_CONVERTERS)
    if not issubclass(connector.task_class, SourceTask):
        yield from _of_sink(log, config, converters, chain, count)
        return
    connector.start(dict(config))
    try:
        for own in connector.task_configs(1)[:1]:
            yield from _of_source(log, connector.task_class(), {**config, **own}, (converters, chain), count)
    finally:
        connector.stop()


def _of_source(
    log: TopicLog,
    task: SourceTask,
    settings: Mapping[str, str],
    steps: tuple[Converters, TransformationChain],
    count: int,
) -> Iterator[DryRecord]:
    task.context = SourceContext(settings, _ReadOnly(log, settings["name"], "connect-offsets"))
    task.start(settings)
    deadline, left = time.monotonic() + PATIENCE_S, count
    try:
        while left > 0 and time.monotonic() < deadline:
            for record in list(task.poll() or ())[:left]:
                left -= 1
                yield DryRecord(tuple(_through(record, "polled", steps[1], settings, steps[0])))
    finally:
        task.stop()


def _of_sink(
    log: TopicLog, config: Mapping[str, str], converters: Converters, chain: TransformationChain, count: int
) -> Iterator[DryRecord]:
    committed, left = log.committed_offsets(f"connect-{config['name']}"), count
    for topic in topics_of(config, log):
        for number in range(log.partitions(topic)):
            tp = TopicPartition(topic, number)
            start = committed.get(tp, log.beginning_offset(topic, number))
            rows = log.read(topic, number, start, left).records.to_pylist() if left else []
            left -= len(rows)
            for row in rows:
                where = f"{topic}-{number}, offset {row['offset']}"
                try:
                    record = converters.decode(tp, row)
                except PenstockError as error:
                    yield DryRecord(((where, _error(error)),))
                    continue
                yield DryRecord(tuple(_through(record, where, chain, config, None)))


def _through(
    record: ConnectRecord,
    first: str,
    chain: TransformationChain,
    settings: Mapping[str, str],
    converters: Converters | None,
) -> Iterator[tuple[str, ConnectRecord | Encoded | str | None]]:
    yield first, record
    aliases = [name.strip() for name in settings.get("transforms", "").split(",") if name.strip()]
    for alias, stage in zip(aliases, chain.stages, strict=True):
        try:
            transformed = stage.apply(record)
        except PenstockError as error:
            yield f"transforms.{alias}", _error(error)
            return
        yield f"transforms.{alias}", transformed
        if transformed is None:
            return
        record = transformed
    if converters is not None and isinstance(record, SourceRecord):
        try:
            yield "converted", converters.encode(record, unix_ms())
        except PenstockError as error:
            yield "converted", _error(error)


def _error(error: PenstockError) -> str:
    return f"{java_name(error)}: {error.message}"
