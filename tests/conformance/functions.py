"""The fixed library of named functions that recorded cases use. Every function is pure and total."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from java_errors import boom
from penstock.serde.windowed import Windowed

__all__ = [
    "aggregator",
    "inner",
    "joiner",
    "joiner_type",
    "joiner_uses_key",
    "keeps_key_type",
    "key_function",
    "literal_type",
    "measure",
    "merger",
    "pair_function",
    "pair_type",
    "pairs_function",
    "pairs_type",
    "predicate",
    "reducer",
    "text",
    "throw_at",
    "timestamp_extractor",
    "uses_key",
    "value_function",
    "value_type",
    "values_function",
    "values_type",
]  # fmt: skip

Spec = dict[str, Any]


def text(x: Any) -> str:
    """The text of a key or value."""
    if isinstance(x, Windowed):
        return f"{text(x.key)}@{x.window.start}-{x.window.end}"
    return "null" if x is None else str(x)


def measure(x: Any) -> int:
    """A long itself, of a string its length, of null 0."""
    return 0 if x is None else x if isinstance(x, int) else len(text(x))


def throws(f: Spec) -> bool:
    return bool(f.get("name") == "throw_at")


def inner(f: Spec) -> Spec:
    """The function inside ``throw_at`` wrappers."""
    while throws(f):
        f = f["fn"]
    return f


def throwing(
    f: Spec, of: Callable[[Spec], Callable[..., Any]], sees: Callable[..., tuple[Any, Any]]
) -> Callable[..., Any]:
    """``throw_at``: what it wraps, unless the predicate holds for the key and value that it sees of the arguments."""
    at, wrapped = predicate(f["at"]), of(f["fn"])

    def fn(*arguments: Any) -> Any:
        key, value = sees(*arguments)
        if at(key, value):
            raise boom(f, f"boom {text(key)}={text(value)}")
        return wrapped(*arguments)

    return fn


def throw_at(f: Spec, part: str, key: Any, value: Any) -> None:
    """Raise if the operator or processor has such a predicate, and it holds."""
    if part in f and predicate(f[part])(key, value):
        raise boom(f, f"boom {text(key)}={text(value)}")


def remainder(a: int, m: int) -> int:
    """Java's %: the sign is that of the dividend."""
    return a % m if a >= 0 else -(-a % m)


def literal_type(value: Any) -> str:
    return "long" if isinstance(value, int) else "string"


def _keep(x: str, f: Spec) -> str:
    return x[-f.get("keep", 24) :]


def _field(f: Spec, v: Any) -> str | None:
    if v is None:
        return None
    parts, i = text(v).split(f.get("sep", ",")), f.get("i", 0)
    return parts[i] if i < len(parts) and parts[i] else None


def _words(v: Any) -> list[str]:
    return [] if v is None else [w for w in re.split("[^a-z0-9]+", text(v).lower()) if w]


def predicate(f: Spec) -> Callable[[Any, Any], bool]:
    """(key, value) -> bool."""
    if throws(f):
        return throwing(f, predicate, lambda k, v: (k, v))
    name = f["name"]
    if name == "not":
        inner = predicate(f["fn"])
        return lambda k, v: not inner(k, v)
    return {
        "always": lambda k, v: f["value"],
        "key_in": lambda k, v: k is not None and text(k) in f["keys"],
        "value_is_null": lambda k, v: v is None,
        "value_not_null": lambda k, v: v is not None,
        "value_length_gt": lambda k, v: v is not None and len(text(v)) > f.get("n", 0),
        "value_gt": lambda k, v: v is not None and v > f.get("n", 0),
        "value_contains": lambda k, v: v is not None and f["s"] in text(v),
        "measure_mod": lambda k, v: v is not None and measure(v) % f.get("m", 2) == f.get("r", 0),
    }[name]


def value_function(f: Spec) -> Callable[[Any, Any], Any]:
    """(key, value) -> value."""
    if throws(f):
        return throwing(f, value_function, lambda k, v: (k, v))
    name = f["name"]
    if name == "null_if":
        inner = predicate(f["fn"])
        return lambda k, v: None if inner(k, v) else v
    whole = {
        "identity": lambda k, v: v,
        "const": lambda k, v: f["value"],
        "null_to": lambda k, v: f["value"] if v is None else v,
    }
    if name in whole:
        return whole[name]
    some = {
        "uppercase": lambda k, v: text(v).upper(),
        "append": lambda k, v: text(v) + f["s"],
        "prefix_key": lambda k, v: f"{text(k)}:{text(v)}",
        "reverse": lambda k, v: text(v)[::-1],
        "trunc": lambda k, v: text(v)[: f.get("n", 8)],
        "to_string": lambda k, v: text(v),
        "length": lambda k, v: len(text(v)),
        "measure": lambda k, v: measure(v),
        "to_long": lambda k, v: int(text(v)) if re.fullmatch("-?[0-9]{1,15}", text(v)) else 0,
        "add": lambda k, v: v + f.get("n", 1),
        "mul": lambda k, v: v * f.get("n", 2),
        "mod": lambda k, v: v % f.get("n", 7),
        "field": lambda k, v: _field(f, v),
    }[name]
    return lambda k, v: None if v is None else some(k, v)


def uses_key(f: Spec) -> bool:
    """Whether Java takes the form of the mapper that gets the key."""
    return f["name"] in ("prefix_key", "key_in") or any(part in f and uses_key(f[part]) for part in ("fn", "at"))


def joiner_uses_key(f: Spec) -> bool:
    """Whether Java takes the form of the joiner of streams that gets the key."""
    return inner(f)["name"] == "key_pair" or (throws(f) and uses_key(f["at"]))


def value_type(f: Spec, before: str) -> str:
    f = inner(f)
    name = f["name"]
    if name == "const":
        return literal_type(f["value"])
    if name in ("length", "measure", "to_long"):
        return "long"
    return (
        "string" if name in ("uppercase", "append", "prefix_key", "reverse", "trunc", "to_string", "field") else before
    )


def key_function(f: Spec) -> Callable[[Any, Any], Any]:
    """(key, value) -> key."""
    if throws(f):
        return throwing(f, key_function, lambda k, v: (k, v))
    return {
        "key": lambda k, v: k,
        "const": lambda k, v: None if f["value"] is None else text(f["value"]),
        "value": lambda k, v: None if v is None else text(v),
        "first_char": lambda k, v: None if v is None else text(v)[:1] or None,
        "value_field": lambda k, v: _field(f, v),
        "bucket": lambda k, v: None if v is None else f"b{measure(v) % f.get('n', 3)}",
        "key_append": lambda k, v: None if k is None else text(k) + f["s"],
        "key_upper": lambda k, v: None if k is None else text(k).upper(),
        "key_to_string": lambda k, v: None if k is None else text(k),
        "windowed_key": lambda k, v: None if k is None else k.key,
    }[f["name"]]


def keeps_key_type(f: Spec) -> bool:
    return bool(inner(f)["name"] == "key")


def pair_function(f: Spec) -> Callable[[Any, Any], tuple[Any, Any]]:
    """(key, value) -> (key, value)."""
    if throws(f):
        return throwing(f, pair_function, lambda k, v: (k, v))
    if f["name"] == "null_pair":
        return lambda k, v: None  # type: ignore[return-value]
    if f["name"] == "swap":
        return lambda k, v: (None if v is None else text(v), None if k is None else text(k))
    key, value = key_function(f["kfn"]), value_function(f["vfn"])
    return lambda k, v: (key(k, v), value(k, v))


def pair_type(f: Spec, before: str) -> str:
    f = inner(f)
    if f["name"] == "null_pair":
        return before
    return "string" if f["name"] == "swap" else value_type(f["vfn"], before)


def values_function(f: Spec) -> Callable[[Any, Any], list[Any]]:
    """(key, value) -> values."""
    if throws(f):
        return throwing(f, values_function, lambda k, v: (k, v))
    return {
        "words": lambda k, v: _words(v),
        "repeat": lambda k, v: [v] * f.get("n", 2),
        "with_key": lambda k, v: [v, None if v is None else f"{text(k)}:{text(v)}"],
        "none_if_null": lambda k, v: [] if v is None else [v],
    }[f["name"]]


def values_type(f: Spec, before: str) -> str:
    return "string" if inner(f)["name"] == "words" else before


def pairs_function(f: Spec) -> Callable[[Any, Any], list[tuple[Any, Any]]]:
    """(key, value) -> pairs."""
    if throws(f):
        return throwing(f, pairs_function, lambda k, v: (k, v))
    return {
        "words_as_keys": lambda k, v: [(w, None if k is None else text(k)) for w in _words(v)],
        "fan_out": lambda k, v: [(None if k is None else f"{text(k)}{i}", v) for i in range(1, f.get("n", 2) + 1)],
    }[f["name"]]


def pairs_type(f: Spec, before: str) -> str:
    return "string" if inner(f)["name"] == "words_as_keys" else before


def reducer(f: Spec) -> Callable[[Any, Any], Any]:
    """(aggregate, value) -> aggregate."""
    if throws(f):
        return throwing(f, reducer, lambda a, b: (None, b))
    name = f["name"]
    numbers = {"sum": lambda a, b: a + b, "diff": lambda a, b: a - b, "max": max, "min": min}
    if name in numbers:
        return lambda a, b: b if a is None else a if b is None else numbers[name](a, b)
    return {
        "concat": lambda a, b: _keep(text(a) + f.get("sep", "+") + text(b), f),
        "first": lambda a, b: a,
        "last": lambda a, b: b,
        "last_or_null": lambda a, b: None if remainder(measure(b), f.get("m", 3)) == 0 else b,
    }[name]


def aggregator(f: Spec) -> Callable[[Any, Any, Any], Any]:
    """(key, value, aggregate) -> aggregate."""
    if throws(f):
        return throwing(f, aggregator, lambda k, v, a: (k, v))
    return {
        "trace": lambda k, v, a: _keep(text(a) + f.get("sep", "+") + text(v), f),
        "trace_key": lambda k, v, a: _keep(text(a) + f.get("sep", "+") + text(k) + text(v), f),
        "sum_measure": lambda k, v, a: (a or 0) + measure(v) * f.get("sign", 1),
        "count": lambda k, v, a: (a or 0) + f.get("sign", 1),
        "null_at": lambda k, v, a: (
            None if remainder(measure(v), f.get("m", 5)) == 0 else _keep(f"{text(a)}+{text(v)}", f)
        ),
    }[f["name"]]


def merger(f: Spec) -> Callable[[Any, Any, Any], Any]:
    """(key, left, right) -> aggregate."""
    if throws(f):
        return throwing(f, merger, lambda k, a, b: (k, b))
    return {
        "sum": lambda k, a, b: (a or 0) + (b or 0),
        "trace": lambda k, a, b: _keep(text(a) + f.get("sep", "|") + text(b), f),
    }[f["name"]]


def joiner(f: Spec) -> Callable[[Any, Any, Any], Any]:
    """(key, left, right) -> value."""
    if throws(f):
        return throwing(f, joiner, lambda k, left, right: (k, right if f.get("of") == "right" else left))

    def pair(left: Any, right: Any) -> str:
        return f"({text(left)},{text(right)})"

    return {
        "pair": lambda k, left, right: pair(left, right),
        "key_pair": lambda k, left, right: f"{text(k)}={pair(left, right)}",
        "sum_measure": lambda k, left, right: measure(left) + measure(right),
        "left": lambda k, left, right: left,
        "right": lambda k, left, right: right,
        "pair_or_null": lambda k, left, right: (
            None if remainder(measure(left) + measure(right), f.get("m", 3)) == 0 else pair(left, right)
        ),
        "csv": lambda k, left, right: text(left) + f.get("sep", ",") + text(right),
    }[f["name"]]


def joiner_type(f: Spec, left: str, right: str) -> str:
    return {"left": left, "right": right, "sum_measure": "long"}.get(inner(f)["name"], "string")


def timestamp_extractor(f: Spec) -> Callable[[Any, int], int]:
    """(record, partition time) -> timestamp."""
    if throws(f):
        return throwing(f, timestamp_extractor, lambda record, time: (record.key, record.value))

    def extract(record: Any, partition_time: int) -> int:
        found = re.match(r"([0-9]{1,15})\|", text(record.value))
        if found:
            return int(found[1])
        return {"partition_time": partition_time, "drop": -1}.get(f.get("otherwise", "record"), record.timestamp)

    return extract
