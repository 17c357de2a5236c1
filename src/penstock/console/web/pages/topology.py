"""The topology with rates, and what each operator does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.base.escapes import json_text
from penstock.console.web.page import Visit
from penstock.console.web.pages.application_pages import head_of, linked_topics

__all__ = ["topology"]

_ERRORS = 10  # groups of a node
_GENERATED = re.compile(r"(?:KSTREAM|KTABLE)-.*\d{10}")
_CALLED = re.compile(r"calls (?P<function>\S+) \((?:.*[/\\])?(?P<line>[^/\\()]*:\d+)\)")


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
