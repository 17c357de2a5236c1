"""From ``Materialized`` to the specification of a store, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.api.options import Materialized
from penstock.api.serdes import for_store, for_topic
from penstock.base.durations import duration_ms
from penstock.errors import TopologyError
from penstock.topology.stores import StoreSpec

if TYPE_CHECKING:
    from penstock.topology.building.builder import GraphBuilder
    from penstock.topology.operations.definitions import WindowSpec

__all__ = ["key_value_spec", "named", "optional_spec", "window_spec"]


def named(materialized: Materialized | None, builder: GraphBuilder, prefix: str) -> Materialized:
    """Return the options with a generated store name if the user set none."""
    materialized = materialized or Materialized()
    return materialized if materialized.name else materialized.with_name(builder.names.store(prefix))


def key_value_spec(materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
    """Make the store of a table: timestamped, or versioned if it has a history.

    The serdes of ``materialized`` replace those inherited.
    """
    if materialized.retention is not None:
        raise TopologyError(
            f"store {materialized.name!r} is of a table, which has no retention",
            hint="Retention is for windowed aggregations; history= makes a versioned store.",
            store=materialized.name,
        )
    spec = _common(materialized, key_serde, value_serde)
    if materialized.history is not None:
        if materialized.store_type == "in_memory":
            raise TopologyError(
                f"store {materialized.name!r} is versioned and in memory",
                hint="Versioned stores are kept on disk: leave out store_type.",
                store=materialized.name,
            )
        history_ms = duration_ms(materialized.history)
        return replace(spec, kind="versioned", timestamped=False, history_ms=history_ms, of_dsl=False, is_placed=True)
    return spec


def window_spec(materialized: Materialized, key_serde: Any, value_serde: Any, windows: WindowSpec) -> StoreSpec:
    """Make the store of a windowed aggregation."""
    if materialized.history is not None:
        raise TopologyError(
            f"store {materialized.name!r} is of windows, which have no versions",
            hint="Use retention= instead of history=.",
        )
    needed = windows.retention_ms
    retention = needed if materialized.retention is None else duration_ms(materialized.retention)
    if retention < needed:
        least = {"session": "the gap", "sliding": "twice the time difference"}.get(windows.kind, "the window's size")
        raise TopologyError(
            f"store {materialized.name!r} would keep windows {retention} ms, but they take records for {needed} ms",
            hint=f"Give a retention of at least {least} plus grace.",
            store=materialized.name,
        )
    spec = _common(materialized, key_serde, value_serde)
    if windows.kind == "session":
        return replace(spec, kind="session", timestamped=False, retention_ms=retention)
    return replace(spec, kind="window", window_size_ms=windows.size_ms, retention_ms=retention)


def optional_spec(
    materialized: Materialized | None, builder: GraphBuilder, prefix: str, key_serde: Any, value_serde: Any
) -> StoreSpec | None:
    """Make the store of ``filter`` and the like: none without a name, although options without one use up a name."""
    if materialized is None:
        return None
    if materialized.name is None:
        builder.names.store(prefix)
        return None
    return key_value_spec(materialized, key_serde, value_serde)


def _common(materialized: Materialized, key_serde: Any, value_serde: Any) -> StoreSpec:
    if materialized.name is None:
        raise TopologyError("a store has no name", hint='Give one: Materialized("name").')
    return StoreSpec(
        materialized.name,
        "timestamped",
        materialized.key_serde if materialized.key_serde is not None else for_topic(key_serde),
        for_store(materialized.value_serde if materialized.value_serde is not None else value_serde),
        persistent=materialized.store_type != "in_memory",
        of_dsl=True,
        is_placed=materialized.store_type is not None,
        timestamped=True,
        caching=materialized.caching,
        logging=materialized.logging,
        log_config=dict(materialized.log_config),
    )
