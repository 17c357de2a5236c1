"""Run a case: its statements against a catalog, its inputs through the queries one after the other, then compare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.api.builder import StreamsBuilder
from penstock.errors import PenstockError, SqlError
from penstock.serde.headers import bound, configured
from penstock.sql.analyse import InsertedRow, QueryPlan, steps_of
from penstock.sql.analyse.definitions import create_source
from penstock.sql.catalog import Catalog, Source
from penstock.sql.compile import compile_query, source_serdes
from penstock.sql.evaluate import sql_type
from penstock.sql.formats import format_info
from penstock.sql.functions import UserFunctions
from penstock.sql.parse import parse_script, parse_statement
from penstock.sql.parse.statement_nodes import CreateSource
from penstock.sql.queries.intervals import emit_intervals
from penstock.sql.testing.case_topics import CaseRecord, TestTopic
from penstock.sql.testing.cases import SqlCase
from penstock.sql.testing.live import DRIVER_SETTINGS
from penstock.sql.testing.matching import differences
from penstock.sql.testing.schemas import CaseSchemas
from penstock.testing import TopologyTestDriver

__all__ = ["CaseOutcome", "CaseRun", "post_differences", "run", "run_case"]

Result = Literal["passed", "failed"]
INSERTED_AT = 1_600_000_000_000  # milliseconds: the time of rows of INSERT VALUES

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
