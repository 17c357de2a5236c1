"""The page of ten minutes: each statement is run, each answer compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.sql.render import run_statements
from penstock.errors import PenstockError
from penstock.sql.session import SqlSession

PAGE = Path(__file__).parents[2] / "docs" / "sql" / "ten-minutes.md"
STEP = re.compile(r"^```sql\n(.*?)^```\n\n^```answer\n(.*?)^```", re.MULTILINE | re.DOTALL)


def plain(text: str) -> list[str]:
    """Lines without the widths of columns and the lines of tables."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line.strip("─ ")]


def test_the_statements_of_the_page_have_these_answers(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = STEP.findall(PAGE.read_text())
    assert len(steps) == PAGE.read_text().count("```sql") > 6
    with SqlSession({"bootstrap.servers": str(tmp_path / "log.db")}, queries="wait", spark=spark) as session:
        for statements, wanted in steps:
            try:
                run_statements(session, statements, as_json=False)
                shown = capsys.readouterr().out
            except PenstockError as error:
                shown = f"error: {error.message.splitlines()[0]}"
            assert plain(shown) == plain(wanted), statements
