"""The report of a conversion, and the errors that refuse one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import CheckpointMismatchError
from penstock.topology.plan.evolution import compare

if TYPE_CHECKING:
    from penstock.engines.application.planning import PlannedApp
    from penstock.topology.plan.plan_json import StoredPlan

__all__ = ["ConversionReport", "refusal", "require_unchanged"]


@dataclass(frozen=True, slots=True)
class ConversionReport:
    """The result of a conversion, or of looking at one.

    Attributes:
        application: The ``application.id``.
        before: The mode that the application was in; None if it has not run.
        after: The mode that it is to be in.
        found: The facts that were found.
        steps: The steps that were taken, or that would be.
        is_done: Whether they were taken.
    """

    application: str
    before: str | None
    after: str
    found: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    is_done: bool = False


def refusal(application: str, after: str, why: str, hint: str) -> CheckpointMismatchError:
    """Make the error for an application that cannot be converted."""
    return CheckpointMismatchError(
        f"application {application!r} cannot be converted to processing.mode={after}: {why}. Nothing was changed",
        hint=hint,
        application=application,
    )


def require_unchanged(app: PlannedApp, stored: StoredPlan, before: str, after: str) -> None:
    """Raise CheckpointMismatchError if the topology has changed since the application ran in the earlier mode.

    Topics that have grown are not a change: their new partitions have neither state nor positions.
    """
    change = compare(stored, app.document)
    moving = stored.moving({sub.id: sub.stores for sub in app.plan.subtopologies})
    stores = set(stored.plan["stores"]) ^ set(app.document["stores"])
    reasons = [*change.reasons, *change.migrations]
    if stores and not reasons:
        reasons.append(f"other stores: {', '.join(sorted(stores))}")
    if moving and not reasons:
        reasons.append("stores have come into another sub-topology")
    if reasons:
        raise refusal(
            app.application,
            after,
            f"the topology has changed since it ran ({'; '.join(reasons)})",
            f"Run this version once with processing.mode={before}, then convert; or convert with the version that ran "
            "last.",
        )
