"""A topology as an application runs it: completed by the settings, and checked with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import TopologyError
from penstock.topology.configured.serdes import with_serdes
from penstock.topology.configured.timestamp_extractors import extractor_of
from penstock.topology.configured.value_fields import check_fields
from penstock.topology.nodes import Node, SourceNode
from penstock.topology.operations.functions import Function
from penstock.topology.topology import Topology

__all__ = ["require_explicit_names", "with_settings"]

_GENERATED = re.compile(r"(?:.*-)?(?:STATE-STORE|(?:KSTREAM|KTABLE|COGROUPKSTREAM)(?:-[A-Z]+)+)-\d{10}(?:-.+)?")


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
    topology = with_serdes(topology, config)
    check_fields(topology.nodes)
    extractor = extractor_of(config.get("default.timestamp.extractor"))
    if extractor is None:
        return topology
    return replace(topology, nodes={name: _timed(node, extractor) for name, node in topology.nodes.items()})


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
    found = {kind: [name for name in names if _GENERATED.fullmatch(name)] for kind, names in kinds.items()}
    unnamed = "; ".join(
        f"following {kind} has not been named: {', '.join(names)}" for kind, names in found.items() if names
    )
    if unnamed:
        raise TopologyError(
            unnamed,
            hint='Name them: Materialized("name"), Grouped("name"), Repartitioned("name"), StreamJoined("name", '
            'store_name="name"), or leave out ensure.explicit.internal.resource.naming.',
        )
