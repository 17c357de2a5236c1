"""Malformed records of every serde between good ones: each goes to the handler, and no good one is lost.

The tests run a sample; ``python tests/fuzz/serde_fuzz.py 10000`` runs so many of each serde, by row and by column, with
"continue" and with a dead letter topic.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import re
import struct
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock import Consumed, Produced, Serdes, StreamsBuilder, TopologyTestDriver
from penstock.serde.base import Serde
from penstock.serde.foreign_key_messages import ResponseSerde, Subscription, SubscriptionResponse, SubscriptionSerde
from penstock.serde.table_changes import ChangeSerde
from penstock.serde.windowed import Window, Windowed
from penstock.testing import EmbeddedRegistry
from wire_fuzz import changed

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "serde"))

GOOD_EVERY = 3  # records
HIT = {
    "type": "record",
    "name": "Hit",
    "fields": [
        {"name": "status", "type": "int"},
        {"name": "path", "type": ["null", "string"]},
        {"name": "sizes", "type": {"type": "array", "items": "long"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
    ],
}
HITS = [
    {"status": i * 77, "path": None if i % 2 else "/p" * i, "sizes": list(range(i)), "tags": {"t": 0.5}, "kind": "AB"[i % 2],
     "id": b"abc"}
    for i in range(6)
]  # fmt: skip
CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Chain"]}],
}
NOTHINGS = {
    "type": "record",
    "name": "Nothings",
    "fields": [{"name": "of", "type": {"type": "array", "items": "null"}}],
}
OBJECT = {
    "title": "Hit",
    "type": "object",
    "properties": {"user": {"type": "string"}, "amount": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["user"],
}  # fmt: skip
OBJECTS = [{"user": f"u{i}", "amount": i + 0.5, "tags": ["a"] * i} for i in range(5)]


def serdes(registry: str | None) -> dict[str, tuple[Serde[Any], list[Any]]]:
    """Every serde, with values that it writes; those with schemas with a registry if there is one."""
    framed: dict[str, Any] = {"framing": "none"} if registry is None else {"registry": registry}
    from schema_messages import order_messages

    order = order_messages()[0]
    orders = [order(id=i, user="u" * i, amount=0.5, kind=i % 3) for i in range(5)]
    numbers = [0, 1, -1, 255, 12345]
    texts = ["", "a", "häßlich", "x" * 300, "{}"]
    plain = [None, True, 7, 1 << 70, 1.5, "s", b"b", [1, [2]], (1, "a"), {"a": 1}, {1: [2]}, Decimal("1.5")]
    plain += [{1, 2}, uuid.UUID(int=5), datetime(2026, 1, 1, tzinfo=UTC), Windowed("k", Window(0, 5))]
    structs = Serdes.json({"user": str, "amount": float, "tags": [str]})
    flats = Serdes.json({"user": str, "amount": float})
    return {
        "string": (Serdes.string(), texts),
        "bytes": (Serdes.bytes(), [b"", b"abc"]),
        "long": (Serdes.long(), numbers),
        "integer": (Serdes.integer(), numbers),
        "short": (Serdes.short(), numbers),
        "double": (Serdes.double(), [0.0, -1.5, 1e300]),
        "float": (Serdes.float(), [0.0, -1.5]),
        "boolean": (Serdes.boolean(), [True, False]),
        "uuid": (Serdes.uuid(), [uuid.UUID(int=i) for i in range(5)]),
        "void": (Serdes.void(), [None]),
        "text_long": (Serdes.text_long(), [*numbers, -(1 << 63)]),
        "auto": (Serdes.auto(), [one for one in plain if one is not None]),
        "json": (Serdes.json(), [*OBJECTS, [1, "a", None], 5, "text"]),
        "flat json": (flats, [{"user": "u", "amount": i + 0.5} for i in range(5)]),
        "nested json": (structs, OBJECTS),
        "list<long>": (Serdes.list("long"), [[], [1], [1, None, 3], [None]]),
        "list<string>": (Serdes.list("string"), [[], ["a"], ["a", None, ""]]),
        "time windowed": (Serdes.time_windowed("string", 10), [Windowed(t, Window(10, 20)) for t in texts]),
        "session windowed": (Serdes.session_windowed("long"), [Windowed(n, Window(1, 20)) for n in numbers]),
        "change": (ChangeSerde(Serdes.string()), [("a", None), (None, "b"), ("new", "old")]),
        "subscription": (SubscriptionSerde(Serdes.string()), [Subscription(b"h" * 16, 1, "k", 3), Subscription(None, 0, "k", 0)]),
        "response": (ResponseSerde(Serdes.string()), [SubscriptionResponse(b"h" * 16, "v"), SubscriptionResponse(None, None)]),
        "avro": (Serdes.avro(HIT, **framed), HITS),
        "recursive avro": (Serdes.avro(CHAIN, **framed), [{"n": 1, "next": {"n": 2, "next": None}}]),
        "empty avro": (Serdes.avro(NOTHINGS, **framed), [{"of": [None] * i} for i in range(4)]),
        "protobuf": (Serdes.protobuf(order, **framed), orders),
        "json_schema": (Serdes.json_schema(OBJECT, **framed), OBJECTS),
    }  # fmt: skip


def nasty(name: str, good: bytes) -> list[bytes]:
    """Bytes that somebody who means harm would write."""
    frame = good[:5] if good[:1] == b"\0" else b""
    found = [
        b"",
        b"\0",
        b"\xff" * 9,
        b"\0" * 40,
        frame,
        b"\0\x7f\xff\xff\xff" + good,
        b"\0\xff\xff\xff\xffx",
        b"\1" + bytes(20),
    ]
    if "json" in name or name == "auto":
        for front in (frame, b"", b"j"):
            found += [front + b"[" * n + b"]" * n for n in (3_000, 100_000)]
            found += [front + b'{"user":' * n + b"1" + b"}" * n for n in (3_000,)]
        found += [
            b'{"user":"a"',
            b'"tags":[]}',
            b'{"user":"a"},{"user":"b"}',
            b'{"user":"a"} {"user":"b"}',
            b'{"user":[{"a":1}',
            b"1}]}",
        ]
        found += [b'{"user":"\\ud800"}', b'{"amount":1e999}', b"9" * 5000, b'{"user":"a","user":"b"}', b" ", b"\n"]
    if name == "auto":
        for tag in (b"l", b"u", b"e", b"m"):
            data = b"n"
            for _ in range(3_000):
                data = tag + b"\xff" + len(data).to_bytes(4, "big") + data
            found.append(data)
    if name.startswith("list"):
        found += [struct.pack(">bii", 0, 0, 1 << 30), struct.pack(">bii", 0, 1 << 30, 0), struct.pack(">bii", 0, -5, 7)]
        found += [struct.pack(">bi", 1, 0x7FFFFFFF), struct.pack(">bii", 1, 1, -2), struct.pack(">bi", 1, -5)]
        found += [struct.pack(">biiii", 0, 2, 1, 1, 2), struct.pack(">biii", 0, 1, 9, 1)]
    if "avro" in name:
        found += [frame + b"\2\2" * n + b"\2\0" for n in (600, 5_000, 1_000_000)]
        found += [
            frame + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1\0",
            frame + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0",
        ]
    if name == "protobuf":
        found += [
            frame + b"\0" + b"\x0b" * 10_000,
            frame + b"\0" + b"\x32\x80\x80\x80\x80\x10",
            frame + b"\xfe\xff\xff\xff\x0f",
        ]
    return found


def records(
    name: str, serde: Serde[Any], values: list[Any], count: int, seed: int
) -> Iterator[tuple[bool, bytes | None]]:
    """Whether it is good, and its bytes."""
    dice = random.Random(f"{name} {seed}")
    encoded = [serde.serialize(value) for value in values]
    whole = [data for data in encoded if data] or [b"x"]
    for data in nasty(name, whole[0]):
        yield False, data
        yield True, dice.choice(encoded)
    for number in range(count):
        if number % GOOD_EVERY == 0:
            yield True, dice.choice(encoded)
        elif dice.random() < 0.1:
            yield False, dice.randbytes(dice.randrange(40))
        else:
            yield False, changed(dice.choice(whole), dice)


def topic_of(name: str) -> str:
    """A topic for a serde: subjects in the registry are named after it."""
    return re.sub(r"\W", "-", name)


def pushed(
    name: str, serde: Serde[Any], rows: list[tuple[bool, bytes | None]], *, batch_size: int, dead_letters: bool
) -> tuple[dict[int, str], set[int]]:
    """What came out of a topology, by the records' numbers, and which records became dead letters."""
    builder = StreamsBuilder()
    topic = topic_of(name)
    stream: Any = builder.stream(topic, Consumed(key_serde=Serdes.long(), value_serde=serde))
    stream.map_values(repr).to("out", Produced(key_serde=Serdes.long(), value_serde=Serdes.auto()))
    settings: dict[str, Any] = {"deserialization.exception.handler": "continue"}
    if dead_letters:
        settings["errors.dead.letter.queue.topic.name"] = "dead"
    with TopologyTestDriver(builder.build(), settings, batch_size=batch_size) as driver:
        for number, (_, data) in enumerate(rows):
            driver.pipe_raw(topic, struct.pack(">q", number), data, number)
        driver.flush()
        out = {record.key: record.value for record in _all(driver, "out", "long", "auto")}
        dead = {record.key for record in _all(driver, "dead", "long", "bytes")} if dead_letters else set()
    return out, dead


def _all(driver: TopologyTestDriver, topic: str, key: str, value: str) -> list[Any]:
    return driver.output_topic(topic, key, value).read_records_to_list()


def check(name: str, serde: Serde[Any], values: list[Any], count: int, seed: int = 1) -> tuple[int, int]:
    """Runs malformed and good records by row and by column; gives how many were read, and how many refused."""
    rows = list(records(name, serde, values, count, seed))
    by_row, dead = pushed(name, serde, rows, batch_size=1, dead_letters=True)
    good = {number for number, (is_good, _) in enumerate(rows) if is_good}
    assert good <= by_row.keys(), f"{name}: good records are lost by row: {sorted(good - by_row.keys())[:5]}"
    assert dead == set(range(len(rows))) - by_row.keys(), f"{name}: dead letters are not those that did not come out"
    for batch_size, dead_letters in ((40, True), (17, False)):
        out, also_dead = pushed(name, serde, rows, batch_size=batch_size, dead_letters=dead_letters)
        differing = [n for n in range(len(rows)) if out.get(n) != by_row.get(n)]
        assert not differing, f"{name}: by column {[(rows[n], out.get(n), by_row.get(n)) for n in differing[:3]]}"
        assert also_dead == (dead if dead_letters else set())
    return len(by_row), len(dead)


def main() -> None:
    """Runs as many of each serde as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    failed = 0
    with EmbeddedRegistry() as registry:
        for kind, found in (("", serdes(None)), ("registry, ", serdes(registry.url))):
            for name, (serde, values) in found.items():
                if options.only not in name or (kind and type(serde).__module__.find("schemas") < 0):
                    continue
                bound = serde.for_topic(topic_of(name), "value") if hasattr(serde, "for_topic") else serde
                began = time.monotonic()
                try:
                    read, refused = check(name, bound, values, options.count, options.seed)
                    print(
                        f"{kind}{name}: {read:,} read, {refused:,} refused, {time.monotonic() - began:.0f} s",
                        flush=True,
                    )
                except Exception as error:  # noqa: BLE001 - told, and the others go on
                    failed += 1
                    print(f"{kind}{name}: FAILED {type(error).__name__}: {json.dumps(str(error))[:1500]}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
