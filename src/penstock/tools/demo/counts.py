"""The counts in the topic os-check, and their comparison with a recount of the file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from penstock.log.base import TopicLog
from penstock.serde import Serdes
from penstock.tools.demo.access_log import hit_time, parse_line, system_of

__all__ = ["WINDOW_MS", "CountComparison", "Recount", "TopicCounts", "compare", "recount"]

WINDOW_MS = 60_000
_KEY = Serdes.time_windowed(Serdes.string(), WINDOW_MS)
_VALUE = Serdes.long()


class TopicCounts:
    """The newest count of each window and system; ``poll`` reads new ones."""

    def __init__(self, log: TopicLog, topic: str = "os-check") -> None:
        self._log, self._topic = log, topic
        self._next = {n: log.beginning_offset(topic, n) for n in range(log.partitions(topic))}
        self.counts: dict[tuple[int, str], int] = {}
        self.updates = 0

    def poll(self) -> None:
        """Read the new counts."""
        for partition, offset in self._next.items():
            position = offset
            while position < self._log.end_offset(self._topic, partition):
                fetched = self._log.read(self._topic, partition, position)
                position = fetched.next_offset
                keys = _KEY.decode(fetched.records.column("key")).items()
                values = _VALUE.decode(fetched.records.column("value")).items()
                for key, value in zip(keys, values, strict=True):
                    self.counts[key.window.start, key.key] = value
                self.updates += len(keys)
            self._next[partition] = position

    @property
    def total(self) -> int:
        """All hits that have been counted."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Recount:
    """The counts of a file, made without Penstock."""

    counts: Counter[tuple[int, str]]
    good: int
    bad: int


def recount(path: Path, end_bytes: int) -> Recount:
    """Count the lines before a byte position in a plain loop."""
    counts: Counter[tuple[int, str]] = Counter()
    bad = 0
    with path.open("rb") as file:
        while file.tell() < end_bytes:
            data = file.readline()
            try:
                line = data.decode().removesuffix("\n").removesuffix("\r")
                hit = parse_line(line)
            except ValueError:
                bad += 1
                continue
            when = hit_time(SimpleNamespace(value=line), 0)
            counts[when - when % WINDOW_MS, system_of(hit["agent"])] += 1
    return Recount(counts, counts.total(), bad)


@dataclass(frozen=True, slots=True)
class CountComparison:
    """The comparison of topic and file; ``late`` are hits that came after their window had closed."""

    counted: int
    good: int
    bad: int
    windows: int
    wrong: int
    late: int

    @property
    def verified(self) -> bool:
        """Whether every window of every system has exactly the count of the file."""
        return self.wrong == 0


def compare(counts: TopicCounts, path: Path, end_bytes: int) -> CountComparison:
    """Compare the topic's final counts with a recount of the file, window by window."""
    counts.poll()
    file = recount(path, end_bytes)
    keys = file.counts.keys() | counts.counts.keys()
    missing = [file.counts[key] - counts.counts.get(key, 0) for key in keys]
    return CountComparison(
        counted=counts.total,
        good=file.good,
        bad=file.bad,
        windows=len({start for start, _ in counts.counts}),
        wrong=sum(1 for difference in missing if difference),
        late=sum(missing) if all(difference >= 0 for difference in missing) else 0,
    )
