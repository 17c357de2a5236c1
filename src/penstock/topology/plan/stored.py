"""The plan as noted in a checkpoint: ``plan.json``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock.errors import CheckpointMismatchError
from penstock.topology.plan.document import FORMAT, with_stable_names

__all__ = ["Home", "StoredPlan"]


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
            plan["defaults"] = with_stable_names(plan["defaults"])
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
    return {name: with_stable_names(facts) for name, facts in stores.items()}
