"""The shapes of metrics: what is measured, and which metrics are computed from it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.metrics.name import RecordingLevel

__all__ = [
    "STATS",
    "MeterDefinition",
    "MetricDefinition",
    "calls",
    "joined",
    "ratio",
    "said",
    "spread",
    "sums",
    "total",
]

STATS = ("sum", "count", "rate of a sum", "rate of calls", "calls an hour", "avg", "min", "max")


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric of a meter.

    Attributes:
        name: Its name.
        stat: How it is computed from the recorded values: one of STATS.
        description: Its meaning, in a sentence.
    """

    name: str
    stat: str
    description: str


@dataclass(frozen=True, slots=True)
class MeterDefinition:
    """A measured quantity and its metrics.

    Attributes:
        group: The group of the metrics.
        level: The recording level from which on they exist.
        metrics: The metrics.
    """

    group: str
    level: RecordingLevel
    metrics: tuple[MetricDefinition, ...]


def said(how: str, what: str) -> str:
    """Return the description of a metric: what is measured, put into a phrase, and the remarks that follow it.

    Args:
        how: The phrase, with ``{}`` in the place of what is measured.
        what: What is measured; behind its first full stop, remarks.

    >>> said("{}, per second", "Commits. A micro-batch is one.")
    'Commits, per second. A micro-batch is one.'
    >>> said("The mean {}", "time of a call in nanoseconds")
    'The mean time of a call in nanoseconds.'
    """
    measured, _, remarks = what.removesuffix(".").partition(". ")
    return f"{how.format(measured)}.{f' {remarks}.' if remarks else ''}"


def calls(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a rate and a total of calls."""
    metrics = (
        MetricDefinition(f"{name}-rate", "rate of calls", said("{}, per second", what)),
        MetricDefinition(f"{name}-total", "count", said("{}, since the start", what)),
    )
    return MeterDefinition(group, level, metrics)


def sums(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a rate and a total of values."""
    metrics = (
        MetricDefinition(f"{name}-rate", "rate of a sum", said("{}, per second", what)),
        MetricDefinition(f"{name}-total", "sum", said("{}, since the start", what)),
    )
    return MeterDefinition(group, level, metrics)


def spread(group: str, level: RecordingLevel, name: str, what: str, stats: str = "avg max") -> MeterDefinition:
    """Define a mean and extremes."""
    words = {"avg": "mean", "min": "smallest", "max": "largest"}
    metrics = tuple(MetricDefinition(f"{name}-{s}", s, said(f"The {words[s]} {{}}", what)) for s in stats.split())
    return MeterDefinition(group, level, metrics)


def total(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a total of values."""
    return MeterDefinition(group, level, (MetricDefinition(name, "sum", what),))


def ratio(group: str, level: RecordingLevel, name: str, what: str) -> MeterDefinition:
    """Define a share of the time of the last samples, of recorded seconds."""
    return MeterDefinition(group, level, (MetricDefinition(name, "rate of a sum", what),))


def joined(*meters: MeterDefinition) -> MeterDefinition:
    """Define one meter with the metrics of several."""
    return MeterDefinition(meters[0].group, meters[0].level, tuple(m for each in meters for m in each.metrics))
