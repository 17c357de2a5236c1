"""The positions of connectors: a compacted topic, written in the same transaction as the records."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import pyarrow as pa

from penstock.base.clock import unix_ms
from penstock.errors import LogError
from penstock.log.base import LogTransaction, TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic

__all__ = [
    "POSITIONS_TOPIC",
    "FilePosition",
    "StoredPosition",
    "ensure_positions_topic",
    "load_position",
    "save_position",
]

POSITIONS_TOPIC = "connect-offsets"


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The position of a connector in a file.

    Attributes:
        inode: The inode of the file; another one at the same path means a rotation.
        offset_bytes: The byte before which all lines are in the log.
        lines: The number of lines in the log, of all files of the path.
        head: The first bytes of the file, in hexadecimal, to detect a new file with the old one's inode.
    """

    inode: int = 0
    offset_bytes: int = 0
    lines: int = 0
    head: str = ""


def ensure_positions_topic(log: TopicLog) -> None:
    """Create the topic of positions if it does not exist."""
    ensure_topic(log, POSITIONS_TOPIC, 1, {"cleanup.policy": "compact"})


class StoredPosition:
    """The position of a connector as it is stored; each look reads only what is new.

    Args:
        log: The log; the topic of positions exists.
        connector: The connector's name.
    """

    def __init__(self, log: TopicLog, connector: str) -> None:
        self._log = log
        self._connector = connector
        self._next = log.beginning_offset(POSITIONS_TOPIC, 0)
        self._found: bytes | None = None

    def look(self) -> FilePosition | None:
        """Return the last committed position; None at the first start.

        Raises:
            LogError: It cannot be read.
        """
        key, place = self._connector.encode(), TopicPartition(POSITIONS_TOPIC, 0)
        end = self._log.settled_ends([place])[place]
        while self._next < end:
            fetched = self._log.read(POSITIONS_TOPIC, 0, self._next)
            keys = fetched.records.column("key").to_pylist()
            at = max((row for row, name in enumerate(keys) if name == key), default=None)
            if at is not None:
                self._found = fetched.records.column("value")[at].as_py()
            self._next = fetched.next_offset
        if self._found is None:
            return None
        try:
            return FilePosition(**json.loads(self._found))
        except (ValueError, TypeError) as error:
            raise LogError(
                f"the position of connector {self._connector!r} in topic {POSITIONS_TOPIC} cannot be read: {error}",
                hint="Start the connector under another name; it then reads its file from the start.",
                topic=POSITIONS_TOPIC,
            ) from error


def load_position(log: TopicLog, connector: str) -> FilePosition | None:
    """Load the last committed position; None at the first start."""
    return StoredPosition(log, connector).look()


def save_position(transaction: LogTransaction, connector: str, position: FilePosition) -> None:
    """Add a position to a transaction."""
    record = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([unix_ms()], pa.int64()),
            "key": pa.array([connector.encode()], pa.large_binary()),
            "value": pa.array([json.dumps(asdict(position)).encode()], pa.large_binary()),
        }
    )
    transaction.append(POSITIONS_TOPIC, 0, record)
