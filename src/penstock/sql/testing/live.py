"""Queries that run while statements are applied: each in a test driver of its own, rows passed on at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from penstock.api.builder import StreamsBuilder
from penstock.errors import SqlError
from penstock.serde.headers import bound, configured
from penstock.sql.analyse import InsertedRow, QueryPlan
from penstock.sql.catalog import Catalog, Source
from penstock.sql.compile import compile_query, source_serdes
from penstock.sql.queries.push import emit_intervals
from penstock.sql.testing.case_topics import CaseRecord, CaseSchemas
from penstock.testing import TopologyTestDriver

__all__ = ["DRIVER_SETTINGS", "LiveQueries"]

DRIVER_SETTINGS = {"statestore.cache.max.bytes": 0, "deserialization.exception.handler": "continue"}
INSERTED_AT = 1_600_000_000_000  # milliseconds: the time of the first row that says none; each further one is later
MAX_PASSED = 10_000  # records that follow from one: queries that feed each other would never end


@dataclass(slots=True)
class LiveQueries:
    """Topics with their records, and the queries between them. Close it, or use it in ``with``.

    Attributes:
        topics: The records of each topic in their order.
    """

    catalog: Catalog
    schemas: CaseSchemas
    topics: dict[str, list[CaseRecord]] = field(default_factory=dict)
    _running: dict[str, tuple[QueryPlan, TopologyTestDriver]] = field(default_factory=dict)
    _inserted: int = 0

    def close(self) -> None:
        """End all queries."""
        for _, driver in self._running.values():
            driver.close()
        self._running.clear()

    def follow(self) -> None:
        """Start the queries that the catalog has now, and end those that it no longer has.

        A query reads its topics from the beginning, unless ``auto.offset.reset`` is ``latest``.
        """
        for query_id, (plan, driver) in list(self._running.items()):
            if self.catalog.queries.get(query_id) is not plan:
                driver.close()
                del self._running[query_id]
        for query_id, plan in self.catalog.queries.items():
            if query_id not in self._running:
                self._start(query_id, plan)

    def _start(self, query_id: str, plan: QueryPlan) -> None:
        builder = StreamsBuilder()
        compile_query(plan, builder)
        query_settings = {name.removeprefix("ksql.streams."): value for name, value in plan.settings}
        settings = {**DRIVER_SETTINGS, **self.schemas.settings, **emit_intervals(plan.settings)}
        driver = TopologyTestDriver(builder.build(), settings)
        self._running[query_id] = (plan, driver)
        if query_settings.get("auto.offset.reset", "earliest") == "latest":
            return
        topics = dict.fromkeys(self._topics_of(plan))
        before = [(record, name) for name in topics for record in self.topics.get(name, ())]
        tables = {self.catalog.sources[name].topic for name in plan.reads if self._source(name).is_table}
        for record, name in sorted(before, key=lambda pair: (pair[1] not in tables, pair[0].timestamp)):
            self._passed(self._fed(query_id, name, record))

    def _source(self, name: str) -> Source:
        return self.catalog.sources[name]

    def _topics_of(self, plan: QueryPlan) -> list[str]:
        return [self.catalog.sources[name].topic for name in plan.reads if name in self.catalog.sources]

    def insert(self, row: InsertedRow) -> None:
        """Write a row of INSERT VALUES, and all that follows from it."""
        source = row.source
        key, value = (
            bound(configured(serde, self.schemas.settings), source.topic, part)
            for serde, part in zip(source_serdes(source), ("key", "value"), strict=True)
        )
        stamp = row.timestamp
        if stamp is None:
            stamp = INSERTED_AT + self._inserted
            self._inserted += 1
        self._passed([(source.topic, CaseRecord(key.serialize(row.key), value.serialize(row.value), stamp))])

    def _passed(self, records: list[tuple[str, CaseRecord]]) -> None:
        waiting, passed = deque(records), 0
        while waiting:
            topic, record = waiting.popleft()
            self.topics.setdefault(topic, []).append(record)
            passed += 1
            if passed > MAX_PASSED:
                raise SqlError(
                    f"More than {MAX_PASSED} records follow from one row.", hint="Do queries write what they read?"
                )
            for query_id, (plan, _) in self._running.items():
                if topic in self._topics_of(plan):
                    waiting += self._fed(query_id, topic, record)

    def _fed(self, query_id: str, topic: str, record: CaseRecord) -> list[tuple[str, CaseRecord]]:
        plan, driver = self._running[query_id]
        driver.pipe_raw(topic, record.key, record.value, record.timestamp, record.headers)
        outputs: list[tuple[str, CaseRecord]] = []
        while (written := driver.read_raw(plan.target.topic)) is not None:
            headers: Any = tuple(written.headers or ())
            outputs.append((plan.target.topic, CaseRecord(written.key, written.value, written.timestamp, headers)))
        return outputs
