"""`topics consume` of values with types that JSON lacks: a line with the fields, by format and as JSON."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from penstock import Serdes
from penstock.log.clients.producer import Producer
from penstock.log.open import open_log
from penstock.log.topic_formats import TopicFormat, note_formats
from penstock.serde.bound_serdes import bound
from penstock.testing import EmbeddedRegistry

TYPES: dict[str, tuple[Any, Any, Any]] = {
    "price": ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, Decimal("1.50"), "1.50"),
    "clock": ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3), "01:02:03"),
    "data": ("bytes", b"\x00\xffa", "\x00\\xffa"),
    "id": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7), str(uuid.UUID(int=7))),
    "day": ({"type": "int", "logicalType": "date"}, date(2024, 2, 29), "2024-02-29"),
    "at": (
        {"type": "long", "logicalType": "timestamp-micros"},
        datetime(2024, 2, 29, tzinfo=UTC),
        "2024-02-29T00:00:00+00:00",
    ),
    "ratio": ("double", float("nan"), "nan"),
    "tags": ({"type": "map", "values": "bytes"}, {"a": b"b"}, {"a": "b"}),
}


@pytest.fixture
def registry():
    with EmbeddedRegistry() as made:
        yield made


@pytest.mark.parametrize("names", [*[[name] for name in TYPES], list(TYPES)], ids="-".join)
def test_a_line_has_the_fields(run, registry, tmp_path, names) -> None:
    place = str(tmp_path / "topics.db")
    run("topics", "create", "out", "-b", place)
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": TYPES[name][0]} for name in names]}
    serde = bound(Serdes.avro(schema, registry=registry.url), "out", "value")
    with open_log(place) as log:
        with Producer(log) as producer:
            producer.send("out", serde.serialize({name: TYPES[name][1] for name in names}), key=b"k", timestamp=0)
        note_formats(log, "app", {"out": TopicFormat("string", "avro", registry.url)})
    wanted = {name: TYPES[name][2] for name in names}
    code, shown, errors = run("topics", "consume", "out", "-b", place)
    assert code == 0, errors
    assert json.loads(shown.split("  k  ", 1)[1]) == wanted
    code, shown, errors = run("topics", "consume", "out", "--json", "-b", place)
    assert code == 0, errors
    assert json.loads(shown)["value"] == wanted
    code, shown, errors = run("topics", "consume", "out", "--filter", f"value.{names[0]} != null", "-b", place)
    assert code == 0, errors
    assert "  k  " in shown


def test_documents_of_commands_and_of_servers_have_values_of_any_type(capsys) -> None:
    from penstock.cli.output import print_json, print_json_line

    value = {"price": Decimal("1.50"), "data": b"\xff", "day": date(2024, 2, 29), "ids": [uuid.UUID(int=7)]}
    wanted = {"price": "1.50", "data": "\\xff", "day": "2024-02-29", "ids": [str(uuid.UUID(int=7))]}
    print_json(value)
    assert json.loads(capsys.readouterr().out) == wanted
    print_json_line(value)
    assert json.loads(capsys.readouterr().out) == wanted
