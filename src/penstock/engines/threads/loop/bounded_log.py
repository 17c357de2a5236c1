"""Reading up to given offsets: for runs that end at the records that exist at their start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from penstock.log.base import Fetched, TopicPartition

if TYPE_CHECKING:
    from penstock.engines.threads.loop.stream_thread import ThreadLog
    from penstock.log.thread_clients import Fetcher

__all__ = ["BoundedFetcher", "BoundedLog"]


class BoundedLog:
    """A log whose fetchers stop at given offsets; in all else it is that log.

    Args:
        log: The log.
        bounds: The offsets behind the last records to read; other partitions have no bound.
    """

    def __init__(self, log: ThreadLog, bounds: Mapping[TopicPartition, int]) -> None:
        self._log = log
        self._bounds = bounds

    def fetcher(self, application: str = "") -> Fetcher:
        """Make a fetcher that stops at the bounds."""
        return BoundedFetcher(self._log.fetcher(application), self._bounds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class BoundedFetcher:
    """A fetcher that returns no records from given offsets on, see `penstock.log.thread_clients.Fetcher`.

    Args:
        fetcher: The fetcher that reads.
        bounds: The offsets behind the last records to read.
    """

    def __init__(self, fetcher: Fetcher, bounds: Mapping[TopicPartition, int]) -> None:
        self._fetcher = fetcher
        self._bounds = bounds
        self._done: set[TopicPartition] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self._fetcher.assign(positions)
        self._done = {tp for tp, at in positions.items() if at >= self._bounds.get(tp, at + 1)}
        self._fetcher.pause(self._done)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._fetcher.pause(places)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._fetcher.resume([tp for tp in places if tp not in self._done])

    def poll(self, timeout_s: float) -> dict[TopicPartition, Fetched]:
        bounded: dict[TopicPartition, Fetched] = {}
        for tp, fetched in self._fetcher.poll(timeout_s).items():
            bound = self._bounds.get(tp)
            if tp in self._done:
                continue
            bounded[tp] = fetched
            if bound is not None and fetched.next_offset >= bound:
                bounded[tp] = Fetched(_before(fetched, bound), bound)
                self._done.add(tp)
                self._fetcher.pause([tp])
        return bounded

    def wake(self) -> None:
        self._fetcher.wake()

    def ends(self) -> Mapping[TopicPartition, int]:
        bounded_ends = {tp: min(end, self._bounds.get(tp, end)) for tp, end in self._fetcher.ends().items()}
        # Those that are done may never have been fetched, and the task would wait to learn of their lag.
        return {**bounded_ends, **{tp: self._bounds[tp] for tp in self._done}}

    def close(self) -> None:
        self._fetcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _before(fetched: Fetched, bound: int) -> Any:
    offsets = fetched.records.column("offset").to_numpy()
    return fetched.records.slice(0, int(offsets.searchsorted(bound)))
