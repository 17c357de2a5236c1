"""Run a case: its statements, inputs and queries, each in a driver, then compare by the rules of ksqlDB's runner."""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from penstock.api.builder import StreamsBuilder
from penstock.errors import PenstockError, SqlError, SqlSyntaxError
from penstock.log.partitioner import partition_for
from penstock.runtime.rows import RawRecord
from penstock.serde.bound_serdes import bound, configured
from penstock.serde.windowed import Windowed
from penstock.sql.analyse import InsertedRow, QueryPlan, located, steps_of
from penstock.sql.analyse.definitions import create_source
from penstock.sql.catalog import Catalog, Source
from penstock.sql.compile import compile_query, source_serdes
from penstock.sql.compile.serdes import step_key_serde
from penstock.sql.evaluate import sql_type
from penstock.sql.formats import format_info
from penstock.sql.formats.json_values import json_writer
from penstock.sql.functions import UserFunctions
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse import parse_script, parse_statement
from penstock.sql.parse.statement_nodes import CreateSource, Query
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
from penstock.sql.queries.answer import source_rows
from penstock.sql.queries.host import MaterializedRow
from penstock.sql.queries.push import emit_intervals
from penstock.sql.testing.cases import CaseRecord, CaseSchemas, SqlCase, TestTopic
from penstock.testing import TopologyTestDriver

__all__ = ["DRIVER_SETTINGS", "CaseOutcome", "LiveQueries", "run_case", "run_rest_case"]

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


# Comparison


def differences(expected: Any, actual: Any, path: str = "value") -> Iterator[str]:
    """Yield the differences of a value from what is expected, as sentences.

    >>> list(differences({"a": 1}, {"A": 2}))
    ['value.a is 2, not 1']
    """
    if isinstance(expected, dict):
        yield from _of_objects(expected, actual, path)
    elif isinstance(expected, list):
        if not isinstance(actual, list | tuple):
            yield f"{path} is {actual!r}, not a list"
        elif len(actual) != len(expected):
            yield f"{path} has {len(actual)} items, not {len(expected)}: {actual!r}"
        else:
            for index, (one, two) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(one, two, f"{path}[{index}]")
    elif not _equal(expected, actual):
        yield f"{path} is {_shown(actual)}, not {_shown(expected)}"


def _of_objects(expected: Mapping[str, Any], actual: Any, path: str) -> Iterator[str]:
    if not isinstance(actual, dict):
        yield f"{path} is {actual!r}, not an object"
        return
    if len(expected) != len(actual):
        yield f"{path} has the fields {sorted(map(str, actual))}, not {sorted(expected)}"
        return
    texts = {str(key): value for key, value in actual.items()}
    for name, value in expected.items():
        actual_value = texts.get(name, texts.get(name.upper()))
        yield from differences(value, actual_value, f"{path}.{name}")


def _equal(expected: Any, actual: Any) -> bool:
    if expected is None or actual is None:
        return expected is None and actual is None
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, str):
        return _equal_text(expected, actual)
    if isinstance(actual, int):
        return int(expected) == actual
    if isinstance(actual, float):
        return actual == float(expected) or abs(float(expected) - actual) < 1e-6
    if isinstance(actual, Decimal):
        if isinstance(expected, int):
            return _scale(actual) <= 0 and actual == expected
        return actual == expected and _scale(actual) == _scale(expected)
    return bool(expected == actual)


def _equal_text(expected: str, actual: Any) -> bool:
    if isinstance(actual, bytes | bytearray):
        return base64.b64encode(actual).decode() == expected
    if isinstance(actual, Decimal):
        try:
            number = Decimal(expected)
        except ArithmeticError:
            return False
        return number == actual and _scale(number) == _scale(actual)
    return bool(expected == actual)


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


# Cases

Result = Literal["passed", "failed"]

# Terms of the field by which two messages of one cause are recognised, whatever their sentences.
# fmt: off
TERMS = (
    "aggregat", "alias", "ambiguous", "arithmetic", "array", "cast", "column", "compar", "delimiter", "duplicate",
    "element", "format", "function", "group", "header", "insert", "join", "key", "map", "name", "null",
    "parameter", "partition", "primary", "projection", "read-only", "registry", "reserved", "schema", "select",
    "session", "signature", "source", "stream", "table", "timestamp", "topic", "type", "value", "window",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """The end of a case.

    Attributes:
        reason: Why it failed, or how it was refused.
        crashed: Whether an error was raised that is none of the language.
        same_cause: Of a refused case, whether the message names what the expected one names.
    """

    case: SqlCase
    passed: bool
    reason: str = ""
    crashed: bool = False
    same_cause: bool = True


@dataclass(slots=True)
class CaseRun:
    """The state of a case while it runs."""

    case: SqlCase
    schemas: CaseSchemas
    catalog: Catalog = field(default_factory=Catalog)
    topics: dict[str, TestTopic] = field(default_factory=dict)
    inserts: list[InsertedRow] = field(default_factory=list)
    produced: set[str] = field(default_factory=set)
    clock: int = 0

    @property
    def script(self) -> str:
        """The statements that make sources and queries."""
        return self.case.script

    def statements(self) -> None:
        """Apply the statements."""
        entry = self.case.entry
        self.catalog.settings.update({key: str(value) for key, value in entry.get("properties", {}).items()})
        self.schemas.register(entry.get("topics", ()), self._declared())
        self.catalog.infer = self.schemas.infer
        for topic in entry.get("topics", ()):
            self.catalog.topics[topic["name"]] = int(topic.get("partitions") or 1)
        for applied in steps_of(self.script, self.catalog):
            source = applied.source
            if source is not None and source.topic not in self.catalog.topics:
                self.catalog.topics[source.topic] = source.partitions or 4
            if applied.row is not None:
                self._insert(applied.row)

    def _declared(self) -> Iterator[Source]:
        """Yield the sources whose columns the statements say, as far as that can be known before any is run."""
        try:
            parsed = parse_script(self.script)
        except SqlError:
            return  # refused again when the statements run
        for each in parsed:
            if isinstance(each.statement, CreateSource) and each.statement.columns:
                with suppress(SqlError):
                    source = create_source(each.statement, self.catalog, each.text)
                    if source is not None:
                        yield source

    def topic(self, name: str) -> TestTopic:
        """Return a topic with the formats of the first source over it."""
        if name not in self.topics:
            source = next((s for s in self.catalog.sources.values() if s.topic == name), None)
            self.topics[name] = TestTopic.of(name, source, self.schemas)
            exact = self.catalog.flag("use.exact.numeric.comparison", otherwise=True)
            self.topics[name].exact = exact
        return self.topics[name]

    def _insert(self, row: InsertedRow) -> None:
        key, value = (configured(serde, self.schemas.settings) for serde in source_serdes(row.source))
        key, value = (bound(serde, row.source.topic, part) for serde, part in ((key, "key"), (value, "value")))
        stamp = INSERTED_AT if row.timestamp is None else row.timestamp
        record = CaseRecord(key.serialize(row.key), value.serialize(row.value), stamp)
        self.topic(row.source.topic).records.append(record)

    def inputs(self) -> list[tuple[str, CaseRecord]]:
        """Write the inputs."""
        records = self.case.entry.get("inputs", ())
        return [(record["topic"], self.topic(record["topic"]).add(record)) for record in records]

    def query(self, plan: QueryPlan, inputs: Iterable[tuple[str, CaseRecord]]) -> None:
        """Run one query over its sources."""
        with self.driver(plan) as driver:
            self.feed(driver, plan, inputs)

    def driver(self, plan: QueryPlan) -> TopologyTestDriver:
        """Return the driver of one query."""
        builder = StreamsBuilder()
        compile_query(plan, builder)
        settings = {**DRIVER_SETTINGS, **self.schemas.settings, **self._settings(plan)}
        return TopologyTestDriver(builder.build(), settings)

    def records_of(
        self, topics: Iterable[str], inputs: Iterable[tuple[str, CaseRecord]]
    ) -> list[tuple[str, CaseRecord]]:
        """Return the records that a query of these topics reads.

        Inputs in their order, and what is in the other topics.
        """
        topics = list(dict.fromkeys(topics))
        read_records = [(topic, record) for topic, record in inputs if topic in topics]
        piped = {topic for topic, _ in read_records}
        for topic in topics:
            if topic not in piped:
                read_records += [(topic, record) for record in self.topic(topic).records]
        return read_records

    def feed(self, driver: TopologyTestDriver, plan: QueryPlan, inputs: Iterable[tuple[str, CaseRecord]]) -> None:
        """Write the records of a query's sources to its driver, and its results to its topic."""
        sources = [self.catalog.sources[name].topic for name in plan.reads if name in self.catalog.sources]
        sink = self.topic(plan.target.topic)
        for topic, record in self.records_of(sources, inputs):
            driver.pipe_raw(topic, record.key, record.value, record.timestamp, record.headers)
            while (written := driver.read_raw(plan.target.topic)) is not None:
                headers = tuple(written.headers or ())
                sink.records.append(CaseRecord(written.key, written.value, written.timestamp, headers))
        self.produced |= {f"query_{plan.id}-{name}" for name in driver.produced_topic_names()} | {sink.name}

    @staticmethod
    def _settings(plan: QueryPlan) -> dict[str, Any]:
        return emit_intervals(plan.settings)

    def differences(self) -> list[str]:
        """Run the case, and compare."""
        self.statements()
        if not self.catalog.queries and self.case.refused is None:
            return ["the statements start no query"]
        inputs = self.inputs()
        for plan in list(self.catalog.queries.values()):
            self.query(plan, inputs)
        return self.check()

    def check(self) -> list[str]:
        """Return the differences from what the case expects."""
        entry = self.case.entry
        problems: list[str] = []
        expected_outputs: dict[str, list[Mapping[str, Any]]] = {}
        for record in entry.get("outputs", ()):
            expected_outputs.setdefault(record["topic"], []).append(record)
        timed = bool(entry.get("inputs"))
        for name, records in expected_outputs.items():
            problems += self._check_topic(self.topic(name), records, timed=timed)
        return problems + list(post_differences(entry.get("post", {}), self.catalog, self.produced))

    def _check_topic(self, topic: TestTopic, expected_records: list[Mapping[str, Any]], *, timed: bool) -> list[str]:
        shown = [self._shown(topic, record) for record in topic.records]
        if len(shown) != len(expected_records):
            records = "; ".join(map(str, shown))[:600]
            return [f"{topic.name} has {len(shown)} records, not {len(expected_records)}: {records}"]
        for number, (record, expected) in enumerate(zip(shown, expected_records, strict=True)):
            problems = list(self._check_record(record, expected, timed=timed))
            if problems:
                return [f"{topic.name}, record {number}: {'; '.join(problems)}"]
        return []

    @staticmethod
    def _shown(topic: TestTopic, record: CaseRecord) -> dict[str, Any]:
        key, window = topic.key_of(record)
        value = topic.value_of(record)
        return {"key": key, "value": value, "timestamp": record.timestamp, "window": window, "headers": record.headers}

    @staticmethod
    def _check_record(record: Mapping[str, Any], expected: Mapping[str, Any], *, timed: bool) -> Iterable[str]:
        yield from differences(expected.get("key"), record["key"], "key")
        yield from differences(expected.get("value"), record["value"])
        stamp = expected.get("timestamp")
        if stamp is not None and (timed or int(stamp) != 0) and int(stamp) != record["timestamp"]:
            yield f"timestamp is {record['timestamp']}, not {stamp}"
        window = expected.get("window")
        if window is not None:
            actual_window = record["window"]
            if actual_window is None or (actual_window.start, actual_window.end) != (
                int(window["start"]),
                int(window["end"]),
            ):
                yield f"window is {actual_window}, not {window}"
        elif record["window"] is not None:
            yield f"window is {record['window']}, not none"
        headers = [{"KEY": key, "VALUE": value} for key, value in record["headers"]]
        yield from differences(expected.get("headers") or [], headers, "headers")


def run_case(case: SqlCase, functions: UserFunctions | None = None) -> CaseOutcome:
    """Run a case and compare; its statements may call functions that users have written."""
    with CaseSchemas() as schemas:
        return run(case, CaseRun(case, schemas, Catalog(functions=functions or UserFunctions())))


def run(case: SqlCase, started: CaseRun) -> CaseOutcome:
    """Take a case from its statements to its outcome."""
    try:
        problems = started.differences()
    except PenstockError as error:
        return _refused(case, error)
    except Exception as error:  # noqa: BLE001 - a case that breaks the engine must not end the others
        return CaseOutcome(case, passed=False, reason=f"{type(error).__name__}: {error}", crashed=True)
    if case.refused is not None:
        return CaseOutcome(case, passed=False, reason=f"not refused: {case.refused.get('message', '')}"[:300])
    return CaseOutcome(case, passed=not problems, reason="; ".join(problems)[:900])


def _refused(case: SqlCase, error: PenstockError) -> CaseOutcome:
    message = str(error)
    if case.refused is None:
        return CaseOutcome(case, passed=False, reason=f"refused: {message}")
    at_run = "StreamsException" in str(case.refused.get("type"))
    if not isinstance(error, SqlError) and not at_run:
        return CaseOutcome(case, passed=False, reason=f"{type(error).__name__}: {message}", crashed=True)
    same = at_run or same_cause(str(case.refused.get("message") or ""), message)
    return CaseOutcome(case, passed=True, reason=message, same_cause=same)


def same_cause(expected: str, message: str) -> bool:
    """Return whether a message names the cause that another names: half of its names and of its terms of the field.

    >>> same_cause("no column 'BOB' for SELECT", "line 1:8: SELECT names the column 'BOB', which no source has")
    True
    >>> same_cause("the join lacks a window", "line 1:8: the column 'ANN' is reserved")
    False
    """
    line = expected.split("\n", maxsplit=1)[0]
    first = line if len(line) > 20 else expected
    names = set(re.findall(r"['`]([^'`]{1,60})['`]", first)) | set(re.findall(r"\b[A-Z][A-Z0-9_]{2,}\b", first))
    text = message.lower()
    terms = [term for term in TERMS if term in first.lower()]
    return all(sum(word.lower() in text for word in words) * 2 >= len(words) for words in (list(names), terms))


def post_differences(post: Mapping[str, Any], catalog: Catalog, produced: set[str]) -> Iterator[str]:
    """Yield the differences of a catalog and of the topics that were written from the post conditions."""
    for expected in post.get("sources", ()):
        source = catalog.sources.get(expected["name"]) or catalog.sources.get(expected["name"].upper())
        if source is None:
            yield f"there is no source {expected['name']}"
            continue
        yield from _source(expected, source, catalog)
    topics = post.get("topics", {})
    pattern = topics.get("blacklist")
    if pattern is not None:
        hit = sorted(name for name in produced if re.fullmatch(pattern, name))
        if hit:
            yield f"topics {hit} were written"


def _source(expected: Mapping[str, Any], source: Source, catalog: Catalog) -> Iterator[str]:
    name = source.name
    if expected["type"].upper() != source.kind:
        yield f"{name} is a {source.kind}"
    if "isSource" in expected and bool(expected["isSource"]) != source.read_only:
        yield f"{name}: read only is {source.read_only}"
    if "schema" in expected:
        yield from _schema(str(expected["schema"]), source, catalog)
    key = expected.get("keyFormat")
    if key is not None:
        if "format" in key and key["format"].upper() != source.key_format.name:
            yield f"{name} has the key format {source.key_format.name}, not {key['format']}"
        kind = source.window.kind if source.window else None
        if key.get("windowType") != kind:
            yield f"{name} has windows {kind}, not {key.get('windowType')}"
        size = key.get("windowSize")
        if size is not None and (source.window is None or source.window.size_ms != int(size)):
            yield f"{name} has windows {source.window}, not of {size} ms"
    value = expected.get("valueFormat")
    value = value.get("format") if isinstance(value, Mapping) else value
    if value is not None and value.upper() != source.value_format.name:
        yield f"{name} has the value format {source.value_format.name}, not {value}"
    features = expected.get("valueFeatures")
    if features is not None and set(features) != _features(source):
        yield f"{name} has the value features {_features(source)}, not {features}"


def _features(source: Source) -> set[str]:
    wrap = source.value_format.wrap
    if wrap is None or not format_info(source.value_format.name).wraps:
        return set() if wrap is None else {"WRAP_SINGLES" if wrap else "UNWRAP_SINGLES"}
    return {"WRAP_SINGLES" if wrap else "UNWRAP_SINGLES"}


def _schema(text: str, source: Source, catalog: Catalog) -> Iterator[str]:
    columns = re.sub(r"\bPRIMARY\s+KEY\b", "KEY", text)
    statement = parse_statement(f"CREATE STREAM X ({columns}) WITH (kafka_topic='x')") if columns.strip() else None
    definitions = statement.columns if isinstance(statement, CreateSource) else ()
    split: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for column in definitions:
        split[column.role == "KEY"].append((column.name, str(sql_type(column.type, catalog.types))))
    for is_key, part in ((True, "key"), (False, "value")):
        actual_columns = [(c.name, str(c.type)) for c in source.columns if c.is_key == is_key]
        if actual_columns != split[is_key]:
            yield f"{source.name} has the {part} columns {actual_columns}, not {split[is_key]}"


# Cases with requests

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
            shown = list(_shown_rows(self._results(plan, inputs)))
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


def _shown_rows(results: Results) -> Iterator[Mapping[str, Any]]:
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
