"""The plan as JSON, stored with the checkpoint, and its fingerprint."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from penstock.plan.plan import PhysicalPlan
from penstock.topology.topology import Topology

__all__ = ["FORMAT", "document_of", "fingerprint_of"]

FORMAT = 1


def document_of(plan: PhysicalPlan, topology: Topology) -> dict[str, Any]:
    """What must stay the same, or change only in known ways, for a checkpoint to be continued.

    The bodies of functions are not part of it: they may change.
    """
    return {
        "format": FORMAT,
        "application": plan.application_id,
        "subtopologies": {
            str(sub.id): {
                "nodes": list(sub.nodes),
                "topics": sorted(sub.external_topics),
                "internal_topics": sorted(sub.internal_topics),
                "stores": sorted(sub.stores),
                "tasks": sub.tasks,
                "runs": len(sub.levels),
            }
            for sub in plan.subtopologies
        },
        "internal_topics": {topic: plan.partitions[topic] for topic in sorted(plan.internal_topics)},
        "stores": {
            name: {
                "kind": spec.kind,
                "key_serde": _serde_name(spec.key_serde),
                "value_serde": _serde_name(spec.value_serde),
                "timestamped": spec.timestamped,
                "window_size_ms": spec.window_size_ms,
                "retention_ms": spec.retention_ms,
                "history_ms": spec.history_ms,
                "retain_duplicates": spec.retain_duplicates,
            }
            for name, spec in sorted(topology.stores.items())
        },
    }


def fingerprint_of(document: dict[str, Any]) -> str:
    """A short name of a document's contents."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _serde_name(serde: Any) -> str | None:
    """A serde's name; None: the application's default."""
    return None if serde is None else str(getattr(serde, "name", serde))
