"""All statements of the shared cases parse, those that the model's own parser refuses are refused at the same token."""

import json
import os
from pathlib import Path

import pytest

from penstock.errors import SqlSyntaxError
from penstock.sql.parse import format_statement, parse_script, parse_statement

SHARED = Path(os.environ.get("PENSTOCK_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "sql"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared cases are not here")
REFUSALS = ("ParseFailedException",)
# Settings of a source are checked when the statement is analysed, not when it is parsed.
LATER = {("session-windows.json", "import table with invalid window size")}
# Pull queries refuse these before they run, as the grammar does here.
SOONER = {
    ("pull-queries-with-limit-clause.json", "error on negative limit"),
    ("pull-queries-with-limit-clause.json", "error on non-integer limit"),
    ("pull-queries-with-limit-clause.json", "error on string limit"),
}


def cases():
    """File, name, statements, and whether the last statement is refused by its text alone."""
    for folder in ("cases", "rest-cases"):
        for path in sorted((SHARED / folder).glob("*.json")):
            for entry in json.loads(path.read_text())["tests"]:
                for form in entry.get("format", [""]):
                    place = (path.name, entry["name"])
                    refusal = (entry.get("expectedException") or {}).get("type", "").endswith(REFUSALS)
                    statements = [text.replace("{FORMAT}", form) for text in entry["statements"]]
                    yield *place, statements, (refusal or place in SOONER) and place not in LATER


def test_the_statements_parse_or_are_refused_as_in_the_model():
    counts = {"parsed": 0, "refused": 0}
    for file, name, statements, refused in cases():
        for text in statements[: len(statements) - refused]:
            parse_statement(text)
            counts["parsed"] += 1
        if refused:
            with pytest.raises(SqlSyntaxError):
                pytest.fail(f"{file}: {name}: parsed {parse_statement(statements[-1])}")
            counts["refused"] += 1
    assert counts["parsed"] > 4000
    assert counts["refused"] >= 20


def test_canonical_text_parses_to_equal_nodes():
    for file, name, statements, refused in cases():
        for text in statements[: len(statements) - refused]:
            node = parse_statement(text)
            assert parse_statement(format_statement(node)) == node, (file, name, text)


def test_a_case_is_one_script():
    for file, name, statements, refused in cases():
        if not refused:
            script = parse_script("\n".join(statements))
            assert [parsed.at.column for parsed in script] == [1] * len(statements), (file, name)
