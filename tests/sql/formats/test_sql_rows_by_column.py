"""Rows by the column equal rows one by one, for whatever stands in a topic."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from penstock.errors import SerializationError
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, RowColumn
from penstock.sql.compile.serdes import RowsSerde, StateSerde
from penstock.sql.evaluate import sql_type
from penstock.sql.formats import FormatProperties, row_format
from penstock.sql.parse import parse_statement

UNWRAPPED = FormatProperties(wrapped=False)
KEY = FormatProperties(part="key", wrapped=False)
ROWS = 30  # enough to go by column
KINDS = ["INT", "BIGINT", "DOUBLE", "STRING", "BOOLEAN", "DECIMAL(6, 2)", "TIMESTAMP", "DATE", "TIME", "BYTES"]
NESTED = ["ARRAY<INT>", "MAP<STRING, STRING>", "STRUCT<X INT, y STRING>"]
TEXTS = st.text('ab"\\,|\n\r\x00\x1f é\U0001f600#-', max_size=3) | st.sampled_from(
    ["", "null", "1", " 1", "true", "\ud800"]
)
VALUES = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9),
    "DOUBLE": st.floats() | st.sampled_from([0.0, -0.0, 1e7, math.nan, math.inf]),
    "STRING": TEXTS,
    "BOOLEAN": st.booleans(),
    "DECIMAL(6, 2)": st.integers(-999999, 999999).map(lambda number: Decimal(number).scaleb(-2)),
    "TIMESTAMP": st.integers(0, 2**62),
    "DATE": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "TIME": st.times().map(lambda found: found.replace(microsecond=0)),
    "BYTES": st.binary(max_size=3),
    "ARRAY<INT>": st.lists(st.none() | st.integers(-9, 9), max_size=2),
    "MAP<STRING, STRING>": st.dictionaries(st.text("ab", max_size=1), st.none() | st.text("x", max_size=1), max_size=2),
    "STRUCT<X INT, y STRING>": st.fixed_dictionaries({"X": st.integers(-9, 9), "Y": st.none() | st.just("y")}),
}
JSON_SCALARS = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["1", "-0", "0", "007", "1.0", "1.50", "1e3", "1E400", "-1.5e-3", "true", "false", "null", "NaN"]),
    st.sampled_from(
        ['"a"', '""', '"1"', '" 2 "', '"x\\ny"', '"\\u00e9"', '"\\ud800"', '"\t"', '"AP8="', '"1.25"', '"true"']
    ),
    st.sampled_from(["[1, null]", '{"X": 1, "y": "z"}', "{}", "[", '{"a":', '"']),
)
NAMES = st.sampled_from(["A", "a", "B", "b", "C", "c", "Aé", "d d", 'q\\"', "\\u0041"])
FIELDS = st.lists(st.tuples(NAMES, JSON_SCALARS), max_size=4)
BLANKS = st.sampled_from(["", "", " ", "\n", "\u00a0"])


def declared(kinds) -> list:
    text = ", ".join(f"{name} {kind}" for name, kind in zip("ABC", kinds, strict=False))
    statement = parse_statement(f"CREATE STREAM S ({text}) WITH (KAFKA_TOPIC='s', FORMAT='JSON')")
    return [(column.name, sql_type(column.type)) for column in statement.columns]


def objects(fields, blank):
    inner = f"{blank},{blank}".join(f'"{name}"{blank}:{blank}{value}' for name, value in fields)
    return f"{blank}{{{inner}}}{blank}"


OBJECTS = st.builds(objects, FIELDS, BLANKS) | JSON_SCALARS
LINES = st.lists(TEXTS | JSON_SCALARS, max_size=4).map(",".join)


def outcome(run):
    """What came of it: the values as they print, or the row that failed and why."""
    try:
        found = run()
    except SerializationError as error:
        return error.facts.get("row"), error.message
    return repr(found.to_pylist() if isinstance(found, pa.Array) else found.items())


def data_of(texts) -> pa.Array:
    rows = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    return pa.array((rows * ROWS)[: max(ROWS, len(rows))], pa.large_binary())


def same_decoded(serde: BaseSerde, data: pa.Array) -> None:
    assert outcome(lambda: serde.decode(data)) == outcome(lambda: BaseSerde.decode(serde, data))


@settings(max_examples=examples(250), deadline=None)
@given(
    st.lists(st.sampled_from(KINDS + NESTED), min_size=1, max_size=3),
    st.lists(st.none() | OBJECTS, min_size=1, max_size=5),
)
def test_json_is_read_alike(kinds, texts):
    same_decoded(row_format("JSON", declared(kinds)), data_of(texts))


@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(KINDS + NESTED), st.lists(st.none() | JSON_SCALARS, min_size=1, max_size=5))
def test_single_json_values_are_read_alike(kind, texts):
    same_decoded(row_format("JSON", declared([kind]), UNWRAPPED), data_of(texts))


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    st.sampled_from([",", "|", "\t", " "]),
    st.lists(st.none() | LINES, min_size=1, max_size=4),
)
def test_delimited_lines_are_read_alike(kinds, delimiter, texts):
    lines = [None if text is None else text.replace(",", delimiter) for text in texts]
    same_decoded(row_format("DELIMITED", declared(kinds), FormatProperties(delimiter=delimiter)), data_of(lines))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["INT", "BIGINT", "DOUBLE", "STRING", "BYTES"]),
    st.lists(st.none() | st.binary(max_size=9) | st.binary(min_size=4, max_size=4), min_size=1, max_size=4),
)
def test_kafka_s_primitives_are_read_alike(kind, rows):
    serde = row_format("KAFKA", declared([kind]))
    data = pa.array((rows * ROWS)[:ROWS], pa.large_binary())
    try:
        found = serde.decode(data)
    except SerializationError:
        with pytest.raises(SerializationError):
            BaseSerde.decode(serde, data)
    else:
        assert repr(found.items()) == repr(BaseSerde.decode(serde, data).items())


@settings(max_examples=examples(250), deadline=None)
@given(st.data(), st.sampled_from(["JSON", "JSON alone", "DELIMITED", "DELIMITED key", "KAFKA", "rows", "states"]))
def test_rows_are_written_alike_and_read_back(data, form):
    single = form in ("JSON alone", "DELIMITED key", "KAFKA")
    known = ["INT", "BIGINT", "DOUBLE", "STRING", "BYTES"] if form == "KAFKA" else KINDS
    known = ["BIGINT"] if form == "states" else known if form.startswith("DELIMITED") or single else KINDS + NESTED
    kinds = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=1 if single else 3))
    kinds = kinds[:1] if form == "states" else kinds
    columns = declared(kinds)
    serde = {
        "rows": lambda: RowsSerde([kind for _, kind in columns]),
        "states": lambda: StateSerde("n", 1),
        "JSON alone": lambda: row_format("JSON", columns, UNWRAPPED),
        "DELIMITED key": lambda: row_format("DELIMITED", columns, KEY),
    }.get(form, lambda: row_format(form, columns))()
    drawn = data.draw(
        st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in kinds)) | st.none(), min_size=1, max_size=4)
    )
    rows = (drawn * ROWS)[:ROWS]
    empty = (None,) * len(kinds)
    lists = [Column.of_items(list(each)) for each in zip(*[row or empty for row in rows], strict=True)]
    column = RowColumn(lists, ROWS, np.array([row is None for row in rows]))
    assert column.items() == rows or any(value != value for row in rows if row for value in row)  # noqa: PLR0124
    written = outcome(lambda: serde.encode(column))
    assert written == outcome(lambda: BaseSerde.encode(serde, Column.of_items(rows)))
    if isinstance(written, str) and form != "states":
        same_decoded(serde, serde.encode(column))


@pytest.mark.parametrize(
    ("serde", "row"),
    [
        (row_format("JSON", declared(["INT", "STRING", "BOOLEAN"])), b'{"a": 1, "x": 2.5, "b": "y", "c": true}'),
        (row_format("JSON", declared(["BIGINT"]), UNWRAPPED), b"12"),
        (row_format("DELIMITED", declared(["INT", "STRING"])), b"1,x y"),
        (row_format("KAFKA", declared(["STRING"])), b"x"),
        (RowsSerde([kind for _, kind in declared(["INT", "STRING"])]), b'[1,"x"]'),
        (StateSerde("n", 2), b"[1,2]"),
    ],
)
def test_regular_rows_stay_columns_and_are_written_so(serde, row):
    rows = serde.decode(pa.array([row, None] * ROWS, pa.large_binary()))
    assert isinstance(rows, RowColumn)
    assert all(column.is_columnar for column in rows.columns)
    assert rows.items()[:2] == [tuple(serde.deserialize(row)), None]  # states by the column come as tuples
    assert serde.encode(rows).to_pylist()[:2] == [serde.serialize(serde.deserialize(row)), None]


def test_rows_of_several_layouts_keep_their_order():
    serde = row_format("JSON", declared(["INT", "STRING"]))
    texts = [
        *(
            '{"A":1,"B":"x"}',
            '{"B":"y","A":2}',
            '{"A":3}',
            "null",
            '{"A":"4","B":5}',
            '{"B":"\\u00e9"}',
            '{"C":1}',
            "{}",
        ),
    ]
    rows = serde.decode(data_of([*texts, None]))
    assert rows.items()[:9] == [
        (1, "x"),
        (2, "y"),
        (3, None),
        None,
        (4, "5"),
        (None, "é"),
        (None, None),
        (None, None),
        None,
    ]


def test_the_row_that_cannot_be_read_is_named():
    serde = row_format("JSON", declared(["INT"]))
    data = pa.array([json.dumps({"A": 1}).encode()] * ROWS + [b'{"A": "x"}'], pa.large_binary())
    with pytest.raises(SerializationError, match=f"row {ROWS}"):
        serde.decode(data)


def test_rows_take_spread_and_join_as_their_tuples_do():
    rows = RowColumn(
        [Column.of_items([1, 2, None]), Column.of_items(["a", None, "c"])], 3, np.array([False, True, False])
    )
    assert rows.take(np.array([2, 0])).items() == [(None, "c"), (1, "a")]
    assert rows.take_or_null(np.array([-1, 1, 0])).items() == [None, None, (1, "a")]
    assert rows.null_mask().tolist() == [False, True, False]
    assert [column.items() for column in rows.shown()] == [[1, None, None], ["a", None, "c"]]
    both = Column.concat([Column.nulls(1), rows, rows.take(np.array([0]))])
    assert isinstance(both, RowColumn)
    assert both.items() == [None, (1, "a"), None, (None, "c"), (1, "a")]
    assert Column.concat([rows, Column.of_items([(1,)])]).items() == [*rows.items(), (1,)]
    assert RowColumn([], 2).items() == [(), ()]
