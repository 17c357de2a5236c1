"""Cases of queries that stand by themselves: statements, inputs, then each SELECT with the result that it must have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from penstock.errors import SqlError, SqlSyntaxError
from penstock.runtime.rows import RawRecord
from penstock.serde.partitioner import partition_for
from penstock.serde.windowed import Windowed
from penstock.sql.analyse import QueryPlan, located
from penstock.sql.catalog import Catalog
from penstock.sql.compile.serdes import step_key_serde
from penstock.sql.formats.json_text import json_writer
from penstock.sql.functions import UserFunctions
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse import parse_script
from penstock.sql.parse.query_nodes import Query
from penstock.sql.queries import (
    PushPlan,
    Results,
    SqlStoreAccess,
    TableRows,
    TransientPlan,
    plan_query,
    pulled,
    results_of_records,
)
from penstock.sql.queries.sources import source_rows
from penstock.sql.queries.stores import MaterializedRow
from penstock.sql.testing.case_topics import CaseRecord
from penstock.sql.testing.cases import SqlCase
from penstock.sql.testing.engine import CaseOutcome, CaseRun, run
from penstock.sql.testing.matching import differences
from penstock.sql.testing.schemas import CaseSchemas
from penstock.testing import TopologyTestDriver

__all__ = ["RestRun", "run_rest_case"]

Inputs = Sequence[tuple[str, CaseRecord]]


@dataclass(slots=True)
class RestRun(CaseRun):
    """The state of a case while it runs; the drivers of its persistent queries stay open, as queries read them."""

    drivers: dict[str, TopologyTestDriver] = field(default_factory=dict)

    @property
    def script(self) -> str:
        """The statements before the queries."""
        return "\n".join(text for text in self.case.entry["statements"] if not _is_query(text))

    def differences(self) -> list[str]:
        """Run the case, and compare."""
        self.statements()
        plans = [self._planned(text) for text in self.case.entry["statements"] if _is_query(text)]
        inputs = self.inputs()
        for plan in list(self.catalog.queries.values()):
            driver = self.drivers[plan.id] = self.driver(plan)
            self.feed(driver, plan, inputs)
        responses = self.case.entry.get("responses") or ()
        expected_results = [response["query"] for response in responses if "query" in response]
        problems = []
        for number, (plan, expected) in enumerate(zip(plans, expected_results, strict=False)):
            shown = list(_shown(self._results(plan, inputs)))
            problems += [f"query {number + 1}: {text}" for text in _compared(expected, shown)]
        return problems + self.check()

    def close(self) -> None:
        """End all queries."""
        for driver in self.drivers.values():
            driver.close()

    def _planned(self, text: str) -> TransientPlan:
        parsed = parse_script(text)[0]
        assert isinstance(parsed.statement, Query), "it begins with SELECT"  # noqa: S101
        try:
            return plan_query(parsed.statement, self.catalog, parsed.text)
        except SqlSyntaxError:
            raise
        except SqlError as error:
            raise located(text, error, parsed.at) from error

    def _results(self, plan: TransientPlan, inputs: Inputs) -> Results:
        if isinstance(plan, PushPlan):
            return results_of_records(plan, self._records(plan.topics, inputs), self.schemas.settings)
        errors = EvaluationErrors()
        if plan.writer is None:
            rows = source_rows(plan.source, self._records((plan.source.topic,), inputs), self.schemas.settings)
        else:
            stores = SqlStoreAccess(self.drivers[plan.writer.id].query)
            rows = self._by_partition(
                plan.writer, TableRows(plan.writer, stores, errors=errors).rows(plan.lookup, plan.starts)
            )
        return pulled(plan, rows, "pull", errors)

    def _by_partition(self, writer: QueryPlan, rows: Iterator[MaterializedRow]) -> Iterator[MaterializedRow]:
        """Return the rows of the one driver in the order that an application over all partitions would read them in."""
        serde, count = step_key_serde(writer.root, windowed=False), self.catalog.topics.get(writer.target.topic, 1)

        def partition(row: MaterializedRow) -> int:
            key = serde.serialize(row.key.key if isinstance(row.key, Windowed) else row.key)
            return 0 if key is None else partition_for(key, count)

        return iter(sorted(rows, key=partition))

    def _records(self, topics: Sequence[str], inputs: Inputs) -> Iterator[RawRecord]:
        offsets: dict[tuple[str, int], int] = {}
        for topic, record in self.records_of(topics, inputs):
            key = self.topic(topic).plain_key(record)
            partition = 0 if key is None else partition_for(key, self.catalog.topics.get(topic, 1))
            offset = offsets.get((topic, partition), 0)
            offsets[topic, partition] = offset + 1
            yield RawRecord(topic, offset, record.timestamp, record.key, record.value, record.headers, partition)


def _is_query(text: str) -> bool:
    return text.lstrip().upper().startswith("SELECT ")


def run_rest_case(case: SqlCase, functions: UserFunctions | None = None) -> CaseOutcome:
    """Run a case of queries and compare; its statements may call functions that users have written."""
    with CaseSchemas() as schemas:
        started = RestRun(case, schemas, Catalog(functions=functions or UserFunctions()))
        try:
            return run(case, started)
        finally:
            started.close()


def _shown(results: Results) -> Iterator[Mapping[str, Any]]:
    """Yield a result as its lines in JSON."""
    yield {"header": {"queryId": results.query_id, "schema": results.schema()}}
    writers = [json_writer(column.type) for column in results.columns]
    for row in results.rows:
        text = ",".join(write(value) for write, value in zip(writers, row.values, strict=True))
        shown: dict[str, Any] = {"columns": json.loads(f"[{text}]", parse_float=Decimal)}
        if row.tombstone:
            shown["tombstone"] = True
        yield {"row": shown}
    if results.ended:
        yield {"finalMessage": results.ended}


def _compared(expected: Sequence[Mapping[str, Any]], actual: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the differences of two results; rows may come in any order."""
    for kind in ("header", "row", "finalMessage"):
        expected_lines, actual_lines = ([line[kind] for line in lines if kind in line] for lines in (expected, actual))
        if len(expected_lines) != len(actual_lines):
            yield f"{len(actual_lines)} {kind}s, not {len(expected_lines)}: {actual_lines}, not {expected_lines}"
            continue
        for one in expected_lines:
            problems = [list(_line(one, other)) for other in actual_lines]
            match = next((index for index, problem in enumerate(problems) if not problem), None)
            if match is None:
                yield f"no {kind} {one}: {problems[0] if problems else ''}"
            else:
                del actual_lines[match]


def _line(expected: Any, actual: Any) -> Iterator[str]:
    if not isinstance(expected, Mapping):
        if expected != actual:
            yield f"{actual!r} is not {expected!r}"
        return
    for name, value in expected.items():
        plain, _, how = name.partition("|")
        actual_value = actual.get(plain)
        if how == "starts_with":
            if not str(actual_value).startswith(value):
                yield f"{plain} is {actual_value!r}, which does not begin with {value!r}"
        else:
            yield from differences(value, actual_value, plain)
    if bool(actual.get("tombstone")) != bool(expected.get("tombstone")):
        yield "one of them is a tombstone"
