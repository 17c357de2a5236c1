"""An application with a global table."""

from __future__ import annotations

from typing import Any, Literal

from penstock import Consumed, Materialized, Produced, StreamsBuilder
from penstock.engines.threads.app import ThreadApp
from threads import thread_app

TEXT: dict[str, Any] = {"key_serde": "string", "value_serde": "string"}


def globals_app(
    log: Any, root: str | None, store_type: Literal["rocksdb", "in_memory"] = "rocksdb", **settings: Any
) -> ThreadApp:
    """Orders joined with a global table; its topics are created."""
    there = {topic.name for topic in log.topics()}
    for name, partitions in (("names", 2), ("orders", 1), ("out", 1)):
        if name not in there:
            log.create_topic(name, partitions)
    builder = StreamsBuilder()
    kept = Materialized("names", store_type=store_type)
    names = builder.global_table("names", Consumed(**TEXT), materialized=kept)
    orders = builder.stream("orders", Consumed(**TEXT))
    joined = orders.join(names, lambda order, name: f"{order}@{name}", key=lambda value: value)
    joined.to("out", Produced(**TEXT))
    return thread_app(builder.build(), settings, log, root)
