"""Tests written as statements: rows by INSERT, what must come of them by ASSERT.

``--@test: NAME`` begins a test; a file without it is one test. ``--@expected.error`` and ``--@expected.message`` below
it say that a statement must be refused. ASSERT VALUES and ASSERT NULL VALUES take the next record of a topic that none
of them has taken yet; ASSERT STREAM and ASSERT TABLE compare with the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, SqlError, SqlSyntaxError
from penstock.sql.analyse import apply
from penstock.sql.analyse.statement_errors import located, refusal
from penstock.sql.catalog import Catalog
from penstock.sql.functions import UserFunctions
from penstock.sql.parse import Parsed, parse_script
from penstock.sql.parse import command_nodes as c
from penstock.sql.testing.assertions import Assertions
from penstock.sql.testing.live import LiveQueries
from penstock.sql.testing.schemas import CaseSchemas

__all__ = ["ScriptOutcome", "ScriptTest", "load_script_tests", "run_script_test"]

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
        elif isinstance(statement, c.RunScript):
            self._include(statement, file)
        else:
            applied = apply(statement, self.queries.catalog, parsed.text)
            if applied.source is not None:
                topics = self.queries.catalog.topics
                topics.setdefault(applied.source.topic, applied.source.partitions or 4)
            self.queries.follow()
            if applied.row is not None:
                self.queries.insert(applied.row)

    def _include(self, statement: c.RunScript, file: Path) -> None:
        path = (file.parent / statement.path).resolve()
        if path in self.open_files or len(self.open_files) >= MAX_SCRIPTS:
            raise refusal(statement.at, f"RUN SCRIPT of {statement.path} would never end.")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise refusal(statement.at, f"{statement.path} cannot be read: {error}") from error
        self.script(text, path)
