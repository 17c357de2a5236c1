"""Looking at, changing and resetting the offsets of a connector."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.base.java_text.hashing import bucket_order, value_hash
from penstock.connect.api import SinkConnector, SourceConnector
from penstock.connect.data import SettingError
from penstock.connect.delivery.record_errors import error_message
from penstock.connect.plugins import PluginKind
from penstock.connect.worker.herder import Herder
from penstock.connect.worker.request_errors import ElsewhereError, RequestError
from penstock.errors import PenstockError, UnknownTopicError
from penstock.log.base import TopicPartition

__all__ = ["OffsetOperations"]

_NOT_STOPPED = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
    "connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
)
_ELSEWHERE = (
    " However, if this connector manages offsets externally, they will need to be manually {done} in the system that "
    "the connector uses."
)
_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_STOP_S = 5.0
_NUMBER = re.compile(r"[+-]?[0-9]{1,1000}")
Pair = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]


class OffsetOperations:
    """The operations on offsets."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def offsets(self, name: str) -> dict[str, Any]:
        """Return the offsets of a connector: of its source, or of its sink's group."""
        config = self._config(name)
        if self._is_sink(config):
            committed = self._herder.log.committed_offsets(_group(name, config))
            entries = [
                {"partition": {_PARTITION: tp.partition, _TOPIC: tp.topic}, "offset": {_OFFSET: offset}}
                for tp, offset in sorted(committed.items())
            ]
            return {"offsets": entries}
        self._herder.stores.offsets.refresh()
        pairs = self._herder.stores.offsets.offsets(name)
        return {"offsets": [{"partition": dict(partition), "offset": dict(offset)} for partition, offset in pairs]}

    def alter(self, name: str, pairs: Sequence[Pair]) -> dict[str, str]:
        """Set offsets; an offset None deletes one.

        Raises:
            RequestError: The connector is not stopped, or refuses them.
        """
        config = self._stopped(name)
        pairs = _in_map(pairs)
        if self._is_sink(config):
            checked = self._alter_sink(name, config, sink_offsets(pairs), delete_group=False)
        else:
            for partition, offset in pairs:
                _check_values(partition)
                _check_values(offset)
            checked = self._alter_source(name, config, _in_map(pairs, longs=True))
        return _done(checked, "altered")

    def reset(self, name: str) -> dict[str, str]:
        """Delete all offsets.

        Raises:
            RequestError: The connector is not stopped, or refuses it.
        """
        config = self._stopped(name)
        if self._is_sink(config):
            committed = self._herder.log.committed_offsets(_group(name, config))
            checked = self._alter_sink(name, config, dict.fromkeys(committed), delete_group=True)
        else:
            self._herder.stores.offsets.refresh()
            pairs = [(partition, None) for partition, _ in self._herder.stores.offsets.offsets(name)]
            checked = self._alter_source(name, config, pairs)
        return _done(checked, "reset")

    def _config(self, name: str) -> dict[str, str]:
        stored = self._herder.stores.configs.state.connectors.get(name)
        if stored is None:
            raise RequestError.not_found(name)
        return {key: value for key, value in self._herder.resolved(stored).items() if value is not None}

    def _stopped(self, name: str) -> dict[str, str]:
        """Return the config of a connector that is stopped, with all of its tasks."""
        config = self._config(name)
        view, state = self._herder.view, self._herder.stores.configs.state
        if not view.leads:
            raise ElsewhereError(view.leader)
        if state.target(name) != "STOPPED" or state.counts.get(name):
            raise RequestError(400, _NOT_STOPPED.format(name=name))
        deadline = time.monotonic() + _STOP_S
        while self._herder.tasks.of(name) and time.monotonic() < deadline:
            time.sleep(0.02)
        return config

    def _is_sink(self, config: Mapping[str, str]) -> bool:
        return PluginKind.SINK in self._herder.plugins.connector(config.get("connector.class", "")).kinds

    def _alter_source(self, name: str, config: dict[str, str], pairs: Sequence[Pair]) -> bool:
        connector: SourceConnector = self._herder.plugins.connector(config["connector.class"]).make()
        checked = _asked(name, lambda: connector.alter_offsets(config, pairs))  # type: ignore[arg-type]
        if pairs:
            self._herder.stores.offsets.put(name, pairs)
        return checked

    def _alter_sink(
        self, name: str, config: dict[str, str], offsets: Mapping[TopicPartition, int | None], *, delete_group: bool
    ) -> bool:
        self._check_places(offsets)
        connector: SinkConnector = self._herder.plugins.connector(config["connector.class"]).make()
        checked = _asked(name, lambda: connector.alter_offsets(config, offsets))
        log, group = self._herder.log, _group(name, config)
        kept = {tp: offset for tp, offset in offsets.items() if offset is not None}
        removed = [tp for tp, offset in offsets.items() if offset is None]
        if removed and not kept and not delete_group and group not in log.groups():
            raise RequestError(500, f"Failed to alter consumer group offsets for connector {name}")
        try:
            self._await_empty(group)
            if delete_group:
                if group in log.groups():
                    log.delete_group(group)
                return checked
            if kept:
                log.commit_offsets(group, kept)
            if removed:
                log.delete_offsets(group, removed)
        except PenstockError as error:
            raise RequestError(
                500,
                f"Failed to {'reset' if delete_group else 'alter'} consumer group offsets for connector {name} either "
                "because its tasks haven't stopped completely yet or the connector was resumed before the request to "
                f"{'reset' if delete_group else 'alter'} its offsets could be successfully completed. If the connector "
                "is in a stopped state, this operation can be safely retried. If it doesn't eventually succeed, the "
                "Connect cluster may need to be restarted to get rid of the zombie sink tasks.",
            ) from error
        return checked

    def _check_places(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Refuse offsets of partitions that are not there: the group would never read from them."""
        for tp, offset in offsets.items():
            if offset is None:
                continue
            try:
                count = self._herder.log.partitions(tp.topic)
            except UnknownTopicError as error:
                raise RequestError(400, f"There is no topic '{tp.topic}'") from error
            if tp.partition >= count:
                raise RequestError(
                    400, f"There is no partition {tp.partition} of the topic '{tp.topic}', which has {count}"
                )

    def _await_empty(self, group: str) -> None:
        deadline = time.monotonic() + _STOP_S
        while self._herder.log.group_state(group).members and time.monotonic() < deadline:
            time.sleep(0.05)


def _check_values(part: Mapping[str, Any] | None) -> None:
    """Refuse what cannot be stored in a source partition or offset.

    Raises:
        RequestError: A value is not a text, number or boolean (500).
    """
    for name, value in (part or {}).items():
        kind = "MAP" if isinstance(value, dict) else "ARRAY" if isinstance(value, list) else None
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            kind = "class java.math.BigInteger"
        if kind is not None:
            text = f"Offsets may only contain primitive types as values, but field {name} contains {kind}"
            raise RequestError(500, text)


def _in_map(pairs: Sequence[Pair], *, longs: bool = False) -> list[Pair]:
    """Return each partition once, with its last offset, in the order of Java's maps, which decides what is refused."""
    unique: dict[str, Pair] = {}
    for partition, offset in pairs:
        key = "" if partition is None else repr(sorted(partition.items()))
        unique[key] = (partition, offset)
    unique_pairs = list(unique.values())
    return [
        unique_pairs[at] for at in bucket_order([value_hash(partition, longs=longs) for partition, _ in unique_pairs])
    ]


def sink_offsets(pairs: Sequence[Pair]) -> dict[TopicPartition, int | None]:
    """Read the offsets of a sink's group.

    Raises:
        RequestError: They have another form (400).
    """
    offsets: dict[TopicPartition, int | None] = {}
    for partition, offset in pairs:
        if partition is None:
            raise RequestError(400, "The partition for a sink connector offset cannot be null or missing")
        if _TOPIC not in partition or _PARTITION not in partition:
            text = f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
            raise RequestError(400, text)
        topic, number = partition[_TOPIC], partition[_PARTITION]
        if topic is None:
            raise RequestError(400, "Kafka topic names must be valid strings and may not be null")
        if number is None:
            raise RequestError(400, "Kafka partitions must be valid numbers and may not be null")
        at = _whole(number, "partition", "Partition", 32)
        tp = TopicPartition(str(topic), at)
        if offset is None:
            offsets[tp] = None
            continue
        if _OFFSET not in offset:
            text = f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'"
            raise RequestError(400, text)
        offsets[tp] = _whole(offset[_OFFSET], "offset", "Offset", 64)
    return offsets


def _whole(value: object, name: str, word: str, bits: int) -> int:
    shown = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    number = int(shown) if _NUMBER.fullmatch(shown) else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise RequestError(
            400,
            f"Failed to parse the following Kafka {name} value in the provided offsets: '{shown}'. {word} values for "
            "sink connectors need to be integers.",
        )
    if number < 0:
        raise RequestError(400, f"The Kafka {name} {number} in the provided offsets is negative")
    return number


def _asked(name: str, ask: Any) -> bool:
    """Let the connector check the offsets."""
    try:
        return bool(ask())
    except NotImplementedError as error:
        raise RequestError(
            500,
            f"Failed to modify offsets for connector {name} because it doesn't support external modification of "
            "offsets",
        ) from error
    except SettingError as error:
        raise RequestError(400, error.message) from error
    except Exception as error:
        raise RequestError(500, error_message(error)) from error


def _group(name: str, config: Mapping[str, str]) -> str:
    return config.get("consumer.override.group.id") or f"connect-{name}"


def _done(checked: bool, done: str) -> dict[str, str]:  # noqa: FBT001 - the connector's answer
    if checked:
        return {"message": f"The offsets for this connector have been {done} successfully"}
    text = f"The Connect framework-managed offsets for this connector have been {done} successfully."
    return {"message": text + _ELSEWHERE.format(done=done)}
