"""Debezium's transformations by hand, beside its recorded cases: settings that no case sets."""

import pytest

from penstock.connect.data import (
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    DataError,
    Header,
    Headers,
    SettingError,
    SourceRecord,
    Struct,
    array,
    struct,
)
from penstock.connect.transforms.debezium import ByLogicalTableRouter, EventRouter, ExtractNewRecordState

ROW = struct([("id", INT32), ("v", OPTIONAL_STRING), ("n", OPTIONAL_STRING)], name="srv.t.Value", optional=True)
SOURCE = struct([("db", STRING), ("table", STRING)], name="io.debezium.connector.postgresql.Source")
ENVELOPE = struct(
    [("before", ROW), ("after", ROW), ("source", SOURCE), ("op", STRING), ("ts_ms", INT64)], name="srv.t.Envelope"
)
KEY = struct([("id", INT32), ("v", OPTIONAL_STRING)], name="srv.t.Key")


def change(op="c", before=None, after=(1, "a", "b"), headers=(), row=ROW, envelope=ENVELOPE):
    rows = [None if values is None else Struct.of_checked(row, list(values)) for values in (before, after)]
    value = Struct.of_checked(envelope, [*rows, Struct(SOURCE, {"db": "app", "table": "t"}), op, 77])
    key = Struct(KEY, {"id": 1, "v": "a"})
    return SourceRecord(
        topic="srv.t", key=key, key_schema=KEY, value=value, value_schema=envelope, headers=Headers(headers)
    )


TOMBSTONE = SourceRecord(topic="srv.t", key=Struct(KEY, {"id": 1}), key_schema=KEY)


def made(transformation, **settings):
    transformed = transformation()
    transformed.configure({name.replace("_", "."): value for name, value in settings.items()})
    return transformed


def test_a_row_comes_out_without_the_fields_that_a_header_names():
    dropped = Header("drop", ["v", "id"], array(STRING))
    settings = {"drop.fields.header.name": "drop", "drop.fields.from.key": "true"}
    unwrap = made(ExtractNewRecordState, **settings)
    record = unwrap.apply(change(headers=[dropped]))
    assert (record.value.to_dict(), record.key.to_dict()) == ({"id": 1, "n": "b"}, {})  # id is not optional
    unwrap = made(ExtractNewRecordState, **settings, **{"drop.fields.keep.schema.compatible": "false"})
    assert unwrap.apply(change(headers=[dropped])).value.to_dict() == {"n": "b"}


@pytest.mark.parametrize(
    ("mode", "deletion", "tombstone"),
    [
        ("drop", None, None),
        ("tombstone", (None, True), None),
        ("delete-to-tombstone", (None, False), None),
        ("rewrite", ({"id": 1, "v": "a", "n": None, "__deleted": "true"}, True), None),
        ("rewrite-with-tombstone", ({"id": 1, "v": "a", "n": None, "__deleted": "true"}, True), (None, False)),
    ],
)
def test_a_deletion_and_its_tombstone_become_what_the_mode_says(mode, deletion, tombstone):
    unwrap = made(ExtractNewRecordState, **{"delete.tombstone.handling.mode": mode})
    shown = [
        record and (record.value and record.value.to_dict(), record.value_schema is not None)
        for record in (unwrap.apply(change("d", (1, "a", None), None)), unwrap.apply(TOMBSTONE))
    ]
    assert shown == [deletion, tombstone]


def test_fields_and_headers_of_the_envelope_have_their_prefixes():
    settings = {
        "add.fields": "op,table,no.such",
        "add.fields.prefix": "f_",
        "add.headers": "db",
        "add.headers.prefix": "h_",
    }
    record = made(ExtractNewRecordState, **settings).apply(change())
    assert record.value.to_dict() == {"id": 1, "v": "a", "n": "b", "f_op": "c", "f_table": "t"}
    assert [(header.key, header.value) for header in record.headers] == [("h_db", "app")]


def test_a_null_with_a_default_is_the_default_or_stays():
    from penstock.connect.data import with_default

    row = struct([("id", INT32), ("v", with_default(OPTIONAL_STRING, "x"))], name="srv.t.Value", optional=True)
    parts = [(part.name, row if part.name in ("before", "after") else part.schema) for part in ENVELOPE.fields]
    envelope = struct(parts, name="srv.t.Envelope")
    record = change(after=(1, None), row=row, envelope=envelope)
    for setting, expected in (("true", "x"), ("false", None)):
        unwrap = made(ExtractNewRecordState, **{"replace.null.with.default": setting})
        assert unwrap.apply(record).value.raw("v") == expected


def test_keys_of_a_logical_table_say_what_the_settings_say():
    settings = {"topic.regex": "srv\\.(t)", "topic.replacement": "srv.all"}
    more = {"key.field.name": "of", "key.field.regex": "(.*)\\.t", "key.field.replacement": "$1-shard"}
    record = made(ByLogicalTableRouter, **settings, **more).apply(change())
    assert (record.topic, record.key.to_dict()) == ("srv.all", {"id": 1, "v": "a", "of": "srv-shard"})
    assert record.value.schema.name == "srv.all.Envelope"
    plain = made(ByLogicalTableRouter, **settings, **{"key.enforce.uniqueness": "false"})
    assert plain.apply(change()).key.to_dict() == {"id": 1, "v": "a"}
    assert plain.apply(TOMBSTONE).topic == "srv.all"
    assert plain.apply(TOMBSTONE.with_(topic="other")).topic == "other"


OUTBOX = struct(
    [("uid", STRING), ("kind", STRING), ("who", STRING), ("at", INT64), ("body", OPTIONAL_STRING), ("part", INT32)],
    name="srv.outbox.Value",
    optional=True,
)


def event(op="c", body="{}", part=3):
    parts = [(part.name, OUTBOX if part.name in ("before", "after") else part.schema) for part in ENVELOPE.fields]
    envelope = struct(parts, name="srv.outbox.Envelope")
    values = ("u1", "order", "7", 1234, body, part)
    return change(op, after=values, row=OUTBOX, envelope=envelope)


def router(**more):
    fields = {
        "table.field.event.id": "uid",
        "table.field.event.key": "who",
        "table.field.event.payload": "body",
        "table.field.event.timestamp": "at",
        "route.by.field": "kind",
    }
    return made(EventRouter, **{**fields, **more})


def test_an_event_goes_where_its_columns_say():
    more = {"table.fields.additional.placement": "kind:header:eventType,part:partition,at:envelope"}
    route = {"route.topic.regex": "(?<it>.+)", "route.topic.replacement": "events.${it}"}
    record = router(**more, **route).apply(event())
    assert (record.topic, record.partition, record.key, record.timestamp) == ("events.order", 3, "7", 1234)
    assert record.value.to_dict() == {"payload": "{}", "at": 1234}
    assert [(header.key, header.value) for header in record.headers] == [("id", "u1"), ("eventType", "order")]


def test_only_new_rows_of_an_outbox_are_events():
    routing = router(**{"route.tombstone.on.empty.payload": "true"})
    assert routing.apply(event(body="")).value is None
    assert routing.apply(event(op="u")) is None
    assert routing.apply(TOMBSTONE) is None
    fatal = router(**{"table.op.invalid.behavior": "fatal"})
    with pytest.raises(DataError, match="Unexpected update message"):
        fatal.apply(event(op="u"))


def test_columns_that_an_outbox_lacks_are_named():
    with pytest.raises(DataError, match="Unable to find field payload in event"):
        router(**{"table.field.event.payload": "payload"}).apply(event())
    missing = {"table.fields.additional.placement": "no:header"}
    with pytest.raises(DataError, match="Unable to find field no in event"):
        router(**missing).apply(event())
    lenient = {**missing, "table.fields.additional.error.on.missing": "false"}
    assert router(**lenient).apply(event()).topic == "outbox.event.order"
    with pytest.raises(DataError, match="has no place"):
        made(EventRouter, **{"table.fields.additional.placement": "kind"})
    with pytest.raises(SettingError):
        made(ExtractNewRecordState, **{"delete.tombstone.handling.mode": "sometimes"})
