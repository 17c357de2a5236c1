"""CREATE statements from samples: formats, types of several records merged, keys."""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import SqlError
from penstock.log.open import open_log
from penstock.sql.analyse import apply_script
from penstock.sql.catalog import Catalog, DataFormat
from penstock.sql.compile.serdes import format_serde, source_serdes
from penstock.sql.infer import Sample, infer_statement
from penstock.sql.types import BIGINT, STRING
from penstock.testing import EmbeddedRegistry


def inferred(values, keys=None, kind="STREAM", **registry):
    given_keys = tuple(keys or [None] * len(values))
    return infer_statement(Sample("my-topic", 1, given_keys, tuple(values)), kind, registry=registry)


def source_of(found):
    return apply_script(found.text, Catalog())[0].sources["MY_TOPIC"]


def objects(*values):
    return [json.dumps(value).encode() for value in values]


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        (objects({"a": 1}, {"a": 2, "b": "x"}), "`A` BIGINT, `B` STRING"),
        (objects({"a": 1}, {"a": 2.5}), "`A` DOUBLE"),
        (objects({"a": 1}, {"a": None}), "`A` BIGINT"),
        (objects({"a": 1}, {"a": "1"}), "`A` STRING"),
        (objects({"a": [1]}, {"a": [2.5, None]}, {"a": []}), "`A` ARRAY<DOUBLE>"),
        (objects({"a": {"b": 1}}, {"a": {"c": True}}), "`A` STRUCT<`B` BIGINT, `C` BOOLEAN>"),
        (objects({"a": {"1": 1, "2": 2}}), "`A` MAP<STRING, BIGINT>"),
        (objects({"userId": 1, "select": 2}), "`USERID` BIGINT, `SELECT` BIGINT"),
        (objects({"a": 1, "A": 2}), "`a` BIGINT, `A` BIGINT"),
        (objects({"with space": 1}), "`WITH SPACE` BIGINT"),
        (objects({"a": 2**70}), "`A` DOUBLE"),
        (objects({"a": None}), "`A` STRING"),
        ([b"1,x,2.5", b"2,,3", b'3,"a,b",1'], "`COLUMN_1` BIGINT, `COLUMN_2` STRING, `COLUMN_3` DOUBLE"),
        ([b"1|2", b"3|4"], "`COLUMN_1` BIGINT, `COLUMN_2` BIGINT"),
        ([struct.pack(">i", 7)], "`VALUE` INTEGER"),
        ([struct.pack(">q", 7)], "`VALUE` BIGINT"),
        ([b"\xff\x00\x01"], "`VALUE` BYTES"),
        ([b"hello", b"you there"], "`VALUE` STRING"),
        (objects([1, 2]), "`VALUE` ARRAY<BIGINT>"),
        ([b"true", b"false"], "`VALUE` BOOLEAN"),
    ],
)
def test_columns_and_that_the_statement_runs(values, columns):
    assert source_of(inferred(values)).schema() == columns


@pytest.mark.parametrize(
    ("keys", "columns", "form"),
    [
        ([b"ann", None], "`ID` STRING KEY", "KAFKA"),
        ([b"12", b"13"], "`ID` STRING KEY", "KAFKA"),
        ([struct.pack(">i", 7)], "`ID` INTEGER KEY", "KAFKA"),
        ([struct.pack(">q", 7)], "`ID` BIGINT KEY", "KAFKA"),
        ([b'{"a": 1, "b": "x"}'], "`A` BIGINT KEY, `B` STRING KEY", "JSON"),
        ([b'"ann"'], "`ID` STRING KEY", "JSON"),
    ],
)
def test_keys(keys, columns, form):
    source = source_of(inferred(objects(*[{"v": 1}] * len(keys)), keys))
    assert source.schema() == f"{columns}, `V` BIGINT"
    assert source.key_format.name == form


def read_by(found, keys, values):
    """The rows of a sample by the serdes of the statement."""
    key, value = source_serdes(source_of(found))
    return [
        (None if k is None else key.deserialize(k), value.deserialize(v)) for k, v in zip(keys, values, strict=True)
    ]


@pytest.mark.parametrize(
    ("keys", "values", "schema", "rows"),
    [
        ([b"5"], objects({"id": 1}), "`ID_KEY` STRING KEY, `ID` BIGINT", [(("5",), (1,))]),
        ([struct.pack(">i", 5)], objects({"id": 1}), "`ID_KEY` INTEGER KEY, `ID` BIGINT", [((5,), (1,))]),
        ([b'{"id": 5}'], objects({"id": 1}), "`ID_KEY` STRUCT<`ID` BIGINT> KEY, `ID` BIGINT", [(({"ID": 5},), (1,))]),
        (
            [b'{"id": 5, "b": 6}'],
            objects({"id": 1, "v": 2}),
            "`ID` BIGINT KEY, `B` BIGINT KEY, `V` BIGINT",
            [((5, 6), (2,))],
        ),
        (
            [b'{"VALUE": 5, "b": 6}'],
            [b"hello"],
            "`VALUE` BIGINT KEY, `B` BIGINT KEY, `VALUE_2` STRING",
            [((5, 6), ("hello",))],
        ),
        (
            [b'"a"'],
            objects({"id": 1, "id_key": 2}),
            "`ID_KEY_2` STRING KEY, `ID` BIGINT, `ID_KEY` BIGINT",
            [(("a",), (1, 2))],
        ),
    ],
)
def test_a_name_of_key_and_value_stays_where_the_field_is_found_by_it(keys, values, schema, rows):
    found = inferred(values, keys)
    assert source_of(found).schema() == schema
    assert read_by(found, keys, values) == rows


@pytest.mark.parametrize(
    ("values", "schema", "rows"),
    [
        (
            [b"00501,Holtsville,1_000"],
            "`COLUMN_1` STRING, `COLUMN_2` STRING, `COLUMN_3` STRING",
            [("00501", "Holtsville", "1_000")],
        ),
        ([b"1, 2", b"3,4"], "`COLUMN_1` BIGINT, `COLUMN_2` STRING", [(1, " 2"), (3, "4")]),
        ([b"1,nan", b"2,1.5"], "`COLUMN_1` BIGINT, `COLUMN_2` STRING", [(1, "nan"), (2, "1.5")]),
        ([b"1,99999999999999999999"], "`COLUMN_1` BIGINT, `COLUMN_2` DOUBLE", [(1, 1e20)]),
        ([b"1,+5"], "`COLUMN_1` BIGINT, `COLUMN_2` STRING", [(1, "+5")]),
        ([b"1,0x1F"], "`COLUMN_1` BIGINT, `COLUMN_2` STRING", [(1, "0x1F")]),
        (["1,\u0661\u0662".encode()], "`COLUMN_1` BIGINT, `COLUMN_2` STRING", [(1, "\u0661\u0662")]),
        ([b'{"a": 1}', b'{"a": 1e400}'], None, None),
        ([b'{"a": 1, "A": 2}', b'{"a": 3}'], "`a` BIGINT, `A` BIGINT", None),
        ([b'{"a": [1]}', b'{"a": "x"}', b'{"a": {"b": null}}'], "`A` STRING", [("[1]",), ("x",), ('{"b":null}',)]),
        ([b'{"a": 9007199254740993}', b'{"a": 1.5}'], "`A` DOUBLE", None),
        ([b'{"a": "x"}', b'{"a": "\xc3\xa4"}'], "`A` STRING", [("x",), ("\u00e4",)]),
    ],
)
def test_the_statement_reads_every_row_of_the_sample(values, schema, rows):
    found = inferred(values)
    if schema is not None:
        assert source_of(found).schema() == schema
    read = [value for _, value in read_by(found, [None] * len(values), values)]
    assert rows is None or read == rows
    assert None not in read


@pytest.mark.parametrize(
    ("values", "schema", "rows"),
    [
        ([b"1\tx", b"2\ty"], "`COLUMN_1` BIGINT, `COLUMN_2` STRING", [(1, "x"), (2, "y")]),
        ([b"1;2,5;x", b"2;3,5;y"], "`COLUMN_1` BIGINT, `COLUMN_2` STRING, `COLUMN_3` STRING", [(1, "2,5", "x")]),
        ([b"1234567890123456789,1"], "`COLUMN_1` BIGINT, `COLUMN_2` BIGINT", [(1234567890123456789, 1)]),
        ([b"9223372036854775807|-9223372036854775808"], "`COLUMN_1` BIGINT, `COLUMN_2` BIGINT", []),
        ([b"9223372036854775808,1"], "`COLUMN_1` DOUBLE, `COLUMN_2` BIGINT", [(9223372036854775808.0, 1)]),
        (['{"a": "10\u00a0000 \u200b\U0001f468\u200d\U0001f469"}'.encode()], "`A` STRING", []),
        (["10\u00a0000,x".encode()], "`COLUMN_1` STRING, `COLUMN_2` STRING", [("10\u00a0000", "x")]),
        ([b'\xef\xbb\xbf{"a": 1}', b'{"a": 2}'], "`A` BIGINT", [(1,), (2,)]),
        ([b"null", b'{"a": 1}'], "`A` BIGINT", [None, (1,)]),
        (objects({"a": {}}, {"a": {"x": 1, "y": "s"}}), "`A` STRUCT<`X` BIGINT, `Y` STRING>", []),
        (objects({"ROWTIME": 1, "b": 2}), "`B` BIGINT", [(2,)]),
        (objects({"rowtime": 1, "windowStart": 2}), "`rowtime` BIGINT, `windowStart` BIGINT", [(1, 2)]),
        (objects({"": 1, "b": 2}), "`B` BIGINT", [(2,)]),
        ([struct.pack(">d", 1.5), struct.pack(">d", 0.0)], "`VALUE` DOUBLE", [(1.5,), (0.0,)]),
        ([struct.pack(">q", 1 << 40), struct.pack(">q", 0)], "`VALUE` BIGINT", [(1 << 40,), (0,)]),
    ],
)
def test_values_come_out_as_they_are(values, schema, rows):
    statement = inferred(values)
    assert source_of(statement).schema() == schema
    read = [value for _, value in read_by(statement, [None] * len(values), values)]
    assert read[: len(rows)] == rows
    assert [row is None for row in read] == [value == b"null" for value in values]


@pytest.mark.parametrize(
    ("values", "note"),
    [
        (objects({"id": 12345678901234567890}), "id: DOUBLE rounds"),
        (objects({"id": 9007199254740993}, {"id": 1.5}), "id: DOUBLE rounds"),
        ([b"12345678901234567890,1"], "COLUMN_1: DOUBLE rounds"),
        ([b"id,name", b"1,x", b"2,y"], "'id,name', may be a line of names"),
        ([b"\xef\xbb\xbf1,x", b"2,y"], "begins with a byte order mark"),
        (objects({"ROWTIME": 1, "b": 2}), "ROWTIME is left out"),
        (objects({"": 1, "b": 2}), "empty name is left out"),
        ([struct.pack(">d", 1.5)], "may also be a BIGINT"),
    ],
)
def test_what_a_statement_changes_is_said(values, note):
    assert any(note in each for each in inferred(values).notes)


@pytest.mark.parametrize("values", [objects({"id": 1 << 53}), [b"1,x", b"2,y"], objects({"a": 2.5})])
def test_nothing_is_said_where_values_come_out_as_they_are(values):
    notes = inferred(values).notes
    assert not any("rounds" in each or "line of names" in each for each in notes)


@settings(max_examples=60)
@given(st.lists(st.tuples(*[st.from_regex(r"[-+0-9._eExXa-f ]{0,6}", fullmatch=True)] * 3), min_size=1, max_size=6))
def test_any_lines_of_numbers_and_near_numbers_are_read(rows):
    values = [",".join(row).encode() for row in rows]
    found = inferred(values)
    for _, row in read_by(found, [None] * len(values), values):
        assert row is not None


def test_a_table_needs_a_key():
    assert inferred(objects({"v": 1}), [b"x"], "TABLE").text.startswith("CREATE TABLE MY_TOPIC (ID STRING PRIMARY KEY")
    without = inferred(objects({"v": 1}), None, "TABLE")
    assert without.text.startswith("-- ")
    assert "no key" in without.notes[0]


@pytest.mark.parametrize("form", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_schemas_of_a_registry(form):
    with EmbeddedRegistry() as registry:
        settings = {"schema.registry.url": registry.url}
        from penstock.serde.bound_serdes import bound, configured

        serde = format_serde(DataFormat(form), [("A", BIGINT), ("B", STRING)], "value")
        made = bound(configured(serde, settings), "my-topic", "value")
        data = [made.serialize((1, "x")), made.serialize((2, None))]
        found = inferred(data, **settings)
        assert f"VALUE_FORMAT = '{form}'" in found.text
        assert "A BIGINT" in found.text
        assert "B STRING" in found.text
        with pytest.raises(SqlError, match="have the schema 1 of a registry"):
            inferred(data)


@given(st.lists(st.binary(max_size=30) | st.none(), min_size=1, max_size=5))
def test_any_bytes_have_a_statement_that_can_be_parsed(values):
    try:
        found = inferred(values)
    except SqlError:
        return
    if any(value is not None for value in values):
        apply_script(found.text, Catalog())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.from_regex("[a-zA-Z]{1,4}", fullmatch=True), json_values, min_size=1), min_size=1))
def test_any_objects_have_a_statement_that_reads_them(values):
    data = objects(*values)
    found = inferred(data)
    for _, row in read_by(found, [None] * len(data), data):
        assert row is not None


def test_the_command_reads_a_topic(tmp_path):
    place = str(tmp_path / "log.db")
    log = open_log(place)
    log.create_topic("clicks", 2)
    for partition, row in enumerate([{"url": "/"}, {"url": "/a", "ms": 3}]):
        batch = pa.record_batch(
            {
                "key": pa.array([b"k"], pa.binary()),
                "value": pa.array([json.dumps(row).encode()], pa.binary()),
                "timestamp": pa.array([1], pa.int64()),
            }
        )
        log.append("clicks", partition, batch)
    log.create_topic("empty", 1)
    log.close()
    run = CliRunner().invoke
    found = run(app, ["sql", "infer", "clicks", "-b", place])
    assert found.exit_code == 0, found.exception
    assert "CREATE STREAM CLICKS (ID STRING KEY, URL STRING, MS BIGINT)" in found.output
    assert "has no records" in str(run(app, ["sql", "infer", "empty", "-b", place]).exception)
    assert "click" in str(run(app, ["sql", "infer", "click", "-b", place]).exception)
