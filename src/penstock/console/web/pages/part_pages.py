"""Connectors of a group of workers, and statements of SQL, where the console knows a worker or a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.console.web.page import NotThereError, Visit
from penstock.console.web.pages.application_pages import linked_topics
from penstock.errors import PenstockError

__all__ = ["connectors", "sql"]


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
