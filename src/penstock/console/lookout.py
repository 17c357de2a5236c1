"""Where to look first: the tasks, nodes, partitions and stores that take most of an application's time, ranked."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from penstock.console.picture import Picture

__all__ = ["Finding", "findings_of"]

_MOST = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """A thing to look at.

    Attributes:
        kind: "task", "node", "partition", "store".
        name: Its name.
        share: How much of the whole it is, from 0 to 1.
        said: What about it, in words.
    """

    kind: str
    name: str
    share: float
    said: str


def findings_of(picture: Picture) -> list[Finding]:
    """Return the first things to look at, the largest share first.

    >>> findings_of(Picture({"nodes": {"A": [10, 10, 3.0], "B": [10, 10, 1.0]}}))[0]
    Finding(kind='node', name='A', share=0.75, said='75 % of the processing time')
    """
    found = [*_tasks(picture)[:2], *_nodes(picture)[:2], *_partitions(picture)[:2]]
    found += _stores(picture)[: max(1, _MOST - len(found))]
    return sorted(found, key=lambda each: -each.share)[:_MOST]


def _tasks(picture: Picture) -> list[Finding]:
    batch, line = picture.batch(), picture.newest
    if batch is None or line is None or len(batch["tasks"]) < 2:
        return []
    seconds = {task["task"]: sum(task["seconds"].values()) for task in batch["tasks"]}
    median = statistics.median(seconds.values()) or 1e-9
    whole = max(line.seconds, *seconds.values()) or 1e-9
    return [
        Finding(
            "task",
            name,
            min(each / whole, 1.0),
            f"{each / whole * 100:.0f} % of the batch, {each / median:.1f} times the median",
        )
        for name, each in sorted(seconds.items(), key=lambda item: -item[1])
        if each > 0
    ]


def _nodes(picture: Picture) -> list[Finding]:
    ranked = sorted(picture.shares.items(), key=lambda item: -item[1])
    return [Finding("node", name, share, f"{share * 100:.0f} % of the processing time") for name, share in ranked]


def _partitions(picture: Picture) -> list[Finding]:
    total = picture.lag or 0
    ranked = sorted((each for each in picture.partitions if each.lag), key=lambda each: -each.lag)
    return [
        Finding(
            "partition",
            each.name,
            each.lag / total,
            f"{each.lag:,} records wait" + ("" if each.seconds is None else f", {each.seconds:,.0f} s behind"),
        )
        for each in ranked
    ]


def _stores(picture: Picture) -> list[Finding]:
    rows = picture.store_rows
    total = sum(rows.values())
    ranked = sorted(rows.items(), key=lambda item: -item[1])
    return [
        Finding("store", name, 0.0, f"{count:,} rows, {count / total * 100:.0f} % of all")
        for name, count in ranked
        if count
    ]
