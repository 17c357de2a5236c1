"""The families of operators that random topologies are made of."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))

from interpreter import NotBuilt, interpret
from penstock.errors import PenstockError
from penstock.testing import TopologyTestDriver

__all__ = ["available"]

Spec = dict[str, Any]


def _count(window: Spec) -> list[Spec]:
    return [
        {"id": "g", "op": "groupByKey", "in": "s"},
        {"id": "w", "op": "windowedBy", "in": "g", "window": window},
        {"id": "c", "op": "count", "in": "w"},
    ]


def _join(left: str, right: str, **fields: Any) -> list[Spec]:
    return [{"id": "j", "op": "join", "kind": "inner", "in": [left, right], "fn": {"name": "pair"}, **fields}]


HOUR = 3_600_000
GLOBAL = {"id": "gt", "op": "globalTable", "topic": "g"}
VERSIONED = {"id": "v", "op": "table", "topic": "v", "store": "v", "versioned_history_ms": HOUR}
SAMPLES: dict[str, list[Spec]] = {
    "fields": [],  # processors that keep something in themselves, which is lost with their worker
    "stream-stream": _join("s", "s2", window={"before_ms": 10, "after_ms": 10, "grace_ms": 0}),
    "table-table": _join("t", "t2"),
    "foreign-key": [
        {"id": "j", "op": "fkJoin", "kind": "inner", "in": ["t", "t2"], "extractor": {"name": "first_char"}, "fn": {"name": "pair"}}
    ],
    "global": [GLOBAL, *_join("s", "gt", key_fn={"name": "key"})],
    "session": _count({"type": "session", "gap_ms": 10, "grace_ms": 0}),
    "sliding": _count({"type": "sliding", "size_ms": 10, "grace_ms": 0}),
    "suppress": [{"id": "x", "op": "suppress", "in": "t", "until": "time_limit", "limit_ms": 10, "buffer": {}}],
    "cogroup": [
        {"id": "g", "op": "groupByKey", "in": "s"},
        {"id": "c", "op": "cogroup", "in": ["g"], "fns": [{"name": "trace"}]},
        {"id": "a", "op": "aggregate", "in": "c", "init": ""},
    ],
    "versioned": [VERSIONED],
    "grace": [VERSIONED, *_join("s", "v", grace_ms=10)],
    "transform-values": [{"id": "x", "op": "transformValues", "in": "t", "fn": {"name": "append_key"}}],
}  # fmt: skip


@cache
def available() -> frozenset[str]:
    """The families that Penstock has."""
    return frozenset(name for name in SAMPLES if _is_built(name))


def _is_built(name: str) -> bool:
    string = {"key": "string", "value": "string"}
    sources = [
        {"id": "s", "op": "stream", "topic": "s"},
        {"id": "s2", "op": "stream", "topic": "s2"},
        {"id": "t", "op": "table", "topic": "t"},
        {"id": "t2", "op": "table", "topic": "t2"},
    ]
    topics = dict.fromkeys(("s", "s2", "t", "t2", "g", "v"), string)
    try:
        run = interpret({"config": {}, "topics": topics, "topology": [*sources, *SAMPLES[name]]})
        with TopologyTestDriver(run.topology) as driver:
            for store in run.stores:
                run.dump_store(driver, store)
    except (NotBuilt, PenstockError, AttributeError, TypeError):
        return False
    return True
