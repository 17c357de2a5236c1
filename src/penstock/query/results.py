"""Requests and answers of interactive queries, version 2."""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import StateError
from penstock.query.position import Position, PositionBound
from penstock.query.queries import Query

__all__ = ["FailureReason", "QueryResult", "StateQueryRequest", "StateQueryResult"]


class FailureReason(enum.Enum):
    """Kafka's ``FailureReason``."""

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    NOT_ACTIVE = "NOT_ACTIVE"
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    NOT_PRESENT = "NOT_PRESENT"
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    STORE_EXCEPTION = "STORE_EXCEPTION"


@dataclass(frozen=True, slots=True)
class StateQueryRequest:
    """Kafka's ``StateQueryRequest``.

    >>> from penstock.query import KeyQuery
    >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("linux")).with_partitions([0])
    >>> request.store, request.query.key, request.partitions
    ('counts', 'linux', frozenset({0}))
    """

    store: str
    query: Query | None = None
    partitions: frozenset[int] | None = None
    bound: PositionBound = field(default_factory=PositionBound.unbounded)
    requires_active: bool = False
    has_execution_info: bool = False

    @classmethod
    def in_store(cls, name: str) -> StateQueryRequest:
        """Of which store."""
        return cls(name)

    def with_query(self, query: Query) -> StateQueryRequest:
        """What is asked."""
        return replace(self, query=query)

    def with_partitions(self, partitions: Collection[int]) -> StateQueryRequest:
        """Only these partitions."""
        return replace(self, partitions=frozenset(partitions))

    def with_all_partitions(self) -> StateQueryRequest:
        """All partitions, which is the default."""
        return replace(self, partitions=None)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest:
        """How far the state must have come at least."""
        return replace(self, bound=bound)

    def require_active(self) -> StateQueryRequest:
        """Fails with NOT_ACTIVE unless the application runs in this process."""
        return replace(self, requires_active=True)

    def enable_execution_info(self) -> StateQueryRequest:
        """Tells how each partition was read, and how long it took."""
        return replace(self, has_execution_info=True)


@dataclass(slots=True)
class QueryResult:
    """What one partition answered: a result, or why there is none."""

    result: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str = ""
    position: Position = field(default_factory=Position)
    batch: int = -1
    execution_info: list[str] = field(default_factory=list)

    @classmethod
    def for_result(cls, result: Any) -> QueryResult:
        return cls(result)

    @classmethod
    def for_failure(cls, reason: FailureReason, message: str) -> QueryResult:
        return cls(None, reason, message)

    @property
    def is_success(self) -> bool:
        return self.failure_reason is None

    @property
    def is_failure(self) -> bool:
        return self.failure_reason is not None

    def get(self) -> Any:
        """The result; raises StateError if it failed."""
        if self.failure_reason is not None:
            raise StateError(self.failure_message, hint=f"The reason is {self.failure_reason.value}.")
        return self.result


@dataclass(slots=True)
class StateQueryResult:
    """Kafka's ``StateQueryResult``: partition -> answer, or that of a global store."""

    partition_results: dict[int, QueryResult] = field(default_factory=dict)
    global_result: QueryResult | None = None

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The one that succeeded with something; None if there is none. Raises StateError if there are several."""
        found = [r for r in self.partition_results.values() if r.is_success and r.result is not None]
        if len(found) > 1:
            raise StateError(
                f"{len(found)} partitions gave a result",
                hint="Look into partition_results, or ask for one partition with with_partitions().",
            )
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """That of all partitions together."""
        merged = Position()
        for result in self.partition_results.values():
            merged = merged.merge(result.position)
        return merged if self.global_result is None else merged.merge(self.global_result.position)
