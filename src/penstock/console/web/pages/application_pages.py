"""The first page, and the topology with rates; and what the pages of one application share."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from penstock.base.clock import unix_ms
from penstock.base.escapes import json_text
from penstock.console.app_view import DIED, UNKNOWN, BatchLine, Picture, findings_of, sentence_of
from penstock.console.web.page import Visit

__all__ = [
    "application_stamp",
    "failure_of",
    "head_of",
    "linked_nodes",
    "linked_places",
    "linked_topics",
    "overview",
    "topology",
]


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


_POINTS = 60
_DAY_MS = 24 * 60 * 60 * 1000


def overview(visit: Visit) -> Mapping[str, Any]:
    """Return the figures of the application, where to look, and the other applications of the log."""
    picture, facts = head_of(visit)
    lines, threads = picture.lines[-240:], picture.thread_times()
    others: list[dict[str, Any]] = []
    for name in visit.site.applications.names():
        each = visit.site.application(name).picture() if name != picture.application else picture
        others.append({"name": name, "picture": each})
    drawing = None if visit.application is None else visit.application.topology()
    boxes = (drawing or {}).get("boxes", ())
    called = {str(box["name"]): function for box in boxes if (function := function_of(box))}
    return {
        **facts,
        "findings": findings_of(picture),
        "rates_in": _per_second(lines, "records_in"),
        "rates_out": _per_second(lines, "records_out"),
        "lags": [lag for _, lag in picture.get("lags", ())][-_POINTS:]
        or [None if line.lag == UNKNOWN else line.lag for line in lines[-_POINTS:]],
        "threads": len(threads),
        "busy": sum(each.busy for each in threads) / len(threads) if threads else 0.0,
        "sentence": sentence_of(picture, called),
        "called": called,
        "failed": [each for each in others if each["picture"] is not picture and _has_failed(each["picture"])],
        "times": [line.seconds for line in lines[-_POINTS:]],
        "drops": [line.dropped for line in lines[-_POINTS:]],
        "others": others,
        "failure": failure_of(visit, picture),
        "has_group": visit.site.log is not None and visit.application_name in visit.site.log.groups(),
    }


def _has_failed(picture: Picture) -> bool:
    """Return whether an application has failed or died within a day: older ends are in the table alone."""
    return picture.state in ("ERROR", DIED) and unix_ms() - picture.get("written_ms", 0) < _DAY_MS


def _per_second(lines: Sequence[BatchLine], name: str) -> list[float | None]:
    """Return a count a second between one batch and the next, for the last ones."""
    rates: list[float | None] = []
    for before, line in pairwise(lines):
        seconds = max((line.end_ms - before.end_ms) / 1000, 0.05)
        rates.append(getattr(line, name) / seconds)
    return rates[-_POINTS:]


_ERRORS = 10  # groups of a node
_GENERATED = re.compile(r"(?:KSTREAM|KTABLE)-.*\d{10}")
_CALLED = re.compile(r"calls (?P<function>\S+) \((?:.*[/\\])?(?P<line>[^/\\()]+)\)")


def function_of(box: Mapping[str, Any]) -> str:
    """Return the function that a node with a generated name calls, and its line; empty for other boxes.

    >>> box = {"kind": "node", "name": "KSTREAM-MAPVALUES-0000000001", "runs": "calls shop.parse (/srv/shop.py:4) for"}
    >>> function_of(box), function_of({**box, "runs": "columns"}), function_of({**box, "name": "totals"})
    ('parse (shop.py:4)', '', '')
    """
    if box["kind"] != "node" or not _GENERATED.fullmatch(str(box["name"])):
        return ""
    called = _CALLED.search(str(box.get("runs", "")))
    if called is None:
        return ""
    function = called["function"].rpartition(".")[2]
    return f"{'lambda' if function == '<lambda>' else function} ({called['line']})"


def label_of(box: Mapping[str, Any]) -> str:
    """Return what a box is called in the drawing: the function that a node with a generated name calls.

    >>> box = {"kind": "node", "name": "KSTREAM-MAPVALUES-0000000001", "operation": "MapValues"}
    >>> label_of(box), label_of({**box, "runs": "calls parse (/srv/shop.py:4) for each record"})
    ('MapValues', 'parse')
    >>> label_of({**box, "runs": "calls main.<locals>.<lambda> (shop.py:9)"}), label_of({**box, "name": "totals"})
    ('lambda, shop.py:9', 'totals')
    """
    name = str(box["name"])
    if not _GENERATED.fullmatch(name) or box["kind"] != "node":
        return name
    called = _CALLED.search(str(box.get("runs", "")))
    if called is None:
        return str(box.get("operation") or name)
    function = called["function"].rpartition(".")[2]
    return f"lambda, {called['line']}" if function == "<lambda>" else function


def topology(visit: Visit) -> Mapping[str, Any]:
    """Return the drawing with the rates of now, and the same as a table."""
    picture, facts = head_of(visit)
    application = visit.application
    drawing = None if application is None else application.topology()
    if drawing is None:
        return {**facts, "drawing": None}
    rates = picture.get("rates", {}).get("nodes", {})
    lag: dict[str, int] = {}
    for each in picture.partitions:
        topic = each.name.rpartition("-")[0]
        lag[topic] = lag.get(topic, 0) + each.lag
    dropped: dict[str, int] = {}
    for node, _, count, *_ in picture.get("reasons", ()):
        dropped[node] = dropped.get(node, 0) + count
    rows = []
    for box in drawing["boxes"]:
        if box["kind"] == "node":
            rate = rates.get(box["name"], [0.0, 0.0, 0.0])
            total = picture.get("nodes", {}).get(box["name"], [0, 0, 0.0])
            share = picture.shares.get(box["name"])
            rows.append(
                {
                    **box,
                    "in": rate[0],
                    "out": rate[1],
                    "total": total,
                    "share": share,
                    "dropped": dropped.get(box["name"], 0),
                }
            )
    live = {
        "nodes": {row["name"]: [row["in"], row["out"], row["share"] or 0.0] for row in rows},
        "stores": picture.store_rows,
        "lag": lag,
    }
    there = linked_topics(visit)
    boxes = [
        {**box, "target": name if (name := box.get("topic", box["name"])) in there else ""}
        if box["kind"] == "topic"
        else {**box, "label": label_of(box)}
        for box in drawing["boxes"]
    ]
    graph = {"boxes": boxes, **{name: drawing[name] for name in ("groups", "arrows", "touches")}}
    chosen = next((row for row in rows if row["name"] == visit.get("node")), None)
    return {
        **facts,
        "drawing": drawing,
        "rows": rows,
        "graph": json_text(graph),
        "live": json_text(live),
        "chosen": chosen,
        "errors": [] if chosen is None else [each for each in picture.errors if each.node == chosen["name"]][:_ERRORS],
    }
