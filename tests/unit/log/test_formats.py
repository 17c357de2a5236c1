"""What the log remembers of how topics are written."""

from __future__ import annotations

import pyarrow as pa

from penstock import Materialized, Produced, Serdes, StreamsBuilder, StreamsConfig, TimeWindows
from penstock.engines.application.application_note import formats_of_sinks
from penstock.log.open import open_log
from penstock.log.topic_formats import TopicFormat, format_of, note_formats


def test_what_is_noted_is_found_and_noted_once() -> None:
    with open_log("memory://") as log:
        assert format_of(log, "out") is None
        note_formats(log, "app", {})
        assert log.topics() == []
        for _ in range(2):
            note_formats(log, "app", {"out": TopicFormat("string", "long"), "other": TopicFormat("json", "json")})
        assert log.end_offset("app-penstock-formats", 0) == 2
        note_formats(log, "app", {"out": TopicFormat("string", "double")})
        assert format_of(log, "out") == TopicFormat("string", "double")
        assert format_of(log, "other") == TopicFormat("json", "json")


def test_entries_that_are_none_are_left_out() -> None:
    with open_log("memory://") as log:
        note_formats(log, "app", {"out": TopicFormat("string", "long")})
        bad = [None, b"", b"[]", b'{"key": 1}', b"\xff", b"[" * 9_000, b'"' + b"x" * 20_000 + b'"']
        rows = {
            "timestamp": pa.array([9_999_999_999_999] * len(bad), pa.int64()),
            "key": pa.array([b"out"] * len(bad), pa.large_binary()),
            "value": pa.array(bad, pa.large_binary()),
        }
        log.append("app-penstock-formats", 0, pa.RecordBatch.from_pydict(rows))
        assert format_of(log, "out") == TopicFormat("string", "long")


def test_sinks_have_names_that_read_what_they_write() -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines")
    grouped = lines.group_by_key()
    grouped.windowed_by(TimeWindows.of("1 minute")).count(Materialized("c")).to_stream().to("windows")
    lines.to("rows", Produced(value_serde=Serdes.json({"a": int})))
    lines.to("lists", Produced(key_serde="long", value_serde=Serdes.list("double")))
    lines.to(lambda key, value, context: value)
    settings = {"application.id": "a", "default.key.serde": "string", "default.value.serde": "string"}
    assert formats_of_sinks(builder.build(), StreamsConfig(settings)) == {
        "windows": TopicFormat("windowed<string,60000>", "long"),
        "rows": TopicFormat("string", "json"),
        "lists": TopicFormat("long", "list<double>"),
    }


def test_a_registry_is_noted_without_its_password() -> None:
    builder = StreamsBuilder()
    builder.stream("lines").to("out", Produced(value_serde="avro"))
    settings = {"application.id": "a", "default.key.serde": "string", "default.value.serde": "string"}
    config = StreamsConfig({**settings, "schema.registry.url": "http://ann:secret@registry:8081"})
    assert formats_of_sinks(builder.build(), config)["out"] == TopicFormat("string", "avro", "http://registry:8081")
