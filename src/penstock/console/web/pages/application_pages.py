"""What the pages of one application share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from penstock.console.app_view import Picture
from penstock.console.web.page import Visit

__all__ = ["application_stamp", "failure_of", "head_of", "linked_nodes", "linked_places", "linked_topics"]


def application_stamp(visit: Visit) -> object:
    """Return a value that changes when the figures of the application do."""
    application = visit.application
    return None if application is None else (application.name, application.stamp())


def head_of(visit: Visit) -> tuple[Picture, dict[str, Any]]:
    """Return an application's figures, and the facts that all of its pages show; without one, empty figures."""
    application = visit.application
    picture = Picture({}) if application is None else application.picture()
    return picture, {"picture": picture, "application": visit.application_name, "alerts": picture.get("alerts", [])}


def linked_topics(visit: Visit) -> frozenset[str]:
    """Return the topics that pages may link to: those of the log that are what an application calls by their name.

    Records between the sub-topologies of micro-batches go through Spark's shuffle, and have offsets of their own. A
    topic of that name may be in the log all the same, left there by the application in continuous mode.
    """
    log = visit.site.log
    if log is None:
        return frozenset()
    there = frozenset(topic.name for topic in log.topics())
    return there.difference(*(_in_shuffles(visit, name, there) for name in visit.site.applications.names()))


def _in_shuffles(visit: Visit, name: str, there: frozenset[str]) -> set[str]:
    """Return the internal topics of an application that are none, as it runs in micro-batches."""
    if not any(topic.startswith(f"{name}-") for topic in there):
        return set()
    application = visit.site.application(name)
    if not application.picture().is_in_batches:
        return set()
    boxes = (application.topology() or {}).get("boxes", ())
    return {str(box["topic"]) for box in boxes if box["kind"] == "topic" and "topic" in box}


def linked_places(
    visit: Visit, there: Collection[str], places: Iterable[tuple[str, int, int] | None]
) -> dict[tuple[str, int, int], str]:
    """Return the paths of the messages that places are linked to; none where messages are not shown.

    Args:
        visit: The visit.
        there: The `linked_topics`.
        places: Topics, partitions and offsets.
    """
    if not visit.site.permissions.messages:
        return {}
    return {
        position: f"/topics/{position[0]}/{position[1]}/{position[2]}"
        for position in places
        if position and position[0] in there
    }


def linked_nodes(visit: Visit) -> frozenset[str]:
    """Return the nodes that a page may link to: stores drop records, too, and a topology may be another one by now."""
    application = visit.application
    drawing = None if application is None else application.topology()
    return frozenset(box["name"] for box in (drawing or {}).get("boxes", ()) if box["kind"] == "node")


def failure_of(visit: Visit, picture: Picture) -> dict[str, Any] | None:
    """Return what is known of the error that has ended an application, with links to the records; None if none has.

    Attributes of the answer beside those of `penstock.console.exposure.facts_of`:
        node_is_linked: Whether the topology has the node.
        said: The error as it may be shown.
        records: The record that failed, or where the task was to read on: (name, path of its message or None).
        is_sure: Whether that record failed; else the records from there on may have.
    """
    facts = picture.failure
    if facts is None or picture.is_running or not picture.get("failure"):
        return None
    record = facts.get("record")
    positions = [(*name.rpartition("-")[::2], offset) for name, offset in facts.get("positions", {}).items()]
    places = [
        (str(topic), int(partition), int(offset))
        for topic, partition, offset in ([record] if record else positions)
        if str(partition).isdecimal()
    ]
    links = linked_places(visit, linked_topics(visit), places)
    return {
        **facts,
        "node_is_linked": facts["node"] in linked_nodes(visit),
        "said": picture.get("failure")[0],
        "records": [
            (f"{position[0]}-{position[1]} offset {position[2]:,}", links.get(position)) for position in places
        ],
        "is_sure": bool(record),
    }
