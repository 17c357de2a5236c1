"""Where to look first: the tasks, nodes, partitions and stores that take most of an application's time, ranked."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.console.app_view import Picture
from penstock.metrics.batches import busy_seconds, times_the_median

__all__ = ["Finding", "findings_of", "sentence_of"]

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
    findings = [*_tasks(picture)[:2], *_nodes(picture)[:2], *_partitions(picture)[:2]]
    findings += _stores(picture)[: max(1, _MOST - len(findings))]
    return sorted(findings, key=lambda each: -each.share)[:_MOST]


def sentence_of(picture: Picture) -> str:
    """Say in one sentence whether the lag grows, and what takes the time; empty if all is well.

    >>> sampled = [[1000 * n, 100 + 60 * n] for n in range(30)]
    >>> facts = {"state": "RUNNING", "written_ms": 2**60, "lags": sampled, "nodes": {"PARSE": [10, 10, 3.0]}}
    >>> sentence_of(Picture(facts))
    'The lag grows by 60 records a second: PARSE takes 100 % of the processing time.'
    """
    if not picture.is_live or picture.trend.word != "grows":
        return ""
    said = f"The lag grows by {picture.trend.per_second:,.0f} records a second"
    if under_way := picture.get("long_steps"):
        return f"{said}: {under_way[0]['what']}."
    node, share = max(picture.shares.items(), key=lambda item: item[1], default=("", 0.0))
    return f"{said}: {node} takes {share * 100:.0f} % of the processing time." if node else f"{said}."


def _tasks(picture: Picture) -> list[Finding]:
    batch, line = picture.batch(), picture.newest
    if batch is None or line is None or len(batch["tasks"]) < 2:
        return []
    seconds = {task["task"]: busy_seconds(task) for task in batch["tasks"]}
    ratios = dict(zip(seconds, times_the_median(list(seconds.values())), strict=True))
    whole = max(line.seconds, *seconds.values()) or 1e-9
    of = "the threads' time" if picture.is_continuous else "the batch"
    return [
        Finding(
            "task",
            name,
            min(each / whole, 1.0),
            f"{each / whole * 100:.0f} % of {of}, {ratios[name]:.1f} times the median",
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
