"""Converters that write with the newest schema of the subject: ``use.latest.version`` and what belongs to it."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from http_servers import serving
from penstock.connect.data import INT32, INT64, STRING, DataError, Struct, struct
from penstock.connect.registry_converters import AvroConverter, JsonSchemaConverter, ProtobufConverter
from penstock.serde.schemas.client import confluent_client
from penstock.testing import EmbeddedRegistry

KINDS = [AvroConverter, JsonSchemaConverter, ProtobufConverter]
LATEST = {"auto.register.schemas": "false", "use.latest.version": "true"}
LINE = struct({"id": INT32, "name": STRING}, name="org.example.Line")
VALUE = Struct(LINE, {"id": 7, "name": "x"})
TEXTS = {
    AvroConverter: json.dumps(
        {
            "type": "record",
            "name": "Line",
            "namespace": "org.example",
            "fields": [
                {"name": "note", "type": ["null", "string"], "default": None},
                {"name": "name", "type": "string"},
                {"name": "id", "type": "long"},
                {"name": "raw", "type": "bytes", "default": "\u00ff"},
            ],
        }
    ),
    JsonSchemaConverter: json.dumps(
        {
            "type": "object",
            "title": "org.example.Line",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
        }
    ),
    ProtobufConverter: (
        'syntax = "proto3";\npackage org.example;\nmessage Other {\n  int32 a = 1;\n}\n'
        "message Line {\n  int32 id = 1;\n  string name = 2;\n  string note = 3;\n}\n"
    ),
}
UNREADABLE = {
    AvroConverter: TEXTS[AvroConverter].replace('"long"', '"string"'),
    JsonSchemaConverter: TEXTS[JsonSchemaConverter].replace('"integer"', '"boolean"'),
    ProtobufConverter: TEXTS[ProtobufConverter].replace("int32 id", "string id"),
}


@pytest.fixture
def registry(request):
    with EmbeddedRegistry(f"latest-{abs(hash(request.node.name))}") as made:
        client = confluent_client({"url": made.url})
        client.set_compatibility(None, "NONE")
        yield made


def converter(kind, registry, **settings):
    made = kind()
    made.configure({"schema.registry.url": registry.url, **settings}, "value")
    return made


def register(registry, kind, text):
    from confluent_kafka.schema_registry import Schema

    return confluent_client({"url": registry.url}).register_schema("lines-value", Schema(text, kind.kind))


def schema_id(data):
    return int.from_bytes(data[1:5], "big")


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_written_with_the_newest_schema_and_its_id(kind, registry):
    first = converter(kind, registry).from_connect("lines", LINE, VALUE)
    newest = register(registry, kind, TEXTS[kind])
    assert newest != schema_id(first)
    data = converter(kind, registry, **LATEST).from_connect("lines", LINE, VALUE)
    assert schema_id(data) == newest
    read = converter(kind, registry).to_connect("lines", data)
    assert (read.value["id"], read.value["name"]) == (7, "x")


def test_avro_takes_fields_by_name_and_defaults_for_those_that_are_new(registry):
    register(registry, AvroConverter, TEXTS[AvroConverter])
    data = converter(AvroConverter, registry, **LATEST).from_connect("lines", LINE, VALUE)
    assert data[5:] == b"\x00" + b"\x02x" + b"\x0e" + b"\x02\xff"  # null, "x", 7, one byte
    read = converter(AvroConverter, registry).to_connect("lines", data)
    assert read.schema.field("id").schema.type is INT64.type


def test_protobuf_has_the_place_of_its_message_in_the_newest_schema(registry):
    register(registry, ProtobufConverter, TEXTS[ProtobufConverter])
    data = converter(ProtobufConverter, registry, **LATEST).from_connect("lines", LINE, VALUE)
    assert data[5:7] == b"\x02\x02"  # one number: 1, the second message
    register(registry, ProtobufConverter, 'syntax = "proto3";\nmessage Other {\n  int32 id = 1;\n}\n')
    loose = {**LATEST, "latest.compatibility.strict": "false", "latest.cache.ttl.sec": "0"}
    with pytest.raises(DataError, match="cannot be written with the newest schema of subject lines-value"):
        converter(ProtobufConverter, registry, **loose).from_connect("lines", LINE, VALUE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_newest_schema_that_cannot_read_the_record_is_refused_unless_it_may_be(kind, registry):
    newest = register(registry, kind, UNREADABLE[kind])
    with pytest.raises(
        DataError, match=r"(?s)Incompatible schema .* Set latest\.compatibility\.strict=false to disable"
    ):
        converter(kind, registry, **LATEST).from_connect("lines", LINE, VALUE)
    loose = converter(kind, registry, **LATEST, **{"latest.compatibility.strict": "false"})
    if kind is AvroConverter:
        with pytest.raises(DataError, match="does not fit its Avro schema"):
            loose.from_connect("lines", LINE, VALUE)
    else:
        assert schema_id(loose.from_connect("lines", LINE, VALUE)) == newest


def test_a_newest_schema_of_another_kind_is_refused(registry):
    register(registry, JsonSchemaConverter, TEXTS[JsonSchemaConverter])
    with pytest.raises(DataError, match="is of type JSON, not AVRO"):
        converter(AvroConverter, registry, **LATEST).from_connect("lines", LINE, VALUE)


@pytest.mark.parametrize("kind", KINDS)
def test_new_schemas_are_registered_first_of_all(kind, registry):
    newest = register(registry, kind, TEXTS[kind])
    data = converter(kind, registry, **{"use.latest.version": "true"}).from_connect("lines", LINE, VALUE)
    assert schema_id(data) != newest


@pytest.mark.parametrize(("ttl", "follows"), [("-1", False), ("0", True), ("86400", False)])
def test_the_newest_schema_is_kept_for_its_time(ttl, follows, registry):
    first = register(registry, JsonSchemaConverter, TEXTS[JsonSchemaConverter])
    made = converter(JsonSchemaConverter, registry, **LATEST, **{"latest.cache.ttl.sec": ttl})
    assert schema_id(made.from_connect("lines", LINE, VALUE)) == first
    assert schema_id(made.from_connect("lines", LINE, VALUE)) == first
    more = json.loads(TEXTS[JsonSchemaConverter])
    more["description"] = "a line"
    second = register(registry, JsonSchemaConverter, json.dumps(more))
    assert schema_id(made.from_connect("lines", LINE, VALUE)) == (second if follows else first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("automatic", ["true", "false"])
def test_the_registry_is_asked_to_compare_schemas_in_their_normal_form(kind, automatic):
    with serving(RegistryServer()) as server:
        for normalize in ("true", "false"):
            settings = {"normalize.schemas": normalize, "auto.register.schemas": automatic}
            data = converter(kind, server, **settings).from_connect(f"lines-{normalize}", LINE, VALUE)
            assert schema_id(data) == 41
    assert [query.get("normalize", "false").lower() for query in server.asked] == ["true", "false"]


class RegistryServer(ThreadingHTTPServer):
    """Knows one schema, and keeps the queries of all requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({name: each[0] for name, each in parse_qs(urlsplit(self.path).query).items()})
        body = json.dumps({**schema, "subject": "lines-value", "version": 1, "id": 41}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass
