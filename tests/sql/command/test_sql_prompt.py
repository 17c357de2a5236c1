"""The prompt: input over several lines, completion, colours, errors, tables that fit."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from pygments import token
from rich.console import Console

from penstock.cli.sql.prompt import Prompt, SqlCompleter, SqlLexer
from penstock.cli.sql.render import ResultRenderer
from penstock.sql.results import Rows
from penstock.sql.session import SqlSession

CLICKS = "CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=2);"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait") as made:
        made.execute(CLICKS)
        yield made


def typed(session: SqlSession, keys: str) -> None:
    with create_pipe_input() as given, create_app_session(input=given, output=DummyOutput()):
        given.send_text(keys)
        Prompt(session).run()


def completions(session: SqlSession, text: str) -> list[str]:
    completer = SqlCompleter(lambda: session.catalog, lambda: list(session.queries))
    return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]


def test_a_statement_may_go_over_several_lines(session: SqlSession, capsys: pytest.CaptureFixture[str]) -> None:
    typed(session, "CREATE TYPE id\rAS INT;\rSHOW TYPES;\rexit\r")
    assert "Registered custom type ID" in capsys.readouterr().out
    assert list(session.catalog.types) == ["ID"]


def test_an_error_does_not_end_the_prompt(session: SqlSession, capsys: pytest.CaptureFixture[str]) -> None:
    typed(session, "SELCT 1;\rDESCRIBE click;\rCREATE TYPE id AS INT;\r\x04")
    shown = capsys.readouterr()
    assert "Did you mean SELECT?" in shown.err
    assert "Did you mean CLICKS?" in shown.err
    assert "Registered custom type ID" in shown.out


def test_ctrl_c_gives_up_what_has_been_typed(session: SqlSession) -> None:
    typed(session, "CREATE TYPE a\x03CREATE TYPE b AS INT;\rquit;\r")
    assert list(session.catalog.types) == ["B"]


def test_help_shows_statements_that_can_be_parsed(session: SqlSession, capsys: pytest.CaptureFixture[str]) -> None:
    from penstock.cli.sql.prompt import HELP
    from penstock.sql.parse import parse_script

    typed(session, "help\rexit\r")
    assert "CREATE STREAM clicks" in capsys.readouterr().out
    assert len(parse_script("\n".join(line for line in HELP.splitlines() if line.startswith("  ")))) == 8


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT * FROM cl", ["CLICKS"]),
        ("DESCRIBE ", ["CLICKS"]),
        ("SHOW Q", ["QUERIES"]),
        ("show q", ["queries"]),
        ("CREATE STREAM x (a INT) WITH (KAFKA_T", ["KAFKA_TOPIC"]),
        ("PRINT ", ["clicks"]),
        ("EXPL", ["EXPLAIN"]),
        ("SELECT 'CLI", []),
    ],
)
def test_completion_knows_what_may_follow(session: SqlSession, text: str, wanted: list[str]) -> None:
    assert completions(session, text) == wanted


def test_columns_and_functions_are_completed_in_expressions(session: SqlSession) -> None:
    assert "PAGE" in completions(session, "SELECT p")
    assert "ucase" in completions(session, "SELECT uc")


def test_colours_tell_keywords_types_strings_and_functions_apart() -> None:
    found = {text: kind for kind, text in SqlLexer().get_tokens("SELECT UCASE(a) FROM b WHERE c = 'x' -- y")}
    assert found["SELECT"] is token.Keyword
    assert found["UCASE"] is token.Name.Function
    assert found["'x'"] is token.String
    assert found["-- y"] is token.Comment.Single


def test_a_table_fits_the_terminal() -> None:
    out = StringIO()
    console = Console(file=out, width=40, force_terminal=True, color_system=None)
    ResultRenderer(console).show(Rows(("A", "B"), ("", ""), (("x" * 70, 1),)))
    assert max(map(len, out.getvalue().splitlines())) <= 40
    assert out.getvalue().count("x") == 70


def test_a_table_that_is_too_wide_is_shown_a_column_a_line() -> None:
    out = StringIO()
    console = Console(file=out, width=30, force_terminal=True, color_system=None)
    ResultRenderer(console).show(Rows(tuple("ABCDE"), ("",) * 5, ((1, 2, 3, 4, None),)))
    assert "  E  null" in out.getvalue()
