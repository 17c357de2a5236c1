"""The check that a topology can run in continuous mode."""

from __future__ import annotations

from penstock.topology.topology import Topology

__all__ = ["continuous_refusal"]


def continuous_refusal(topology: Topology) -> str | None:
    """Return why ``processing.mode=continuous`` cannot run a topology; None: it can."""
    if topology.dataframes:
        return (
            f"the rows of a DataFrame come in batches, and the topology reads {', '.join(sorted(topology.dataframes))}"
        )
    return None
