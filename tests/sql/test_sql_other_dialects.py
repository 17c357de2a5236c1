"""Names and words of other dialects of SQL are refused with the way in which they are written here."""

from __future__ import annotations

import re

import pytest

from penstock import StreamsBuilder
from penstock.errors import SqlError
from penstock.sql import stream
from penstock.sql.analyse.statements import library_of
from penstock.sql.catalog import Catalog
from penstock.sql.parse.dialects import OTHER_FUNCTIONS, OTHER_STATEMENTS, OTHER_TYPES, OTHER_WORDS

CLICKS = "CREATE STREAM c (id INT KEY, page STRING, n INT) WITH (kafka_topic='c', value_format='JSON', partitions=1);\n"


def hint(select: str) -> str:
    with pytest.raises(SqlError) as refused:
        stream(StreamsBuilder(), CLICKS + select)
    return refused.value.hint or ""


@pytest.mark.parametrize("name", OTHER_FUNCTIONS)
def test_a_function_of_another_dialect_has_its_name_here(name: str) -> None:
    assert hint(f"SELECT {name}(n, 1) AS x FROM c;") == OTHER_FUNCTIONS[name]
    assert hint(f"SELECT {name.lower()}(n) AS x, COUNT(*) FROM c GROUP BY n;") == OTHER_FUNCTIONS[name]


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_a_type_of_another_dialect_has_its_name_here(name: str) -> None:
    assert hint(f"SELECT CAST(n AS {name}) AS x FROM c;") == OTHER_TYPES[name]


def test_what_hints_propose_is_there() -> None:
    library = library_of(Catalog())
    known = {*library.scalars.names, *library.aggregates.names, *library.tables.names, "CAST", "DECIMAL"}
    hints = [*OTHER_FUNCTIONS.values(), *OTHER_TYPES.values(), *OTHER_STATEMENTS.values(), *OTHER_WORDS.values()]
    called = {name for text in hints for name in re.findall(r"\b([A-Z_]+)\(", text)}
    assert "ARRAY_JOIN" in called
    assert called <= known
    assert not set(OTHER_FUNCTIONS) & known
    for kind in {re.match(r"Write (\w+)", text)[1] for text in OTHER_TYPES.values()} - {"STRUCT"}:  # type: ignore[index]
        stream(StreamsBuilder(), f"{CLICKS}SELECT CAST(NULL AS {kind}) AS x FROM c;")


def test_names_that_are_no_columns_may_be_text_or_functions() -> None:
    assert "single quotes" in hint('SELECT * FROM c WHERE page = "/home";')
    assert hint("SELECT CURRENT_TIMESTAMP AS x FROM c;") == OTHER_FUNCTIONS["CURRENT_TIMESTAMP"]
    assert hint("SELECT pag FROM c;") == "Did you mean PAGE?"
    assert hint("SELECT nothing FROM c;") == ""
