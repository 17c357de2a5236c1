"""A topology as an application runs it: completed by the settings, and checked with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.base.clock import unix_ms
from penstock.errors import TopologyError
from penstock.serde.headers import uses_headers
from penstock.topology.configured.serdes import with_serdes
from penstock.topology.configured.value_fields import check_fields
from penstock.topology.nodes import Node, ProcessorNode, SourceNode
from penstock.topology.operations.base import StreamToTable
from penstock.topology.operations.functions import Function
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

__all__ = ["extractor_of", "require_explicit_names", "with_settings", "with_stores"]

_GENERATED = re.compile(r"(?:.*-)?(?:STATE-STORE|(?:KSTREAM|KTABLE|COGROUPKSTREAM)(?:-[A-Z]+)+)-\d{10}(?:-.+)?")
_OF_FOREIGN_KEYS = "KTABLE-FK-JOIN-"  # topics and stores inside a join, which Kafka lets have such names


def with_settings(topology: Topology, config: Mapping[str, Any]) -> Topology:
    """Return the topology with the application's serdes and timestamp extractor; a second call changes nothing.

    Args:
        topology: As built.
        config: The application's settings.

    Raises:
        TopologyError: A default serde is missing, a verb reads a field that a schema lacks, or a name is generated and
            ``ensure.explicit.internal.resource.naming`` is set.
    """
    if config.get("ensure.explicit.internal.resource.naming"):
        require_explicit_names(topology)
    topology = with_stores(with_serdes(topology, config), config)
    check_fields(topology.nodes)
    extractor = extractor_of(config.get("default.timestamp.extractor"))
    if extractor is None:
        return topology
    return replace(topology, nodes={name: _timed(node, extractor) for name, node in topology.nodes.items()})


def with_stores(topology: Topology, config: Mapping[str, Any]) -> Topology:
    """Return the topology with the place and the format of the stores of the DSL that the settings say."""
    supplier = config.get("dsl.store.suppliers.class") or config.get("default.dsl.store")
    in_memory, keeps_headers = supplier == "in_memory", config.get("dsl.store.format") == "HEADERS"
    stores = {name: _as_configured(spec, keeps_headers, in_memory) for name, spec in topology.stores.items()}
    if all(stores[name] is spec for name, spec in topology.stores.items()):
        return topology
    return replace(topology, stores=stores)


def _as_configured(spec: StoreSpec, keeps_headers: bool, in_memory: bool) -> StoreSpec:  # noqa: FBT001
    if in_memory and not spec.is_placed:
        spec = replace(spec, persistent=False)
    with_headers = keeps_headers and spec.of_dsl and (spec.persistent or spec.kind == "buffer")
    if spec.kind == "window" and spec.logs_headers and uses_headers(spec.value_serde):
        # Windows of joined streams keep headers for serdes that look at them; nobody else would see the difference.
        with_headers = keeps_headers or not spec.persistent
    return replace(spec, keeps_headers=True) if with_headers else spec


def _timed(node: Node, extractor: Function) -> Node:
    """Add the default extractor to sources without one; records of internal topics have their time already."""
    if not isinstance(node, SourceNode) or node.internal or node.global_store or node.timestamp_extractor is not None:
        return node
    return replace(node, timestamp_extractor=extractor)


def require_explicit_names(topology: Topology) -> None:
    """Check that no name depends on a verb's place in the program.

    Raises:
        TopologyError: The name of a store, its changelog or a repartition topic is generated.
    """
    changelogs = {name for name, spec in topology.stores.items() if spec.logging}
    kinds = {
        "changelog topic(s)": [f"{name}-changelog" for name in topology.stores if name in changelogs],
        "state store(s)": [name for name in topology.stores if name not in topology.global_stores],
        "repartition topic(s)": list(topology.internal_topics),
    }
    generated_names = {
        kind: [name for name in names if _GENERATED.fullmatch(name) and not name.startswith(_OF_FOREIGN_KEYS)]
        for kind, names in kinds.items()
    }
    generated_names["state store(s)"] += [  # Kafka counts the name that to_table() would give its store
        f"the store of {node.name}"
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode)
        and isinstance(node.operation, StreamToTable)
        and node.operation.store is None
    ]
    unnamed = "; ".join(
        f"following {kind} has not been named: {', '.join(names)}" for kind, names in generated_names.items() if names
    )
    if unnamed:
        raise TopologyError(
            unnamed,
            hint='Name them: Materialized("name"), Grouped("name"), Repartitioned("name"), StreamJoined("name", '
            'store_name="name"), or leave out ensure.explicit.internal.resource.naming.',
        )


def extractor_of(setting: Any) -> Function | None:
    """Return the function for a value of the setting; None: the records' own timestamps, which must be valid."""
    fn = _BY_NAME[setting] if isinstance(setting, str) else setting
    if fn is None:
        return None
    return Function.wrap(fn, verb="default.timestamp.extractor", allowed=(1, 2), expression=False)


def _skip_invalid(record: Any, partition_time_ms: int) -> int:  # noqa: ARG001 - an extractor's signature
    """Return the record's own timestamp; a negative one drops the record and is logged."""
    return int(record.timestamp)


def _partition_time_if_invalid(record: Any, partition_time_ms: int) -> int:
    """Return the record's own timestamp, or else the largest so far of its partition."""
    stamp = int(record.timestamp) if record.timestamp >= 0 else partition_time_ms
    if stamp < 0:
        raise ValueError("the first record of the partition has no valid timestamp")
    return stamp


def _wall_clock(record: Any, partition_time_ms: int) -> int:  # noqa: ARG001 - an extractor's signature
    """Return the present time."""
    return unix_ms()


_BY_NAME: dict[str, Callable[[Any, int], int] | None] = {
    "FailOnInvalidTimestamp": None,  # the behaviour without an extractor
    "LogAndSkipOnInvalidTimestamp": _skip_invalid,
    "UsePartitionTimeOnInvalidTimestamp": _partition_time_if_invalid,
    "WallclockTimestampExtractor": _wall_clock,
}
