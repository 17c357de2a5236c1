"""Connectors, schemas and statements of SQL, where the console knows a worker, a registry or a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.schemas import KINDS, LEVELS, difference
from penstock.console.web.page import NotThereError, Visit, whole
from penstock.console.web.pages.application_pages import linked_topics
from penstock.errors import PenstockError

__all__ = ["connectors", "schemas", "sql"]


def connectors(visit: Visit) -> Mapping[str, Any]:
    """Return the connectors, and the tasks and topics of the chosen one."""
    worker = visit.site.connectors
    facts: dict[str, Any] = {
        "url_of_worker": None if worker is None else worker.url,
        "rows": [],
        "failed": 0,
        "chosen": None,
        "topics": [],
        "there": frozenset(),
        "problem": None,
    }
    if worker is None:
        return facts
    try:
        rows = [visit.site.exposure.connector(each) for each in worker.all()]
    except PenstockError as error:
        return {**facts, "problem": visit.site.exposure.error(error)}
    name = visit.get("name")
    chosen = next((row for row in rows if row.name == name), None)
    if name and chosen is None:
        raise NotThereError(f"there is no connector {name[:100]!r}", hint="The page of connectors lists them.")
    topics = [] if chosen is None else worker.topics(chosen.name)
    failed = sum(row.has_failed for row in rows)
    return {**facts, "rows": rows, "failed": failed, "chosen": chosen, "topics": topics, "there": linked_topics(visit)}


def sql(visit: Visit) -> Mapping[str, Any]:
    """Return where statements run; their results come by the page's script."""
    return {"statements": visit.site.statements}


_MOST_SUBJECTS = 2_000


def schemas(visit: Visit) -> Mapping[str, Any]:
    """Return the subjects, and the chosen version of the chosen one beside another."""
    registry = visit.site.schemas
    facts: dict[str, Any] = {
        "url_of_registry": None if registry is None else registry.url,
        "subjects": [],
        "total": 0,
        "live": set(),
        "level": "",
        "chosen": None,
        "kinds": KINDS,
        "levels": LEVELS,
        "problem": None,
    }
    if registry is None:
        return facts
    try:
        subjects = registry.subjects(deleted=visit.flag("deleted"))
        within = visit.get("find").strip().lower()
        shown = [each for each in subjects if within in each.lower()][:_MOST_SUBJECTS]
        live = set(registry.subjects()) if visit.flag("deleted") else set(subjects)
        facts |= {"subjects": shown, "total": len(subjects), "level": registry.compatibility()[0], "live": live}
        if visit.get("subject"):
            facts["chosen"] = _chosen(visit)
    except NotThereError:
        raise
    except PenstockError as error:
        return {**facts, "problem": visit.site.exposure.error(error)}
    return facts


def _chosen(visit: Visit) -> dict[str, Any]:
    registry, subject = visit.site.schemas, visit.get("subject")
    assert registry is not None  # noqa: S101 - the caller has looked
    live = registry.versions(subject)
    numbers = registry.versions(subject, deleted=True) if visit.flag("deleted") else live
    if not numbers:
        raise NotThereError(
            f"there is no subject {subject[:100]!r}",
            hint="The page of schemas lists them, and those that were deleted.",
        )
    number = whole(visit.get("version"), "version", numbers[-1], 2**31)
    earlier = [each for each in numbers if each < number]
    other = whole(visit.get("against"), "against", earlier[-1] if earlier else number, 2**31)
    for each in (number, other):
        if each not in numbers:
            raise NotThereError(f"{subject[:100]!r} has no version {each}", hint="The page of the subject lists them.")
    version = registry.version(subject, number)
    before = version if other == number else registry.version(subject, other)
    level, is_own = registry.compatibility(subject)
    return {
        "version": version,
        "numbers": numbers,
        "live": live,
        "against": other,
        "lines": difference(before.text, version.text),
        "level": level,
        "is_own": is_own,
    }
