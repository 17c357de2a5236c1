"""The Avro converter over a registry in this process: its schemas are Confluent's, what it writes it reads again."""

import json
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.connect.data import (
    DATE,
    INT8,
    INT32,
    OPTIONAL_STRING,
    STRING,
    DataError,
    Moment,
    Schema,
    SettingError,
    Struct,
    Type,
    array,
    decimal_schema,
    map_of,
    struct,
    with_default,
)
from penstock.connect.functions import installed_plugins
from penstock.connect.registry_converters import AvroConverter
from penstock.serde.formats.avro import from_avro, to_avro
from penstock.serde.registry.model import Reference, StoredSchema
from penstock.testing import EmbeddedRegistry
from test_connect_properties import VALUES


@pytest.fixture(scope="module")
def registry():
    with EmbeddedRegistry("connect-avro") as made:
        yield made


def converter(registry, role="value", **more):
    made = AvroConverter()
    made.configure({"schema.registry.url": registry.url, **more}, role)
    return made


def test_schemas_are_those_that_confluent_writes():
    value = struct(
        {
            "a": INT8,
            "b": OPTIONAL_STRING,
            "c": with_default(INT32, 3),
            "d": decimal_schema(2),
            "e": DATE.as_optional(),
            "f": map_of(INT32, STRING),
        },
        name="org.example.Line",
    )
    made = to_avro(value)
    assert (made["name"], made["namespace"], made["connect.name"]) == ("Line", "org.example", "org.example.Line")
    fields = {field["name"]: field for field in made["fields"]}
    assert fields["a"] == {"name": "a", "type": {"type": "int", "connect.type": "int8"}}
    assert fields["b"] == {"name": "b", "type": ["null", "string"], "default": None}
    assert fields["c"] == {"name": "c", "type": {"type": "int", "connect.default": 3}, "default": 3}
    assert fields["d"]["type"] == {
        "type": "bytes",
        "scale": 2,
        "precision": 64,
        "connect.version": 1,
        "connect.parameters": {"scale": "2"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }
    assert fields["e"]["type"][1]["logicalType"] == "date"
    assert fields["f"]["type"]["items"]["name"] == "MapEntry"
    assert from_avro(made) == value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(VALUES)
def test_values_with_schemas_come_back(registry, typed):
    schema, value = typed
    if not _has_avro(schema):
        return
    made = converter(registry, **{"value.subject.name.strategy": "topic"})
    topic = f"t{abs(hash(schema))}"
    data = made.from_connect(topic, schema, value)
    found = converter(registry).to_connect(topic, data)
    if data is None:
        assert value is None
        return
    assert (found.schema, found.value) == (schema, value)


def _has_avro(schema):
    """Avro's names are letters, digits and underscores."""
    inner = [part.schema for part in schema.fields] + [each for each in (schema.keys, schema.values) if each]
    names = all(part.name.isascii() and part.name.isidentifier() for part in schema.fields)
    return names and all(_has_avro(each) for each in inner)


def test_keys_and_values_have_subjects_of_their_own_and_plain_dicts_get_a_schema(registry):
    data = converter(registry, "key").from_connect("lines", STRING, "a")
    assert data[:1] == b"\0"
    value = converter(registry).from_connect("lines", None, {"path": "/", "tags": ["x"], "n": 1.5})
    assert {"lines-key", "lines-value"} <= set(registry.registry.subjects())
    found = converter(registry).to_connect("lines", value).value
    assert (found["path"], found["tags"], found["n"]) == ("/", ["x"], 1.5)


def test_foreign_avro_is_read_with_enums_fixed_and_unions(registry):
    text = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
            {"name": "any", "type": ["null", "string", "long"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
    from io import BytesIO

    from fastavro import parse_schema, schemaless_writer

    number = registry.register("orders-value", text)
    out = BytesIO()
    schemaless_writer(out, parse_schema(text), {"state": "OLD", "hash": b"ab", "any": 7, "at": 5})
    found = converter(registry).to_connect("orders", b"\0" + number.to_bytes(4, "big") + out.getvalue())
    assert (found.value["state"], found.value["hash"], found.value["at"]) == ("OLD", b"ab", 5)
    assert found.value["any"]["long"] == 7
    assert found.schema.field("state").schema.parameters["io.confluent.connect.avro.Enum"] == "shop.State"


def foreign(registry, topic, text, value, **more):
    """What the converter reads of a value that another program has written."""
    from io import BytesIO

    from fastavro import parse_schema, schemaless_writer

    number = registry.register(f"{topic}-value", text)
    out = BytesIO()
    schemaless_writer(out, parse_schema(text), value)
    return converter(registry, **more).to_connect(topic, b"\0" + number.to_bytes(4, "big") + out.getvalue())


def record(name, *fields):
    return {"type": "record", "name": name, "namespace": "n", "fields": list(fields)}


def test_the_default_of_a_field_counts_before_that_of_its_type():
    kind = {"type": "bytes", "logicalType": "decimal", "scale": 4, "precision": 10, "connect.default": "AA=="}
    own = {**kind, "connect.name": "org.apache.kafka.connect.data.Decimal"}
    made = from_avro(record("A", {"name": "d", "type": own, "default": "\u0000"}, {"name": "e", "type": own}))
    assert made.field("d").schema.default == Decimal("0.0000")
    assert made.field("e").schema.default == Decimal("109479.4557")  # its letters are its bytes, as Confluent reads it
    nothing = from_avro(record("B", {"name": "d", "type": ["null", own], "default": None}))
    assert nothing.field("d").schema.default is None


@pytest.mark.parametrize(
    ("kind", "default", "read"),
    [
        ("float", 1, 1.0),
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "int", "logicalType": "date"}, 2, Moment(172_800_000)),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, Moment(5)),
        ({"type": "array", "items": "bytes"}, ["a"], [b"a"]),
        ({"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "scale": 1}}, {"k": "\n"},
         {"k": Decimal("1.0")}),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y", "Y"),
        (["int", "null"], 3, 3),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
    ],
)  # fmt: skip
def test_defaults_of_all_kinds_are_read_and_written(kind, default, read):
    made = from_avro(record("A", {"name": "f", "type": kind, "default": default}))
    assert made.field("f").schema.default == read
    again = to_avro(made, enhanced=True)
    assert again["fields"][0]["default"] == default
    assert from_avro(again) == made


def test_defaults_of_records_and_unions_are_those_of_the_first_branch():
    inner = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}
    text = record("A", {"name": "r", "type": inner, "default": {"a": 1, "b": "x"}},
                  {"name": "u", "type": ["string", "int"], "default": "s"})  # fmt: skip
    made = from_avro(text)
    assert made.field("r").schema.default.to_dict() == {"a": 1, "b": "x"}
    assert made.field("u").schema.default.to_dict() == {"string": "s", "int": None}
    assert [field["default"] for field in to_avro(made)["fields"]] == [{"a": 1, "b": "x"}, "s"]


def test_a_default_that_does_not_fit_is_left_out_with_a_note(caplog):
    made = from_avro(record("A", {"name": "f", "type": "int", "default": "x"}))
    assert made.field("f").schema.default is None
    assert "does not fit" in caplog.text


UNIONS = [
    (["null", "int", "string"], 5),
    (["null", "int", "string"], "x"),
    (["null", "int", "string"], None),
    (["int", "string"], "x"),
    (["null", "long", "bytes", {"type": "array", "items": "int"}], b"x"),
    (["null", {"type": "map", "values": "int"}, {"type": "fixed", "name": "n.F", "size": 1}], b"x"),
    ([{"type": "enum", "name": "n.E", "symbols": ["X"]}, "string"], ("n.E", "X")),
    ([{"type": "enum", "name": "n.E", "symbols": ["X"]}, "string"], "X"),
    ([record("R", {"name": "a", "type": "int"}), record("S", {"name": "a", "type": "int"})], ("n.S", {"a": 1})),
]


@pytest.mark.parametrize(("union", "value"), UNIONS)
@pytest.mark.parametrize("place", ["value", "field"])
def test_a_union_comes_back_as_the_same_union_with_the_same_branch(registry, union, value, place):
    topic = f"union-{abs(hash(str((union, value, place))))}"
    text = union if place == "value" else record("A", {"name": "u", "type": union})
    enhanced = {"enhanced.avro.schema.support": "true"}
    whole = value if place == "value" else {"u": value}
    found = foreign(registry, topic, text, whole, **enhanced)
    made = converter(registry, **enhanced)
    data = made.from_connect(f"{topic}-again", found.schema, found.value)
    if data is None:
        assert found.value is None
        return
    written = json.loads(registry.registry.schema(int.from_bytes(data[1:5], "big")).text)
    kinds = written if place == "value" else written["fields"][0]["type"]
    assert [_plain(branch) for branch in kinds] == [_plain(branch) for branch in union]
    assert made.to_connect(f"{topic}-again", data) == found


def _plain(branch):
    return branch if isinstance(branch, str) else branch["type"]


def test_enums_are_strings_unless_they_are_asked_for(registry):
    text = record("A", {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}})
    found = foreign(registry, "enums", text, {"e": "Y"})
    assert found.schema.field("e").schema.name == "n.E"
    for more, kind in (({}, "string"), ({"enhanced.avro.schema.support": "true"}, "enum")):
        topic = f"enums-{kind}"
        data = converter(registry, **more).from_connect(topic, found.schema, found.value)
        written = json.loads(registry.registry.schema(int.from_bytes(data[1:5], "big")).text)
        assert written["fields"][0]["type"]["type"] == kind
        assert converter(registry, **more).to_connect(topic, data).value["e"] == "Y"


def test_a_decimal_in_a_fixed_keeps_its_size(registry):
    kind = {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2}
    found = foreign(registry, "fixed", record("A", {"name": "d", "type": kind}), {"d": b"\xff\xff\xff\x9c"})
    assert found.value["d"] == Decimal("-1.00")
    made = converter(registry)
    data = made.from_connect("fixed-again", found.schema, found.value)
    assert made.to_connect("fixed-again", data) == found
    assert data[-4:] == b"\xff\xff\xff\x9c"


def test_logical_types_count_for_their_own_types_only():
    assert str(from_avro({"type": "string", "logicalType": "date"})) == "Schema{STRING}"
    assert str(from_avro({"type": "long", "logicalType": "local-timestamp-millis"})) == "Schema{INT64}"
    assert str(from_avro({"type": "long", "logicalType": "time-micros"})) == "Schema{INT64}"


def test_names_are_scrubbed_if_that_is_asked_for(registry):
    schema = struct({"bad name": INT32, "1st": STRING}, name="a-b.C d")
    made = converter(registry, **{"scrub.invalid.names": "true"})
    data = made.from_connect("scrubbed", schema, Struct(schema, {"bad name": 1, "1st": "x"}))
    found = made.to_connect("scrubbed", data).value
    assert found.to_dict() == {"bad_name": 1, "x1st": "x"}


def test_null_stays_null_where_there_is_a_default_if_that_is_asked_for(registry):
    schema = struct({"n": with_default(INT32, 3).as_optional()})
    for more, read in (({}, 3), ({"ignore.default.for.nullables": "true"}, None)):
        made = converter(registry, **more)
        data = made.from_connect("nulls", schema, Struct(schema, {"n": None}))
        assert made.to_connect("nulls", data).value.raw("n") == read


def test_unions_that_cannot_be_told_apart_are_refused():
    twins = [{"type": "record", "name": f"{space}.R", "fields": []} for space in ("a", "b")]
    with pytest.raises(DataError, match="Multiple union schemas"):
        from_avro(twins)
    assert [part.name for part in from_avro(twins, enhanced=True).fields] == ["a.R", "b.R"]
    with pytest.raises(DataError, match="Standalone null"):
        from_avro("null")


def test_a_type_is_found_in_the_namespace_of_the_type_around_it():
    inner = [{"type": "record", "name": f"{space}.P", "fields": [{"name": space, "type": "int"}]} for space in "ab"]
    fields = [{"name": "one", "type": inner[0]}, {"name": "two", "type": inner[1]}, {"name": "again", "type": "P"}]
    made = from_avro({"type": "record", "name": "a.R", "fields": fields})
    assert [part.name for part in made.field("again").schema.fields] == ["a"]


def test_a_type_that_holds_itself_is_refused_with_the_types_between():
    other = {"type": "record", "name": "S", "fields": [{"name": "r", "type": {"type": "array", "items": "R"}}]}
    with pytest.raises(DataError, match=r"n\.R holds itself, through n\.S"):
        from_avro(record("R", {"name": "s", "type": ["null", other]}))
    with pytest.raises(DataError, match=r"refers to n\.Other, which is not defined"):
        from_avro(record("R", {"name": "s", "type": "Other"}))


def test_logical_types_of_schemas_that_are_referred_to_are_read(registry):
    from io import BytesIO

    from fastavro import parse_schema, schemaless_writer

    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    inner = record("Price", {"name": "d", "type": price})
    registry.register("price", inner)
    outer = record("Order", {"name": "price", "type": "n.Price"})
    refers = (Reference("n.Price", "price", 1),)
    number = registry.registry.register("priced-value", StoredSchema(json.dumps(outer), "AVRO", refers)).schema_id
    names = {}
    parse_schema(inner, named_schemas=names)
    out = BytesIO()
    schemaless_writer(out, parse_schema(outer, named_schemas=names), {"price": {"d": Decimal("1.50")}})
    found = converter(registry).to_connect("priced", b"\0" + number.to_bytes(4, "big") + out.getvalue())
    assert found.value["price"]["d"] == Decimal("1.50")


@pytest.mark.parametrize("data", [b"", b"\0", b"\x05abc", b"\0\0\0\0\xff", b"\0\0\0\0\x01"])
def test_bytes_that_are_none_of_its_own_are_an_error_of_the_record(registry, data):
    with pytest.raises(DataError):
        converter(registry).to_connect("t", data + b"")
    schema = struct({"a": array(INT32)})
    good = converter(registry).from_connect("cut", schema, Struct(schema, {"a": [1, 2, 3]}))
    with pytest.raises(DataError):
        converter(registry).to_connect("cut", good[:-2])


def test_settings_are_checked_and_the_class_is_found_by_its_name(registry):
    with pytest.raises(SettingError, match=r"schema\.registry\.url"):
        AvroConverter().configure({})
    with pytest.raises(SettingError, match="not a converter of headers"):
        converter(registry, "header")
    assert installed_plugins().find("AvroConverter").java_class == "io.confluent.connect.avro.AvroConverter"
    made = to_avro(Schema(Type.STRING, name="n", version=2), metadata=False)
    assert json.dumps(made) == '{"type": "string"}'
