"""The protocols of a test driver that its topics and its queries use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.runtime.rows import RawRecord
    from penstock.topology.topology import Topology

__all__ = ["RecordPort", "StatePort"]


class RecordPort(Protocol):
    """The input and output of records, as bytes."""

    @property
    def wall_clock_ms(self) -> int: ...

    def pipe_raw(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Any = (),
        partition: int | None = None,
    ) -> None: ...

    def read_raw(self, topic: str, partition: int | None = None) -> RawRecord | None: ...

    def peek_raw(self, topic: str) -> tuple[RawRecord, ...]: ...

    def queue_size(self, topic: str) -> int: ...

    def partition_count(self, topic: str) -> int: ...

    def produced_topic_names(self) -> set[str]: ...


class StatePort(Protocol):
    """The stores, and the offsets of the last records that wrote to them."""

    topology: Topology

    def get_state_store(self, name: str, partition: int | None = None) -> Any: ...

    def committed_store(self, name: str, partition: int | None = None) -> Any: ...

    def partitions_of(self, store: str) -> int: ...

    def position_of(self, store: str) -> dict[str, dict[int, int]]: ...
