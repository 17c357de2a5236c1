"""The DataFrames of a topology, once the application that reads them is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.base.argument_checks import check_mapping
from penstock.errors import TopologyError
from penstock.topology.nodes import SourceNode
from penstock.topology.topology import Topology, internal_topic

__all__ = ["for_application", "session_of"]


def for_application(topology: Topology, application_id: str, frames: Mapping[str, Any]) -> Topology:
    """Return the topology with the physical names of its DataFrames' topics, ``<application.id>-<name>-dataframe``.

    Args:
        topology: As it was built.
        application_id: The ``application.id``.
        frames: DataFrames by name, in place of those of the builder.

    Raises:
        TopologyError: A name in ``frames`` that the topology does not have.
    """
    check_mapping(frames, "dataframes")
    unknown = frames.keys() - topology.dataframes.keys()
    if unknown:
        dataframe_names = ", ".join(topology.dataframes) or "none"
        raise TopologyError(
            f"dataframes= names {min(unknown)!r}, which the topology does not read",
            hint=f"stream_dataframe(..., name=...) gave these names: {dataframe_names}.",
        )
    if not topology.dataframes:
        return topology
    physical = {source.topic: internal_topic(application_id, source.topic) for source in topology.dataframes.values()}
    nodes = {
        name: replace(node, topics=tuple(physical.get(t, t) for t in node.topics))
        if isinstance(node, SourceNode)
        else node
        for name, node in topology.nodes.items()
    }
    sources = {
        name: replace(source, topic=physical[source.topic], frame=frames.get(name, source.frame))
        for name, source in topology.dataframes.items()
    }
    return replace(topology, nodes=nodes, dataframes=sources)


def session_of(topology: Topology) -> Any:
    """Return the Spark session in which the topology's DataFrames were made; None without any."""
    frames = [source.frame for source in topology.dataframes.values() if source.frame is not None]
    return frames[0].sparkSession if frames else None
