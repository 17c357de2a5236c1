"""The formats without schemas: rows to bytes and back, what they refuse."""

from __future__ import annotations

import math
import pickle
from datetime import date, time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError, SqlError
from penstock.sql.evaluate import sql_type
from penstock.sql.formats import FormatProperties, check_columns, format_info, row_format
from penstock.sql.formats.delimited_rows import join_fields, split_fields
from penstock.sql.parse import parse_statement

UNWRAPPED = FormatProperties(wrapped=False)


def columns(declared: str):
    statement = parse_statement(f"CREATE STREAM S ({declared}) WITH (KAFKA_TOPIC='s', FORMAT='JSON')")
    return [(column.name, sql_type(column.type)) for column in statement.columns]


ALL = (
    "A BOOLEAN, B INT, C BIGINT, D DOUBLE, E DECIMAL(6, 4), F STRING, G BYTES, H DATE, I TIME, J TIMESTAMP, "
    "K ARRAY<DECIMAL(4, 2)>, L MAP<STRING, INT>, M STRUCT<X INT, `y` STRING>"
)
FULL = (
    *(True, -5, 2**62, 1e7, Decimal("12.3650"), 'ä"\n', b"\x00\xff", date(1970, 1, 11), time(0, 0, 1), 12),
    *([Decimal("1.50"), None], {"k": 1, "l": None}, {"X": 3, "y": "z"}),
)
TEXT = (
    '{"A":true,"B":-5,"C":4611686018427387904,"D":1.0E7,"E":12.3650,"F":"ä\\"\\n","G":"AP8=","H":10,"I":1000,"J":12,'
    '"K":[1.50,null],"L":{"k":1,"l":null},"M":{"X":3,"y":"z"}}'
)


def test_json_of_all_types():
    serde = row_format("JSON", columns(ALL))
    assert serde.serialize(FULL) == TEXT.encode()
    assert serde.deserialize(TEXT.encode()) == FULL
    nulls = (None,) * len(FULL)
    assert serde.deserialize(serde.serialize(nulls)) == nulls
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    assert pickle.loads(pickle.dumps(serde)).deserialize(TEXT.encode()) == FULL


@pytest.mark.parametrize(
    ("declared", "text", "row"),
    [
        ("foo INT", '{"foo": 1}', (1,)),
        ("foo INT", '{"Foo": 2, "FOO": 1}', (1,)),
        ("`foo` INT", '{"FOO": 1}', (None,)),
        ("`foo` INT, FOO INT", '{"foo": 1}', (1, 1)),
        ("foo STRING", '{"FOO": 1.10}', ("1.10",)),
        ("foo STRING", '{"FOO": {"a": [1, null, "x"]}}', ('{"a":[1,null,"x"]}',)),
        ("foo DOUBLE", '{"FOO": "NaN"}', (math.nan,)),
        ("foo DOUBLE", '{"FOO": 1}', (1.0,)),
        ("foo DECIMAL(4, 2)", '{"FOO": "10.1"}', (Decimal("10.10"),)),
        ("foo DECIMAL(4, 2)", '{"FOO": 1E1}', (Decimal("10.00"),)),
        ("foo STRUCT<Bar INT>", '{"FOO": {"bar": 1, "more": 2}}', ({"BAR": 1},)),
        ("foo INT", "null", None),
    ],
)
def test_json_reads(declared, text, row):
    found = row_format("JSON", columns(declared)).deserialize(text.encode())
    assert repr(found) == repr(row)


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("foo BOOLEAN", '{"FOO": 1}'),
        ("foo BOOLEAN", '{"FOO": "true"}'),
        ("foo INT", '{"FOO": true}'),
        ("foo INT", '{"FOO": "x"}'),
        ("foo INT", '{"FOO": 2147483648}'),
        ("foo DOUBLE", '{"FOO": NaN}'),
        ("foo DECIMAL(4, 2)", '{"FOO": 1.234}'),
        ("foo DECIMAL(4, 2)", '{"FOO": 123.4}'),
        ("foo DECIMAL(4, 2)", '{"FOO": 1E999999}'),
        ("foo ARRAY<INT>", '{"FOO": {}}'),
        ("foo MAP<STRING, INT>", '{"FOO": []}'),
        ("foo STRUCT<X INT>", '{"FOO": 1}'),
        ("foo BYTES", '{"FOO": "*"}'),
        ("foo DATE", '{"FOO": "2020-01-01"}'),
        ("foo INT", "[1]"),
        ("foo INT", '{"FOO": 1} x'),
        ("foo INT", "\x00\x00\x00\x00\x01{}"),
        ("foo STRING", '{"FOO": ' + "[" * 5000 + "]" * 5000 + "}"),
    ],
    ids=lambda text: text[:40],
)
def test_json_that_is_no_row(declared, text):
    with pytest.raises(SerializationError, match="json"):
        row_format("JSON", columns(declared)).deserialize(text.encode())


def test_a_single_column_without_its_object():
    serde = row_format("JSON", columns("foo ARRAY<STRING>"), UNWRAPPED)
    assert serde.serialize((["a", None],)) == b'["a",null]'
    assert serde.deserialize(b"[1, 2]") == (["1", "2"],)
    assert serde.serialize((None,)) is None
    assert serde.deserialize(b"null") is None
    both = row_format("JSON", columns("a INT, b INT"), UNWRAPPED)
    assert both.serialize((1, None)) == b'{"A":1,"B":null}'


@pytest.mark.parametrize("value", [0.0, -0.0, 0.001, 9999999.0, 1e7, 1.5e-5, 123.456, math.inf, -math.inf])
def test_doubles_in_json_are_java_s(value):
    serde = row_format("JSON", columns("d DOUBLE"))
    assert serde.deserialize(serde.serialize((value,))) == (value,)
    shown = serde.serialize((value,)).decode()
    expected = {1e7: "1.0E7", 1.5e-5: "1.5E-5", math.inf: '"Infinity"', -math.inf: '"-Infinity"'}
    assert shown == f'{{"D":{expected.get(value, repr(value))}}}'


FLAT = "A BOOLEAN, B INT, C BIGINT, D DOUBLE, E DECIMAL(6, 4), F STRING, G BYTES, H DATE, I TIME, J TIMESTAMP"


def test_delimited_of_all_types():
    serde = row_format("DELIMITED", columns(FLAT))
    text = 'true,-5,4611686018427387904,1.0E7,12.3650,"ä""\n",AP8=,10,1000,12'
    assert serde.serialize(FULL[:10]) == text.encode()
    assert serde.deserialize(text.encode()) == FULL[:10]
    nulls = (None,) * 10
    assert serde.serialize(nulls) == b",,,,,,,,,"
    assert serde.deserialize(b",,,,,,,,,") == nulls


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (["-10", "-10"], '"-10",-10'),
        (["10", "#x"], '10,"#x"'),
        (["a b", " c"], 'a b," c"'),
        (["a", "b "], 'a,"b "'),
        (["a", 'b"c'], 'a,"b""c"'),
        (["ä", "ä"], '"ä",ä'),
        (["", ""], '"",'),
        ([None, None], ","),
        (["_a", "_a"], '"_a",_a'),
    ],
)
def test_quotes_stand_where_commons_csv_sets_them(fields, line):
    assert join_fields(fields, ",") == line


@given(st.lists(st.text(), min_size=1, max_size=5), st.sampled_from([",", "|", "\t", " ", ";"]))
def test_delimited_fields_come_back(fields, delimiter):
    if fields != [""]:
        assert split_fields(join_fields(fields, delimiter), delimiter) == fields


@pytest.mark.parametrize("line", ["1", "1,2,3", "x,2", '"1,2', '"1"x,2', "", "1,99999999999"])
def test_delimited_that_is_no_row(line):
    with pytest.raises(SerializationError):
        row_format("DELIMITED", columns("A INT, B INT")).deserialize(line.encode())


def test_delimited_by_another_character():
    serde = row_format("DELIMITED", columns("A INT, B STRING"), FormatProperties(delimiter="|"))
    assert serde.serialize((1, "a,b")) == b"1|a,b"
    assert serde.deserialize(b'1|"a|b"') == (1, "a|b")
    assert serde != row_format("DELIMITED", columns("A INT, B STRING"))


@pytest.mark.parametrize(
    ("declared", "value", "data"),
    [
        ("K INT", -2, b"\xff\xff\xff\xfe"),
        ("K BIGINT", 1, b"\0\0\0\0\0\0\0\x01"),
        ("K DOUBLE", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("K STRING", "ä", "ä".encode()),
        ("K BYTES", b"\0", b"\0"),
        ("K STRING", None, None),
    ],
)
def test_kafka(declared, value, data):
    serde = row_format("KAFKA", columns(declared), UNWRAPPED)
    assert serde.serialize((value,)) == data
    assert serde.deserialize(data) == (None if data is None else (value,))


def test_kafka_refuses_other_lengths():
    with pytest.raises(SerializationError, match="one INTEGER"):
        row_format("KAFKA", columns("K INT")).deserialize(b"\0")


def test_none_has_no_columns():
    serde = row_format("NONE", [])
    assert (serde.serialize(()), serde.deserialize(b"ignored")) == (None, ())


@pytest.mark.parametrize(
    ("name", "declared", "message"),
    [
        ("FOO", "A INT", "Unknown format: FOO"),
        ("DELIMITED", "A ARRAY<INT>", "The format 'DELIMITED' has no type 'ARRAY'"),
        ("KAFKA", "A STRUCT<B INT>", "The format 'KAFKA' has no type 'STRUCT'"),
        ("KAFKA", "A BOOLEAN", "The format 'KAFKA' has no type 'BOOLEAN'"),
        ("KAFKA", "A INT, B STRING", "holds a single field, and these are declared: [`A` INTEGER, `B` STRING]"),
        ("NONE", "A INT", "holds no columns, and these are declared: [`A` INTEGER]"),
        ("JSON", "A ARRAY<MAP<INT, INT>>", "JSON needs STRING as the key type of a MAP"),
        ("AVRO", "A MAP<INT, INT>", "Avro needs STRING as the key type of a MAP"),
        ("PROTOBUF", "A MAP<INT, INT>", "PROTOBUF needs STRING as the key type of a MAP"),
    ],
)
def test_columns_that_a_format_cannot_hold(name, declared, message):
    with pytest.raises(SqlError) as raised:
        check_columns(name, tuple(columns(declared)))
    assert message in str(raised.value)


def test_formats_say_what_they_can():
    assert format_info("avro").infers
    assert not format_info("json").infers
    assert not format_info("PROTOBUF").unwraps
