"""How fast serdes with schemas decode and encode: by column against row by row.

    python bench/serdes.py --records 200000 --json out.json

One process, one thread, no registry over the network. "rows" is what a topology of Python functions pays, "columns" what
one of expressions pays.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from penstock.serde import Column, Serdes
from penstock.testing import EmbeddedRegistry

_SINGLE = 10_000
FIELDS = (("ip", "string"), ("path", "string"), ("status", "int"), ("bytes", "long"), ("seconds", "double"))
AVRO = {
    "type": "record",
    "name": "Hit",
    "fields": [
        *({"name": name, "type": kind} for name, kind in FIELDS),
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "agent", "type": ["null", "string"], "default": None},
    ],
}
JSON = {
    "type": "object",
    "properties": {
        **{
            name: {"type": {"int": "integer", "long": "integer", "double": "number"}.get(kind, kind)}
            for name, kind in FIELDS
        },
        "at": {"type": "integer"},
        "agent": {"type": ["null", "string"]},
    },
}


def message_class() -> Any:
    """The same record as a Protobuf message."""
    file = FileDescriptorProto(name="hit.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Hit")
    kinds = {"string": "STRING", "int": "INT32", "long": "INT64", "double": "DOUBLE"}
    for number, (name, kind) in enumerate((*FIELDS, ("at", "long"), ("agent", "string")), 1):
        field = message.field.add(name=name, number=number, type=getattr(FieldDescriptorProto, f"TYPE_{kinds[kind]}"))
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Hit"))


def records(count: int) -> list[dict[str, Any]]:
    return [
        {
            "ip": f"10.{i % 7}.{i % 200}.{i % 251}",
            "path": f"/products/{i % 1000}/reviews",
            "status": (200, 200, 200, 404, 500)[i % 5],
            "bytes": i * 37 % 100_000,
            "seconds": i % 100 / 8,
            "at": 1_790_000_000_000 + i,
            "agent": "Mozilla/5.0 (X11; Linux x86_64)" if i % 3 else None,
        }
        for i in range(count)
    ]


def rate(count: int, work: Callable[[], object], rounds: int) -> int:
    """Records a second, the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return int(count / best)


def measure(serde: Any, rows: list[Any], rounds: int) -> dict[str, int]:
    data: pa.Array = serde.encode(Column.of_items(rows))
    raw = data.to_pylist()
    column = serde.decode(data)
    series = column.series()
    count = len(rows)
    few = rows[:_SINGLE]  # one at a time takes long
    return {
        "decode_rows": rate(len(few), lambda: serde.deserialize_rows(raw[:_SINGLE]), rounds),
        "decode_columns": rate(count, lambda: serde.decode(data).series(), rounds),
        "encode_rows": rate(len(few), lambda: serde.serialize_rows(few), rounds),
        "encode_items": rate(count, lambda: serde.encode(Column.of_items(rows)), rounds),
        "encode_columns": rate(count, lambda: serde.encode(Column.of_series(series)), rounds),
        "handed_on": rate(count, lambda: serde.encode(column), rounds),
        "bytes_per_record": data.nbytes // count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = records(args.records)
    plain = [{name: value for name, value in row.items() if value is not None} for row in rows]
    result: dict[str, Any] = {"records": args.records, "python": platform.python_version(), "cpus": os.cpu_count()}
    with EmbeddedRegistry() as registry:
        serdes = {
            "avro": (Serdes.avro(AVRO, registry=registry.url), rows),
            "protobuf": (Serdes.protobuf(message_class(), registry=registry.url), plain),
            "json_schema": (Serdes.json_schema(JSON, registry=registry.url), rows),
            "json": (
                Serdes.json(
                    {
                        name: {"int": "long"}.get(kind, kind)
                        for name, kind in (*FIELDS, ("at", "long"), ("agent", "string"))
                    }
                ),
                rows,
            ),
        }
        for name, (serde, values) in serdes.items():
            bound = serde.for_topic(name, "value") if hasattr(serde, "for_topic") else serde
            result[name] = measure(bound, values, args.rounds)
            print(name, result[name], flush=True)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
