"""A topology whose serdes have the application's facts: defaults, schema registry, topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from penstock.serde.headers import CurrentHeaders, bound, configured, has_schema, in_task, uses_headers
from penstock.topology.configured.default_serdes import with_default_serdes
from penstock.topology.nodes import Node, ProcessorNode
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

__all__ = ["headers_user", "with_current_headers", "with_serdes"]


def with_serdes(topology: Topology, config: Mapping[str, Any]) -> Topology:
    """Return the topology with every missing serde filled in, and schema serdes bound.

    Sources and sinks bind their serdes to a topic on first use; stores have the names of their changelogs here, and
    data that an operation encodes for itself has a name of its own, as in Kafka Streams.

    Args:
        topology: As built.
        config: The application's settings.

    Raises:
        TopologyError: A node or store needs a default and there is none.
    """
    defaults = (config.get("default.key.serde"), config.get("default.value.serde"))
    topology = with_default_serdes(topology, *defaults, untyped=config.get("penstock.untyped.stores") or "default")
    settings = getattr(config, "given", config)
    application = config.get("application.id") or "penstock"
    nodes = {name: _node(node, settings, application) for name, node in topology.nodes.items()}
    stores = {name: _store(spec, settings, application) for name, spec in topology.stores.items()}
    frames = {
        name: replace(source, **_changed(source, ["key_serde", "value_serde"], settings, source.topic))
        for name, source in topology.dataframes.items()
    }
    if frames:
        topology = replace(topology, dataframes=frames)
    if all(nodes[name] is topology.nodes[name] for name in nodes) and all(
        stores[name] is topology.stores[name] for name in stores
    ):
        return topology
    return replace(topology, nodes=nodes, stores=stores)


def _node(node: Node, settings: Mapping[str, Any], application: str) -> Node:
    if isinstance(node, ProcessorNode):
        field_names = [field.name for field in fields(node.operation) if field.name.endswith("_serde")]
        serdes = _changed(node.operation, field_names, settings, f"{application}-{node.name}")
        return replace(node, operation=replace(node.operation, **serdes)) if serdes else node
    serdes = _changed(node, ["key_serde", "value_serde"], settings, None)
    return replace(node, **serdes) if serdes else node


def _store(spec: StoreSpec, settings: Mapping[str, Any], application: str) -> StoreSpec:
    serdes = _changed(spec, ["key_serde", "value_serde"], settings, f"{application}-{spec.name}-changelog")
    return replace(spec, **serdes) if serdes else spec


def _changed(holder: Any, names: list[str], settings: Mapping[str, Any], topic: str | None) -> dict[str, Any]:
    """Return the schema serdes among these attributes, bound and configured."""
    serdes = {}
    for name in names:
        serde = getattr(holder, name)
        if has_schema(serde):
            serde = configured(serde, settings)
            serdes[name] = serde if topic is None else bound(serde, topic, "key" if "key" in name else "value")
    return serdes


def headers_user(topology: Topology) -> str | None:
    """Return the name of a node or store whose serde reads or writes record headers; None if there is none."""
    holders: list[tuple[str, Any]] = [*topology.nodes.items(), *topology.stores.items()]
    for name, holder in holders:
        serdes = _serdes_of(holder.operation if isinstance(holder, ProcessorNode) else holder)
        if any(map(uses_headers, serdes.values())):
            return name
    return None


def with_current_headers(topology: Topology, current: CurrentHeaders) -> Topology:
    """Return the topology as a task runs it, whose serdes find the headers of the present record in one place."""
    nodes = {}
    for name, node in topology.nodes.items():
        if isinstance(node, ProcessorNode):
            nodes[name] = replace(node, operation=_in_task(node.operation, current))
        else:
            nodes[name] = _in_task(node, current)
    stores = {name: _in_task(spec, current) for name, spec in topology.stores.items()}
    return replace(topology, nodes=nodes, stores=stores)


def _serdes_of(holder: Any) -> dict[str, Any]:
    names = [field.name for field in fields(holder) if field.name.endswith("_serde")]
    return {name: getattr(holder, name) for name in names}


def _in_task(holder: Any, current: CurrentHeaders) -> Any:
    serdes = {name: in_task(serde, current) for name, serde in _serdes_of(holder).items() if uses_headers(serde)}
    return replace(holder, **serdes) if serdes else holder
