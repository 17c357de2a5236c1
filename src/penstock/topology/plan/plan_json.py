"""The plan as JSON, with its fingerprint, as a checkpoint keeps it: ``plan.json``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.errors import CheckpointMismatchError
from penstock.topology.configured import UntypedDefault, with_stores
from penstock.topology.plan.plan import PhysicalPlan
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

__all__ = ["FORMAT", "Home", "StoredPlan", "document_of", "fingerprint_of"]

FORMAT = 1
_NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})
_SERDES = ("key_serde", "value_serde", "hash_serde")
_OWN_MODULES = re.compile(r"\bpenstock\.(?:[a-z0-9_]+\.)+(?=_?[A-Z])")


def document_of(plan: PhysicalPlan, topology: Topology, settings: Mapping[str, Any] = _NO_SETTINGS) -> dict[str, Any]:
    """Return the document of a plan: the facts that a checkpoint depends on.

    A checkpoint can be continued if they are the same, or have changed only in known ways. The bodies of functions are
    not part of it: they may change.

    Args:
        plan: The plan.
        topology: The topology, as built.
        settings: The application's: they decide about stores that name no serde, and about the format of stores.
    """
    stores = {name: _store(spec, settings) for name, spec in sorted(topology.stores.items())}
    for name, spec in with_stores(topology, settings).stores.items():
        if spec.keeps_headers and name not in topology.global_stores:  # those are read again into their other format
            stores[name]["keeps_headers"] = True
    defaults = {
        fact: _serde_name(_of(settings[f"default.{fact.replace('_', '.')}"]))
        for fact in ("key_serde", "value_serde")
        if settings.get(f"default.{fact.replace('_', '.')}") is not None
    }
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
        "partitions": {topic: plan.partitions[topic] for topic in sorted(plan.external_topics)},
        "stores": stores,
        **({"defaults": defaults} if defaults and any(None in facts.values() for facts in stores.values()) else {}),
    }


def _store(spec: StoreSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    serdes = {fact: getattr(spec, fact) for fact in _SERDES}
    untyped = any(isinstance(serde, UntypedDefault) for serde in serdes.values())
    names = {fact: _auto_or_default(fact, serde, settings) for fact, serde in serdes.items()}
    hashed = names.pop("hash_serde")
    return {
        "kind": spec.kind,
        **names,
        "timestamped": spec.timestamped,
        "window_size_ms": spec.window_size_ms,
        "retention_ms": spec.retention_ms,
        "history_ms": spec.history_ms,
        "retain_duplicates": spec.retain_duplicates,
        "ttl_ms": spec.ttl_ms,
        "persistent": spec.persistent,
        "time_ordered": spec.time_ordered,
        **({"hash_serde": hashed} if spec.holds_hashes else {}),
        **({"untyped": True} if untyped else {}),
    }


def _auto_or_default(fact: str, serde: Any, settings: Mapping[str, Any]) -> str | None:
    """Return the name of a store's serde; None: the application's default."""
    if not isinstance(serde, UntypedDefault):
        return _serde_name(serde)
    default = settings.get("default.key.serde" if fact == "key_serde" else "default.value.serde")
    return "auto" if default is None or settings.get("penstock.untyped.stores") == "auto" else None


def _of(serde: Any) -> Any:
    if serde is None:
        return None
    from penstock.serde import Serdes

    return Serdes.of(serde)


def fingerprint_of(document: dict[str, Any]) -> str:
    """Return a short name of a document's contents."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _serde_name(serde: Any) -> str | None:
    """Return a serde's name; None: the application's default."""
    return None if serde is None else _stable(str(getattr(serde, "name", serde)))


def _stable(name: str) -> str:
    """Return a serde's name without the modules of this package, which move from version to version.

    >>> _stable("<class 'penstock.serde.subscription_serdes.SubscriptionSerde'>"), _stable("orders.serdes.OrderSerde")
    ("<class 'penstock.SubscriptionSerde'>", 'orders.serdes.OrderSerde')
    """
    return _OWN_MODULES.sub("penstock.", name)


class Home(NamedTuple):
    """The sub-topology whose segments hold a store: its id, its tasks, and how often they run in a batch."""

    subtopology: int
    tasks: int
    runs: int


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The plan of a checkpoint, and the remains of earlier plans in it.

    Attributes:
        plan: The document of the newest plan.
        fingerprints: Of all plans so far; segments of each may be continued.
        dropped: Stores that were taken out on purpose, with their descriptions; their rows are still in the segments,
            but for those of the tasks listed under ``lost``.
        last_id: The largest sub-topology id that was ever used.
        unsegmented: Sub-topology id -> the newest batch that its tasks have written when they may not have needed a
            segment: before they got their first store.
    """

    plan: Mapping[str, Any]
    fingerprints: tuple[str, ...] = ()
    dropped: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    last_id: int = -1
    unsegmented: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> StoredPlan:
        """Parse the contents of ``plan.json``, or of the log's note.

        Raises:
            CheckpointMismatchError: A newer version has written it.
        """
        plan_format = facts["plan"].get("format", FORMAT)
        if plan_format > FORMAT:
            raise CheckpointMismatchError(
                f"the plan of application {facts['plan'].get('application')!r} has format {plan_format}, this Penstock "
                f"reads format {FORMAT}",
                hint="Run the version of Penstock that wrote it, or a newer one. Nothing was changed.",
                format=plan_format,
            )
        last = max(map(int, facts["plan"]["subtopologies"]), default=-1)
        dropped = facts.get("dropped", {})
        last = max(last, facts.get("last_id", -1))
        unsegmented = {int(number): batch for number, batch in facts.get("unsegmented", {}).items()}
        plan = {**facts["plan"], "stores": _with_stable_names(facts["plan"]["stores"])}
        if "defaults" in plan:
            plan["defaults"] = _with_stable_serdes(plan["defaults"])
        return cls(plan, tuple(facts["fingerprints"]), _with_stable_names(dropped), last, unsegmented)

    def homes(self) -> dict[str, Home]:
        """Return store -> the sub-topology whose segments hold it, also of stores that were taken out."""
        homes = {
            name: Home(int(facts["subtopology"]), facts["tasks"], facts["runs"]) for name, facts in self.dropped.items()
        }
        for number, sub in self.plan["subtopologies"].items():
            homes |= dict.fromkeys(sub["stores"], Home(int(number), sub["tasks"], sub["runs"]))
        return homes

    def moving(self, subtopologies: Mapping[int, Iterable[str]]) -> dict[int, dict[str, Home]]:
        """Find the stores that come to lie in the segments of another sub-topology.

        Args:
            subtopologies: Id -> stores, of the new plan.

        Returns:
            New id -> store -> where it has been. Stores that stay are left out.
        """
        homes = self.homes()
        moves = {
            number: {name: homes[name] for name in stores if name in homes and homes[name].subtopology != number}
            for number, stores in subtopologies.items()
        }
        return {number: stores for number, stores in moves.items() if stores}

    def followed_by(
        self, document: Mapping[str, Any], fingerprint: str, written: Mapping[str, int] | None = None
    ) -> StoredPlan:
        """Return the note for a compatible plan that goes on from here.

        Args:
            document: That of the plan.
            fingerprint: Its fingerprint.
            written: Task -> the last batch that it has written, as the ledger has it.
        """
        unsegmented = dict(self.unsegmented)
        if fingerprint != self.fingerprints[-1]:
            for number, sub in self.plan["subtopologies"].items():
                batches = [batch for task, batch in (written or {}).items() if task.startswith(f"{number}_")]
                if batches and not sub["stores"]:
                    unsegmented[int(number)] = max(batches)
        fingerprints = (*(f for f in self.fingerprints if f != fingerprint), fingerprint)
        dropped = {name: facts for name, facts in self.dropped.items() if name not in document["stores"]}
        for number, sub in self.plan["subtopologies"].items():
            for name in sub["stores"]:
                if name not in document["stores"]:
                    home = {"subtopology": int(number), "tasks": sub["tasks"], "runs": sub["runs"]}
                    dropped[name] = {**self.plan["stores"][name], **home}
        last = max(self.last_id, *map(int, document["subtopologies"]))
        return StoredPlan(document, fingerprints, dropped, last, unsegmented)

    def losing(self, lost: Mapping[str, Collection[str]]) -> StoredPlan:
        """Return the same after rows of stores that were taken out were lost.

        Args:
            lost: Store -> the tasks that held them.
        """
        dropped = {
            name: {**facts, "lost": sorted({*facts.get("lost", ()), *lost[name]})} if name in lost else facts
            for name, facts in self.dropped.items()
        }
        return replace(self, dropped=dropped)

    @classmethod
    def first(cls, document: Mapping[str, Any], fingerprint: str) -> StoredPlan:
        """Return the note of an application that starts for the first time."""
        return cls(document, (fingerprint,), {}, max(map(int, document["subtopologies"])))

    def facts(self) -> dict[str, Any]:
        """Return the note as plain data; `of` is the way back."""
        facts: dict[str, Any] = {"fingerprints": list(self.fingerprints), "plan": self.plan, "last_id": self.last_id}
        facts |= {"dropped": self.dropped} if self.dropped else {}
        return facts | ({"unsegmented": self.unsegmented} if self.unsegmented else {})


def _with_stable_names(stores: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: _with_stable_serdes(facts) for name, facts in stores.items()}


def _with_stable_serdes(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the noted facts of a store, or the defaults, with the names that serdes have in every version."""
    return {fact: _stable(named) if fact in _SERDES and named else named for fact, named in facts.items()}
