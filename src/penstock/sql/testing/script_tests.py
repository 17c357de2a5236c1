"""Tests written as statements: rows by INSERT, what must come of them by ASSERT.

``--@test: NAME`` begins a test; a file without it is one test. ``--@expected.error`` and ``--@expected.message`` below
it say that a statement must be refused. ASSERT VALUES and ASSERT NULL VALUES take the next record of a topic that none
of them has taken yet; ASSERT STREAM and ASSERT TABLE compare with the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.errors import PenstockError, SqlError, SqlSyntaxError
from penstock.serde.bound_serdes import bound, configured
from penstock.serde.windowed import Windowed
from penstock.sql.analyse import apply
from penstock.sql.analyse.definitions import create_source
from penstock.sql.analyse.expressions import Library
from penstock.sql.analyse.statement_errors import located, refusal
from penstock.sql.analyse.statements import constant_of, library_of
from penstock.sql.catalog import BOUNDS, PSEUDO, Catalog, Source
from penstock.sql.compile import source_serdes
from penstock.sql.evaluate import sql_type
from penstock.sql.functions import UserFunctions
from penstock.sql.parse import Parsed, parse_script, parse_statement
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.testing.cases import CaseRecord, CaseSchemas
from penstock.sql.testing.engine import LiveQueries
from penstock.sql.types import SqlType
from penstock.sql.types.texts import text_function

__all__ = ["ScriptOutcome", "ScriptTest", "load_script_tests", "run_script_test"]


@dataclass(slots=True)
class Assertions:
    """The checks of one test; they remember which records have been taken."""

    queries: LiveQueries
    _taken: dict[str, int] = field(default_factory=dict)

    def rule(self, statement: Any) -> Callable[[Any], None] | None:
        """Return the check of a statement; None if it is not an ASSERT."""
        match statement:
            case s.AssertValues():
                return self.values
            case s.AssertTombstone():
                return self.tombstone
            case s.AssertSource():
                return self.source
            case s.AssertTopic():
                return self.topic
            case s.AssertSchema():
                return self.schema
        return None

    @property
    def catalog(self) -> Catalog:
        """The catalog of the test."""
        return self.queries.catalog

    def values(self, statement: s.AssertValues) -> None:
        """Compare the next record with the values of some of its columns.

        Raises:
            SqlError: There is none, or a value differs.
        """
        source = self._known(statement.name, statement.at)
        expected = self._wanted(source, statement)
        row = self._row(source, self._next(source, statement.at), statement.at)
        if row is None:
            raise _failed(statement.at, f"The next record of {source.name} is a tombstone, not a row.")
        self._compare(source, expected, row, statement.at)

    def tombstone(self, statement: s.AssertTombstone) -> None:
        """Compare the next record with a tombstone of a key.

        Raises:
            SqlError: There is none, or it is another.
        """
        source = self._known(statement.name, statement.at)
        expected = self._wanted(source, statement)
        record = self._next(source, statement.at)
        if record.value is not None:
            row = self._row(source, record, statement.at) or {}
            raise _failed(
                statement.at, f"The next record of {source.name} is not a tombstone, but {_texts(source, row)}."
            )
        self._compare(source, expected, self._key(source, record), statement.at)

    def source(self, statement: s.AssertSource) -> None:
        """Compare a stream or table with its columns and properties.

        Raises:
            SqlError: It does not exist, or differs.
        """
        source = self._known(statement.name, statement.at)
        if source.kind != statement.kind:
            raise _failed(statement.at, f"{source.name} is a {source.kind}, not a {statement.kind}.")
        if statement.columns:
            expected = [
                (each.name, str(sql_type(each.type, self.catalog.types)), each.role) for each in statement.columns
            ]
            actual = [(each.name, str(each.type), each.role) for each in source.columns]
            if expected != actual:
                raise _failed(statement.at, f"{source.name} has the columns {source.schema()}.")
        if statement.properties:
            self._properties(statement, source)

    def _properties(self, statement: s.AssertSource, source: Source) -> None:
        """Compare properties with those of a source that is made with them."""
        columns = statement.columns or _columns_of(source)
        names = {item.name.upper() for item in statement.properties}
        definition = s.CreateSource(statement.kind, source.name, columns, statement.properties, at=statement.at)
        aside = self.catalog.copy()
        aside.sources.pop(source.name, None)
        if not names & {"KAFKA_TOPIC"}:
            raise refusal(statement.at, "ASSERT with properties needs KAFKA_TOPIC among them.")
        expected_source = create_source(definition, aside, "")
        if expected_source is None:
            return
        pairs = {
            "KAFKA_TOPIC": (source.topic, expected_source.topic),
            "VALUE_FORMAT": (source.value_format.name, expected_source.value_format.name),
            "KEY_FORMAT": (source.key_format.name, expected_source.key_format.name),
            "FORMAT": (source.value_format.name, expected_source.value_format.name),
            "TIMESTAMP": (source.timestamp, expected_source.timestamp),
            "WINDOW_TYPE": (source.window, expected_source.window),
            "PARTITIONS": (self.catalog.topics.get(source.topic), expected_source.partitions),
        }
        for name in sorted(names & set(pairs)):
            actual, expected = pairs[name]
            if actual != expected:
                raise _failed(statement.at, f"{source.name} has {name} {actual}, not {expected}.")

    def topic(self, statement: s.AssertTopic) -> None:
        """Check that a topic exists, or does not."""
        there = statement.topic in self.catalog.topics or statement.topic in self.queries.topics
        if there != statement.exists:
            raise _failed(statement.at, f"Topic {statement.topic} {'exists' if there else 'does not exist'}.")

    def schema(self, statement: s.AssertSchema) -> None:
        """Refuse: the registry of a test has what its statements made."""
        raise refusal(statement.at, "ASSERT SCHEMA is not part of tests.")

    def _known(self, name: str, at: TextPosition) -> Source:
        source = self.catalog.sources.get(name)
        if source is None:
            raise _failed(at, f"{name} does not exist.", did_you_mean(name, self.catalog.sources))
        return source

    def _next(self, source: Source, at: TextPosition) -> CaseRecord:
        records = self.queries.topics.get(source.topic, [])
        position = self._taken.get(source.topic, 0)
        if position >= len(records):
            raise _failed(at, f"{source.name} has no further record: {position} were taken of {len(records)}.")
        self._taken[source.topic] = position + 1
        return records[position]

    def _wanted(self, source: Source, statement: s.AssertValues | s.AssertTombstone) -> dict[str, Any]:
        kinds = _kinds(source)
        names = statement.columns or tuple(column.name for column in source.columns)
        if isinstance(statement, s.AssertTombstone) and not statement.columns:
            names = tuple(column.name for column in source.keys)
        if len(names) != len(statement.values):
            raise refusal(statement.at, f"There are {len(names)} columns and {len(statement.values)} values.")
        library: Library = library_of(self.catalog)
        values = {}
        for name, node in zip(names, statement.values, strict=True):
            if name not in kinds:
                raise refusal(node.at, f"{source.name} has no column {name}.", f"Columns are {', '.join(kinds)}.")
            values[name] = constant_of(node, kinds[name], name, library.scalars)
        return values

    def _serdes(self, source: Source) -> Sequence[Any]:
        return [
            bound(configured(serde, self.queries.schemas.settings), source.topic, part)
            for serde, part in zip(source_serdes(source), ("key", "value"), strict=True)
        ]

    def _key(self, source: Source, record: CaseRecord) -> dict[str, Any]:
        key = self._serdes(source)[0].deserialize(record.key)
        row: dict[str, Any] = {"ROWTIME": record.timestamp}
        if isinstance(key, Windowed):
            row |= {"WINDOWSTART": key.window.start, "WINDOWEND": key.window.end}
            key = key.key
        return row | dict(zip((column.name for column in source.keys), key or (), strict=False))

    def _row(self, source: Source, record: CaseRecord, at: TextPosition) -> dict[str, Any] | None:
        try:
            value = self._serdes(source)[1].deserialize(record.value)
        except SqlError:
            raise
        except Exception as error:
            raise _failed(at, f"The next record of {source.name} cannot be read: {error}") from error
        if value is None:
            return None
        return self._key(source, record) | dict(zip((column.name for column in source.values), value, strict=True))

    @staticmethod
    def _compare(source: Source, expected_values: dict[str, Any], row: dict[str, Any], at: TextPosition) -> None:
        different = [name for name, value in expected_values.items() if not _same(value, row.get(name))]
        if different:
            expected = _texts(source, {name: expected_values[name] for name in different})
            actual = _texts(source, {name: row.get(name) for name in different})
            raise _failed(at, f"The next record of {source.name} has {actual}, not {expected}.")


def _kinds(source: Source) -> dict[str, SqlType]:
    kinds = {column.name: column.type for column in source.columns} | PSEUDO
    return kinds | BOUNDS if source.window is not None else kinds


def _columns_of(source: Source) -> tuple[s.ColumnDefinition, ...]:
    statement = parse_statement(f"CREATE {source.kind} X ({source.schema()}) WITH (KAFKA_TOPIC='x')")
    return statement.columns if isinstance(statement, s.CreateSource) else ()


def _same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, float):
        return expected == actual or abs(expected - actual) < 1e-9 * max(abs(expected), 1.0)
    if isinstance(expected, Decimal) and isinstance(actual, Decimal):
        return expected == actual
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_same, expected, actual))
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(_same(value, actual[key]) for key, value in expected.items())
    return bool(expected == actual)


def _texts(source: Source, row: dict[str, Any]) -> str:
    kinds = _kinds(source)
    shown = []
    for name, value in row.items():
        if name in kinds:
            text = "NULL" if value is None else text_function(kinds[name])(value)
            shown.append(f"{name} = {text}")
    return ", ".join(shown) or "nothing"


def _failed(at: TextPosition, reason: str, hint: str = "") -> SqlError:
    error = refusal(at, reason, hint)
    error.facts["asserted"] = True
    return error


MARK = re.compile(r"^[ \t]*--[ \t]*@(test|expected\.error|expected\.message):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
MAX_SCRIPTS = 16  # levels of RUN SCRIPT


@dataclass(frozen=True, slots=True)
class ScriptTest:
    """One test.

    Attributes:
        text: The file up to its end; blank before it, so that lines count from the file's beginning.
        refused: Whether a statement of it must be refused.
        message: What the message must have in it.
    """

    file: Path
    name: str
    text: str
    refused: bool = False
    message: str = ""


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """The end of a test, with the reason of a failure."""

    test: ScriptTest
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether all held."""
        return not self.reason


def load_script_tests(path: Path) -> Iterator[ScriptTest]:
    """Yield the tests of a file.

    Raises:
        SqlError: The file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SqlError(f"{path} cannot be read: {error}") from error
    marks = [mark for mark in MARK.finditer(text) if mark[1] == "test"]
    if not marks:
        yield _test(path, path.stem, text, 0, len(text))
    for number, mark in enumerate(marks):
        begin = 0 if number == 0 else mark.start()
        end = marks[number + 1].start() if number + 1 < len(marks) else len(text)
        yield _test(path, mark[2] or f"{path.stem} {number + 1}", text, begin, end)


def _test(path: Path, name: str, text: str, begin: int, end: int) -> ScriptTest:
    said = {mark[1]: mark[2] for mark in MARK.finditer(text, begin, end)}
    blank = re.sub(r"[^\n]", " ", text[:begin])
    refused = any(word.startswith("expected") for word in said)
    return ScriptTest(path, name, blank + text[begin:end], refused, said.get("expected.message", ""))


def run_script_test(test: ScriptTest, functions: UserFunctions | None = None) -> ScriptOutcome:
    """Run a test with a catalog of its own."""
    with CaseSchemas() as schemas:
        catalog = Catalog(functions=functions or UserFunctions(), infer=schemas.infer)
        queries = LiveQueries(catalog, schemas)
        try:
            _Run(queries, Assertions(queries)).script(test.text, test.file)
        except PenstockError as error:
            return _refused(test, error)
        finally:
            queries.close()
    return ScriptOutcome(test, "no statement was refused" if test.refused else "")


def _refused(test: ScriptTest, error: PenstockError) -> ScriptOutcome:
    text = error.message + (f"\n  {error.hint}" if error.hint else "")
    if not test.refused or getattr(error, "asserted", False):
        return ScriptOutcome(test, text)
    if test.message and test.message not in error.message:
        return ScriptOutcome(test, f"the message does not have {test.message!r}:\n{text}")
    return ScriptOutcome(test)


@dataclass(slots=True)
class _Run:
    queries: LiveQueries
    assertions: Assertions
    open_files: list[Path] = field(default_factory=list)

    def script(self, text: str, file: Path) -> None:
        """Run the statements of a file."""
        catalog = self.queries.catalog
        self.open_files.append(file.resolve())
        for parsed in parse_script(text, catalog.variables, tests=True):
            try:
                self._statement(parsed, file)
            except SqlSyntaxError:
                raise
            except SqlError as error:
                raise located(text, error, parsed.at) from error
        self.open_files.pop()

    def _statement(self, parsed: Parsed, file: Path) -> None:
        statement = parsed.statement
        check: Callable[[Any], None] | None = self.assertions.rule(statement)
        if check is not None:
            check(statement)
        elif isinstance(statement, s.RunScript):
            self._include(statement, file)
        else:
            applied = apply(statement, self.queries.catalog, parsed.text)
            if applied.source is not None:
                topics = self.queries.catalog.topics
                topics.setdefault(applied.source.topic, applied.source.partitions or 4)
            self.queries.follow()
            if applied.row is not None:
                self.queries.insert(applied.row)

    def _include(self, statement: s.RunScript, file: Path) -> None:
        path = (file.parent / statement.path).resolve()
        if path in self.open_files or len(self.open_files) >= MAX_SCRIPTS:
            raise refusal(statement.at, f"RUN SCRIPT of {statement.path} would never end.")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise refusal(statement.at, f"{statement.path} cannot be read: {error}") from error
        self.script(text, path)
