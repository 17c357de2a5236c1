"""A few verbs on a few records, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.api.builder import StreamsBuilder
from penstock.api.options import Consumed
from penstock.api.table import KTable
from penstock.serde import Serdes
from penstock.testing.driver import TopologyTestDriver

if TYPE_CHECKING:
    from penstock.api.stream import KStream

__all__ = ["try_out"]


def try_out(
    build: Callable[[KStream[Any, Any]], KStream[Any, Any] | KTable[Any, Any]], records: Iterable[tuple[Any, ...]]
) -> list[tuple[Any, Any]]:
    """Process the records of one stream with some verbs, and return the resulting (key, value) pairs.

    Args:
        build: A function that takes the stream and returns the stream or table of the results.
        records: (key, value) or (key, value, timestamp in milliseconds), of any JSON values and bytes.

    Returns:
        The results in order; for a table its changes, one for each record, as caching is off.

    >>> try_out(lambda stream: stream.group_by_key().count(), [("a", "x"), ("b", "y"), ("a", "z")])
    [('a', 1), ('b', 1), ('a', 2)]
    """
    builder, auto = StreamsBuilder(), Serdes.auto()
    seen: list[tuple[Any, Any]] = []
    built = build(builder.stream("try-out", Consumed(key_serde=auto, value_serde=auto)))
    stream = built.to_stream() if isinstance(built, KTable) else built
    stream.foreach(lambda key, value: seen.append((key, value)))
    config = {"statestore.cache.max.bytes": 0, "default.key.serde": auto, "default.value.serde": auto}
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.input_topic("try-out", auto, auto)
        for key, value, *timestamp in records:
            topic.pipe(key=key, value=value, timestamp=timestamp[0] if timestamp else 0)
    return seen
