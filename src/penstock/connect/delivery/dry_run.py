"""A dry run: the next records of a connector through each step, nothing written and no offset moved."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.clock import unix_ms
from penstock.connect.api import SourceTask
from penstock.connect.data import ConnectRecord, SourceRecord, java_name
from penstock.connect.delivery.conversion import Converters, Encoded
from penstock.connect.delivery.running import PLAIN_CONVERTERS, check_config, topics_of
from penstock.connect.delivery.source_context import SourceContext
from penstock.connect.delivery.stored_offsets import StoredOffsets
from penstock.connect.plugins import Plugins, TransformationChain, transformation_chain
from penstock.errors import PenstockError, UnknownTopicError
from penstock.log.base import TopicLog, TopicPartition

__all__ = ["DryRecord", "dry_run"]

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
