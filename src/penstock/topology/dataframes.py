"""Streaming DataFrames as inputs of a topology: what is pure data here, and the DataFrame itself beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import TopologyError
from penstock.topology.nodes import SourceNode

if TYPE_CHECKING:
    from penstock.topology.topology import Topology

__all__ = ["DataFrameSource", "OutputMode", "for_application", "session_of"]

OutputMode = Literal["append", "update"]


@dataclass(frozen=True)
class DataFrameSource:
    """One DataFrame that feeds a topic of the application.

    ``key``, ``value`` and ``timestamp`` are column names or Spark columns; a value of several names is a struct, and
    None stands for no key, for all columns, and for the time of writing. The serdes tell how columns become bytes.
    Without ``frame``, which does not travel, the application must be given the DataFrame again.
    """

    name: str
    topic: str
    key_serde: Any
    value_serde: Any
    partitions: int | None = None
    output_mode: OutputMode = "append"
    key: Any = field(default=None, compare=False)
    value: Any = field(default=None, compare=False)
    timestamp: Any = field(default=None, compare=False)
    frame: Any = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to the driver's Spark session: workers read the topic."""
        names = {"key": self.key, "value": self.value, "timestamp": self.timestamp}
        kept = {k: v if v is None or isinstance(v, str | tuple) else None for k, v in names.items()}
        return {**self.__dict__, **kept, "frame": None}

    @property
    def task(self) -> str:
        """Its name in the ledger."""
        return f"dataframe-{self.name}"


def for_application(topology: Topology, application_id: str, frames: Mapping[str, Any]) -> Topology:
    """The topology with the physical names of its DataFrames' topics, ``<application.id>-<name>-dataframe``.

    Args:
        topology: As it was built.
        application_id: Whose topics they are.
        frames: DataFrames by name, in place of those given to the builder.

    Raises:
        TopologyError: A name in ``frames`` that the topology does not have.
    """
    unknown = frames.keys() - topology.dataframes.keys()
    if unknown:
        known = ", ".join(topology.dataframes) or "none"
        raise TopologyError(
            f"dataframes= names {min(unknown)!r}, which the topology does not read",
            hint=f"stream_dataframe(..., name=...) gave these names: {known}.",
        )
    if not topology.dataframes:
        return topology
    physical = {source.topic: f"{application_id}-{source.topic}" for source in topology.dataframes.values()}
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
    """The Spark session in which the topology's DataFrames were made; None without any."""
    frames = [source.frame for source in topology.dataframes.values() if source.frame is not None]
    return frames[0].sparkSession if frames else None
