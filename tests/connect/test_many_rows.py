"""Many records of one schema at once end as they do one by one: texts of JSON, and rows of PostgreSQL."""

import json
from decimal import Decimal

import pytest

from databases import execute, own_database
from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.converters import JsonConverter
from penstock.connect.converters.json_converter import EnvelopeReader
from penstock.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT64,
    INT8,
    INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    DataError,
    Moment,
    Schema,
    Struct,
    Type,
    decimal_schema,
    struct,
    with_default,
)
from penstock.connect.testing import ConnectTestDriver, Step
from postgres_server import postgres

__all__ = ["postgres"]
JSON = {"value.converter": "JsonConverter", "key.converter": "JsonConverter"}

# Texts of JSON

FIELDS = [
    ("n", "int64", {}), ("small", "int8", {"optional": True}), ("word", "string", {"optional": True}),
    ("size", "double", {"optional": True}), ("is", "boolean", {"optional": True, "default": True}),
    ("at", "int64", {"optional": True, "name": "org.apache.kafka.connect.data.Timestamp"}),
    ("day", "int32", {"optional": True, "name": "org.apache.kafka.connect.data.Date"}),
    ("hour", "int32", {"optional": True, "name": "org.apache.kafka.connect.data.Time"}),
]  # fmt: skip
SCHEMA = {"type": "struct", "fields": [{"field": name, "type": kind, **more} for name, kind, more in FIELDS]}
HEAD = '{"schema": ' + json.dumps(SCHEMA) + ', "payload": '
PLAIN = '{"n": 1, "small": -5, "word": "é", "size": 1.5, "is": false, "at": 70, "day": 3, "hour": 4}'
DEEP = "[" * 600 + "]" * 600
PAYLOADS = [
    PLAIN, " \n" + PLAIN + "\t", '{"n": 1}', '{"n": null}', "{}", "null", "[]", "7", '"x"', "", "{",
    '{"n": 1, "small": 300}', '{"n": 9223372036854775808}', '{"n": 1.9}', '{"n": "1"}', '{"n": true}', '{"n": -0}',
    '{"n": 007}', '{"n": ' + "1" * 1001 + "}", '{"n": 1, "n": 2}', '{"n": 1, "x": ' + "1" * 1001 + "}",
    '{"n": 1, "size": 5}', '{"n": 1, "size": -0.0}', '{"n": 1, "size": 1e400}', '{"n": 1, "size": 1e-400}',
    '{"n": 1, "size": 0.000}', '{"n": 1, "size": 1e99999999999}', '{"n": 1, "size": 1e-99999999999}',
    '{"n": 1, "size": 0.1000000000000000055511151231257827021181583404541015625}', '{"n": 1, "size": NaN}',
    '{"n": 1, "size": "1.5"}', '{"n": 1, "size": ' + "9" * 400 + "}", '{"n": 1, "size": Infinity}',
    '{"n": 1, "word": "a\\u00e9\\"\\\\"}', '{"n": 1, "word": "\\ud83d"}', '{"n": 1, "\\ud83d": 1}',
    '{"n": 1, "word": "a\nb"}', '{"n": 1, "word": 5}', '{"n": 1, "word": {"a": 1}}', '{"n": 1, "x": ' + DEEP + "}",
    '{"n": 1, "is": null}', '{"n": 1, "is": 1}', '{"n": 1, "at": 1.5}', '{"n": 1, "at": null}', '{"n": 1, "at": true}',
    '{"n": 1, "day": 3000000000}', '{"n": 1, "day": -3000000000}', '{"n": 1, "hour": -1}', '{"n": 1, "hour": 86400001}',
    '{"n": 1, "hour": "4"}', '{"n": 1,}', "{'n': 1}", '{"n": 1} x', '{"n": 1}, "payload": {"n": 2}', '{"n": 1}, "x": 2',
]  # fmt: skip
OTHERS = [
    b'{"schema": null, "payload": {"n": 1}}', b'{"payload": {"n": 1}, "schema": {"type": "int8"}}', b"7", b"",
    (HEAD + PLAIN).encode(), (HEAD + PLAIN + "} rest").encode() + b"\xff", (HEAD + PLAIN).encode() + b"\xff}",
    b"\xef\xbb\xbf" + (HEAD + PLAIN + "}").encode(), (HEAD + PLAIN + "}").encode("utf-16"),
    HEAD.replace("int8", "int16").encode() + b'{"n": 1, "small": 300}}',
]  # fmt: skip


def outcome(converter, data):
    try:
        read = converter.to_connect("t", data)
    except DataError as error:
        return repr(error), repr(error.__cause__)
    return repr(read.value), read.schema


@pytest.mark.parametrize("replaces", ["true", "false"])
def test_an_envelope_that_begins_as_one_before_is_read_as_a_whole_one(replaces):
    def fresh():
        converter = JsonConverter()
        converter.configure({"replace.null.with.default": replaces})
        return converter

    known = fresh()
    for _ in range(2):
        known.to_connect("t", (HEAD + PLAIN + "}").encode())
    for data in [*((HEAD + each + "}").encode() for each in PAYLOADS), *OTHERS]:
        assert outcome(known, data) == outcome(fresh(), data), data[-80:]


def test_payloads_are_read_alone_also_with_escapes_and_other_blanks():
    def envelope(at, word):
        return (HEAD.rstrip() + " " * at + json.dumps({"n": at, "word": word}) + "}").encode()

    reader, converter = EnvelopeReader(replace_null=True), JsonConverter()
    reader.remember(envelope(1, ""), converter.to_connect("t", envelope(1, "")).schema)
    for at, word in enumerate(["plain", "\xe9\n", "\u20ac", '"\\u"']):
        read = reader.read(envelope(at, word))
        assert read is not None
        assert (read.value["n"], read.value["word"]) == (at, word)


def test_texts_of_one_schema_are_a_column_and_others_are_not():
    converter = JsonConverter()
    converter.configure({})
    one, other = (HEAD + PLAIN + "}").encode(), HEAD.replace("int8", "int16").encode() + b'{"n": 1}}'
    schema, values = converter.all_to_connect("t", [one, one, one])
    assert (schema, values) == (converter.to_connect("t", one).schema, [converter.to_connect("t", one).value] * 3)
    assert converter.all_to_connect("t", [one, other]) is None
    assert converter.all_to_connect("t", [one, None]) is None
    assert converter.all_to_connect("t", [None, None]) == (None, [None, None])


# Rows of PostgreSQL


@pytest.fixture
def url(postgres):
    with own_database(postgres) as own:
        yield own


def sink(url, table, **more):
    given = {name.replace("_", "."): value for name, value in more.items()}
    config = {"connection.url": url, "topics": table, "name": table, **JSON, **given}
    return ConnectTestDriver(SqlSinkConnector, config)


ROW = struct(
    {
        "id": INT32, "small": INT8, "big": OPTIONAL_INT64, "word": OPTIONAL_STRING, "short": OPTIONAL_STRING,
        "f": FLOAT64, "yes": BOOLEAN, "raw": BYTES, "p": decimal_schema(2), "day": DATE, "hour": TIME, "at": TIMESTAMP,
        "zoned": TIMESTAMP, "u": STRING, "j": STRING, "g": with_default(Schema(Type.STRING, optional=True), "none"),
        "whole": FLOAT64, "digits": INT32,
    }
)  # fmt: skip
COLUMNS = (
    "id int PRIMARY KEY, small int2, big int8, word text, short varchar(4), f float8, yes bool, raw bytea, p numeric(9,1), "
    "day date, hour time, at timestamp(0), zoned timestamptz, u uuid, j jsonb, g text, whole int4, digits text, "
    "topic text, part int8, place int8"
)
WORDS = ["plain", "", "NULL", "null", 'a"b', "a\\b", "{x,y}", "a,b", "é\U0001f600", " blanks ", "%s %%", None]


def rows(count):
    for at in range(count):
        word = WORDS[at % len(WORDS)]
        yield Struct(
            ROW,
            {
                "id": at, "small": at - 5, "big": None if at % 4 == 0 else 1 << (at % 60), "word": word,
                "short": None if word is None else word[:4], "f": [0.1, 1e300, float("nan"), float("-inf")][at % 4],
                "yes": at % 2 == 0, "raw": bytes([at % 256, 92, 34]), "p": at * Decimal("1.25"),
                "day": Moment(at * 86_400_000), "hour": Moment(at * 1001), "at": Moment(at * 1500 - 10**12),
                "zoned": Moment(at * 10**10), "u": f"00000000-0000-0000-0000-{at:012}", "j": json.dumps({"a": word}),
                "g": None if at % 3 == 0 else "g", "whole": at + 0.5, "digits": at,
            },
        )  # fmt: skip


def statements(url, table):
    """The number of statements that have written the rows of a table."""
    return execute(url, f"SELECT count(DISTINCT (xmin::text, cmin::text)) FROM {table}")[0][0]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"},
        {"pk_mode": "kafka", "pk_fields": "topic,part,place"},
        {"replace_null_with_default": "false", "fields_whitelist": "id,g,word,at"},
        {"timestamp_fields_list": "big", "db_timezone": "Europe/Berlin"},
    ],
)
def test_columns_hold_the_same_whether_rows_come_one_by_one_or_many_at_once(url, more):
    columns = COLUMNS.replace("big int8", "big timestamp") if "timestamp_fields_list" in more else COLUMNS
    execute(url, f"CREATE TABLE single ({columns})", f"CREATE TABLE many ({columns})")
    one, many = sink(url, "single", **more), sink(url, "many", **more)
    for each in rows(30):
        one.produce("single", each)
        one.put()
    many.produce("many", *rows(30))
    assert len(many.put()) == 30
    first, second = (execute(url, f"SELECT {t}::text FROM {t} ORDER BY id") for t in ("single", "many"))
    assert [each[0].replace("single", "many") for each in first] == [each[0] for each in second]
    assert len(second) == 30
    assert statements(url, "many") == 1
    one.stop()
    many.stop()


def test_the_last_of_a_key_stays_whatever_comes_between(url):
    execute(url, "CREATE TABLE t (id int PRIMARY KEY, n int8)")
    row = struct({"id": INT32, "n": OPTIONAL_INT64})
    driver = sink(url, "t", insert_mode="upsert", pk_mode="record_value", pk_fields="id")
    keys = [*range(20), 3, *range(20), *range(20), 7, 7]
    driver.produce("t", *(Struct(row, {"id": key, "n": at}) for at, key in enumerate(keys)))
    driver.put()
    assert execute(url, "SELECT id, n FROM t ORDER BY id") == sorted({key: at for at, key in enumerate(keys)}.items())
    assert statements(url, "t") < 5
    driver.stop()


def test_keys_that_the_database_takes_for_equal_are_written_one_after_the_other(url):
    execute(url, "CREATE TABLE t (d numeric PRIMARY KEY, n int8)")
    row = struct({"d": STRING, "n": OPTIONAL_INT64})
    driver = sink(url, "t", insert_mode="upsert", pk_mode="record_value", pk_fields="d")
    driver.produce("t", *(Struct(row, {"d": f"1.{'0' * at}", "n": at}) for at in range(20)))
    driver.put()
    assert execute(url, "SELECT n FROM t") == [(19,)]
    driver.stop()


def test_a_column_that_was_made_wider_meanwhile_takes_what_it_can(url):
    execute(url, "CREATE TABLE t (n int4)")
    row = struct({"n": OPTIONAL_INT64})
    driver = sink(url, "t")
    for statement, first in (("SELECT 1", 0), ("ALTER TABLE t ALTER n TYPE int8", 1 << 40)):
        execute(url, statement)
        driver.produce("t", *(Struct(row, {"n": first + at}) for at in range(20)))
        driver.put()
    assert execute(url, "SELECT count(*), max(n) FROM t") == [(40, (1 << 40) + 19)]
    driver.stop()


@pytest.mark.parametrize(
    ("before", "after", "schema", "value", "kept"),
    [
        ("float4", "float8", FLOAT64, 0.1, "0.1"),
        ("float8", "numeric", FLOAT64, 0.12345678901234568, "0.12345678901234568"),
        ("date", "timestamp", TIMESTAMP, Moment(1_000_000_123), "1970-01-12 13:46:40.123"),
        ("jsonb", "json", STRING, '{"b": 1,  "a":2}', '{"b": 1,  "a":2}'),
    ],
)
def test_a_column_that_was_given_another_type_meanwhile_loses_nothing(url, before, after, schema, value, kept):
    execute(url, f"CREATE TABLE t (n {before})")
    row = struct({"n": schema})
    driver = sink(url, "t")
    for statement in ("SELECT 1", f"DELETE FROM t; ALTER TABLE t ALTER n TYPE {after}"):
        execute(url, *statement.split(";"))
        driver.produce("t", *(Struct(row, {"n": value}) for _ in range(20)))
        driver.put()
    assert execute(url, "SELECT n::text FROM t") == [(kept,)] * 20
    driver.stop()


def test_of_many_rows_those_that_do_not_fit_are_refused_alone_and_in_the_databases_words(url):
    execute(url, "CREATE TABLE t (id int PRIMARY KEY, word varchar(3) NOT NULL, n int2)")
    row = struct({"id": INT32, "word": OPTIONAL_STRING, "n": STRING})
    words = {4: ("long!", "1"), 9: (None, "1"), 14: ("ok", "70000"), 17: ("ok", "1,2"), 18: ("ok", '1","2')}
    strict = sink(url, "t", max_retries="0")
    strict.produce("t", *(Struct(row, {"id": at, "word": "ok", "n": "1"}) for at in range(20)), *[
        Struct(row, {"id": 4, "word": "long!", "n": "1"})
    ])  # fmt: skip
    with pytest.raises(DataError, match=r"value too long for type character varying\(3\)"):
        strict.put()
    assert execute(url, "SELECT count(*) FROM t") == [(0,)]
    strict.stop()
    driver = sink(url, "u", table_name_format="t", errors_tolerance="all")
    driver.produce("u", *(
        Struct(row, {"id": at, **dict(zip(("word", "n"), words.get(at, ("ok", "1")), strict=True))}) for at in range(30)
    ))  # fmt: skip
    driver.put_all()
    assert [each for (each,) in execute(url, "SELECT id FROM t ORDER BY id")] == [
        at for at in range(30) if at not in words
    ]
    driver.stop()


@pytest.mark.parametrize("step", [Step.READ, Step.PUT, Step.FLUSHED, Step.COMMITTED])
def test_many_rows_are_there_once_wherever_the_sink_crashes(url, step):
    driver = sink(url, "t", auto_create="true")
    row = struct({"n": INT32})
    for number in range(3):
        driver.produce("t", *(Struct(row, {"n": number * 20 + at}) for at in range(20)))
        task = driver.sinks[0].task
        driver.put(crash=step if number == 1 else None)
        if number == 1:
            task.stop()  # in a process of its own the system closes its connection
    driver.put_all()
    assert execute(url, "SELECT n FROM t ORDER BY n") == [(n,) for n in range(60)]
    driver.stop()
