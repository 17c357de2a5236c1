"""What the operators of a case have in common: what an id stands for, serdes by type, and the options of tables."""

# ruff: noqa: N818 - methods carry the names of the operators in the cases

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import functions as fns
from java_errors import java_error
from penstock.api.builder import StreamsBuilder
from penstock.api.options import Consumed, Materialized
from penstock.serde import BaseSerde, Serdes
from penstock.serde.bound_serdes import RecordHeaders
from penstock.serde.windowed import Windowed

__all__ = [
    "TEXTS", "NotBuilt", "Operators", "Spec", "Thing", "connected_stores", "plain", "reader", "serde", "value_only",
]  # fmt: skip

Spec = dict[str, Any]


class NotBuilt(Exception):
    """The case uses an operator that Penstock does not have yet."""


@dataclass
class Thing:
    """What an id stands for: a stream, a table or a grouping, with the types of its keys and values."""

    it: Any
    key: str
    value: str
    size: int = 0


def serde(type_name: str, size: int = 0) -> Any:
    if type_name == "string":
        return Serdes.string()
    if type_name == "bytes":
        return Serdes.bytes()
    if type_name == "long":
        return Serdes.long()
    if type_name == "windowed<string>":
        return Serdes.time_windowed(Serdes.string(), size)
    if type_name == "session<string>":
        return Serdes.session_windowed(Serdes.string())
    if type_name == "fussy":
        return FussySerde()
    if type_name == "stamped":
        return Serdes.of(StampedSerde())
    raise NotBuilt(f"keys of type {type_name}")


class FussySerde(BaseSerde):
    """A string serde that fails for texts that begin with ``!``, and for bytes that begin with ``?``."""

    def serialize(self, value: str | None) -> bytes | None:
        if value is not None and value.startswith("!"):
            raise java_error("org.apache.kafka.common.errors.SerializationException", f"cannot serialize {value}")
        return None if value is None else value.encode()

    def deserialize(self, data: bytes | None) -> str | None:
        if data is not None and data.startswith(b"?"):
            text = data.decode(errors="replace")
            raise java_error("org.apache.kafka.common.errors.SerializationException", f"cannot deserialize {text}")
        return None if data is None else data.decode()


class StampedSerde:
    """A string serde that adds the header ``ser`` with the text, and reads a text with ``~`` if there is one."""

    def serialize(self, topic: str, headers: RecordHeaders, value: str) -> bytes:
        headers.add("ser", value.encode())
        return value.encode()

    def deserialize(self, topic: str, headers: RecordHeaders, data: bytes) -> str:
        return data.decode() + ("~" if "ser" in headers else "")


TEXTS = ("fussy", "stamped")  # types whose topics are written and read as plain strings


def reader(type_name: str, size: int = 0) -> Any:
    """The serde by which the recorder reads and writes a topic."""
    return Serdes.string() if type_name in TEXTS else serde(type_name, size)


def plain(x: Any) -> Any:
    """A key or value as it stands in the case."""
    if isinstance(x, Windowed):
        return {"key": plain(x.key), "start": x.window.start, "end": x.window.end}
    return x.hex() if isinstance(x, bytes) else x


@dataclass
class Operators:
    """What the methods named ``op_<operator>`` of the families share."""

    case: Spec
    builder: StreamsBuilder = field(default_factory=StreamsBuilder)
    side: list[Spec] = field(default_factory=list)
    things: dict[str, Thing] = field(default_factory=dict)
    topics: dict[str, Thing] = field(default_factory=dict)
    stores: list[str] = field(default_factory=list)
    wrapped: list[str] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)
    refused: list[tuple[bytes | None, bytes | None, str]] = field(default_factory=list)
    running: dict[str, Any] = field(default_factory=dict)

    def source(self, n: Spec, number: int = 0) -> Thing:
        ids = n["in"] if isinstance(n["in"], list) else [n["in"]]
        return self.things[ids[number]]

    def materialized(self, n: Spec, key: Any, value: Any) -> Materialized:
        if "store" in n:
            self.stores.append(n["store"])
        return Materialized(
            n.get("store"),
            key_serde=key,
            value_serde=value,
            store_type=n.get("store_type"),
            caching=n.get("caching"),
            retention=n.get("retention_ms"),
            history=n.get("versioned_history_ms"),
        )

    def optional(self, n: Spec, key: Any, value: Any) -> Materialized | None:
        return self.materialized(n, key, value) if "store" in n else None

    def consumed(self, n: Spec, t: Thing) -> Consumed:
        extractor = fns.timestamp_extractor(n["timestamp_extractor"]) if "timestamp_extractor" in n else None
        key, value = (
            Serdes.string(invalid="replace") if kind == "string" and self.has_odd_bytes else serde(kind, t.size)
            for kind in (t.key, t.value)
        )
        return Consumed(n.get("name"), key_serde=key, value_serde=value, timestamp_extractor=extractor)

    @property
    def has_odd_bytes(self) -> bool:
        """Whether inputs may be no UTF-8, which Java's deserializer of strings replaces."""
        return any("key_hex" in record or "value_hex" in record for record in self.case.get("inputs", ()))


def value_only(fn: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda value: fn(None, value)


def connected_stores(n: Spec, f: Spec) -> list[str]:
    return [f["store"]] if "store" in f and not n.get("global_store") else []
