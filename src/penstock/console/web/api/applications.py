"""What the JSON interface says of applications, and of their health, for load balancers and Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from penstock.console.alerts import alert_lines
from penstock.console.app_view import UNKNOWN, BatchLine, Picture, findings_of
from penstock.console.error_groups import ErrorGroup
from penstock.console.exposed_application import Exposed
from penstock.console.web.page import NotThereError, Visit, whole
from penstock.errors import PenstockError
from penstock.metrics.prometheus import label_text
from penstock.serving.json_interface import EscapedJson

__all__ = [
    "alerts",
    "application",
    "applications",
    "batch",
    "batches",
    "errors",
    "health",
    "line_of",
    "metrics",
    "node",
    "ready",
    "restores",
    "stores",
    "tasks",
    "top",
]


_POINTS = 600
_MOST_MS = 2**53
_BY = {"seconds": ("task", "node"), "lag": ("partition",), "rows": ("store",), "dropped": (), "skew": ("task",)}


def _chosen(visit: Visit) -> Exposed:
    chosen = visit.application
    if chosen is None:
        raise NotThereError("the log has no application", hint="Start one with penstock run.")
    return chosen


def line_of(line: BatchLine) -> dict[str, Any]:
    """Return the figures of a batch."""
    return {
        "batch": line.number,
        "end_ms": line.end_ms,
        "seconds": line.seconds,
        "records_in": line.records_in,
        "records_out": line.records_out,
        "dropped": line.dropped,
        "lag": None if line.lag == UNKNOWN else line.lag,
        "skew": line.skew,
        "segment_bytes": line.segment_bytes,
        "steps": dict(line.steps),
    }


def applications(visit: Visit) -> Any:
    """List the applications with their state, newest batch and lag."""
    return [_summary(visit.site.application(name).picture()) for name in visit.site.applications.names()]


def _summary(picture: Picture) -> dict[str, Any]:
    return {
        "application": picture.application,
        "state": picture.state,
        "batch": None if picture.newest is None else picture.newest.number,
        "lag": picture.lag,
        "behind_seconds": picture.behind_seconds,
        "records_in_per_second": picture.get("rates", {}).get("in"),
        "alerts": len(picture.get("alerts", ())),
    }


def application(visit: Visit) -> Any:
    """Describe an application: its state, figures, partitions, alerts, and settings with secrets masked."""
    picture = _chosen(visit).picture()
    trend = picture.trend
    return {
        **_summary(picture),
        "started_ms": picture.get("started_ms"),
        "as_of_ms": picture.get("written_ms"),
        "facts": picture.get("facts", {}),
        "sums": picture.get("sums", {}),
        "rates": picture.get("rates", {}),
        "trend": {"word": trend.word, "records_per_second": trend.per_second},
        "caught_up_seconds": picture.caught_up_seconds,
        "partitions": [
            {"partition": each.name, "position": each.position, "lag": each.lag, "seconds": each.seconds}
            for each in picture.partitions
        ],
        "stores": picture.store_rows,
        "steps": picture.steps,
        "alerts": list(picture.get("alerts", ())),
        "failure": None if picture.failure is None else _failure(picture.failure),
    }


def batches(visit: Visit) -> Any:
    """Return the batches between two times, sums of neighbours where there are more than 600 of them."""
    chosen = _chosen(visit)
    picture = chosen.picture()
    lines = [_point(line.end_ms, 1, line) for line in picture.lines]
    first_ms = picture.lines[0].end_ms if picture.lines else _MOST_MS
    minutes = [_minute(row) for row in chosen.minutes() if row[0] + 60_000 <= first_ms]
    low, high = whole(visit.get("from"), "from", 0, _MOST_MS), whole(visit.get("to"), "to", _MOST_MS, _MOST_MS)
    points = [each for each in (*minutes, *lines) if low <= each["at_ms"] <= high]
    span = points[-1]["at_ms"] - points[0]["at_ms"] + 1 if points else 0
    step = max(whole(visit.get("step"), "step", 0, _MOST_MS), 0 if len(points) <= _POINTS else -(-span // _POINTS))
    return {"step_ms": step, "points": _thinned(points, step) if step else points}


def _point(at_ms: int, count: int, line: BatchLine) -> dict[str, Any]:
    return {
        "at_ms": at_ms,
        "batches": count,
        "seconds": line.seconds,
        "records_in": line.records_in,
        "records_out": line.records_out,
        "dropped": line.dropped,
        "lag": None if line.lag == UNKNOWN else line.lag,
    }


def _minute(row: list[Any]) -> dict[str, Any]:
    names = ("at_ms", "batches", "seconds", "records_in", "records_out", "dropped", "lag")
    fields = dict(zip(names, row, strict=False))
    return {**fields, "lag": None if fields.get("lag") == UNKNOWN else fields.get("lag")}


def _thinned(points: list[dict[str, Any]], step: int) -> list[dict[str, Any]]:
    by_time: dict[int, dict[str, Any]] = {}
    for each in points:
        at = each["at_ms"] // step * step
        point = by_time.get(at)
        if point is None:
            by_time[at] = {**each, "at_ms": at}
            continue
        for name in ("batches", "records_in", "records_out", "dropped"):
            point[name] += each[name]
        point["seconds"] = round(point["seconds"] + each["seconds"], 4)
        point["lag"] = point["lag"] if each["lag"] is None else each["lag"]
    return list(by_time.values())


def batch(visit: Visit) -> Any:
    """Return a batch with its tasks, while they are kept."""
    picture = _chosen(visit).picture()
    number = whole(visit.get("number"), "the batch", 0, 2**62)
    line = next((each for each in picture.lines if each.number == number), None)
    kept = picture.batch(number)
    if line is None and kept is None:
        raise NotThereError(f"batch {number:,} is not kept", hint="The last 600 batches are, tasks of the last 40.")
    return {**({"batch": number} if line is None else line_of(line)), "tasks": [] if kept is None else kept["tasks"]}


def top(visit: Visit) -> Any:
    """Rank what takes most: tasks, nodes, partitions, stores; ``by`` chooses seconds, lag, rows, dropped or skew."""
    picture = _chosen(visit).picture()
    by = visit.get("by")
    unknown = set(by.split(",")) - {*_BY, ""}
    if unknown:
        raise PenstockError(f"by={by[:60]!r} is unknown", hint=f"Use one or some of {', '.join(_BY)}.")
    kinds = {kind for name in by.split(",") for kind in _BY.get(name, ())}
    findings = [
        {"kind": each.kind, "name": each.name, "share": round(each.share, 4), "said": each.said}
        for each in findings_of(picture)
        if not by or each.kind in kinds
    ]
    if "dropped" in by.split(","):
        total = sum(row[2] for row in picture.get("reasons", ())) or 1
        findings += [
            {"kind": "drop", "name": row[0], "share": round(row[2] / total, 4), "said": f"{row[2]:,}: {row[1]}"}
            for row in sorted(picture.get("reasons", ()), key=lambda row: -row[2])[:6]
        ]
    return findings


def tasks(visit: Visit) -> Any:
    """Return the newest report of each task."""
    return _chosen(visit).picture().newest_tasks()


def restores(visit: Visit) -> Any:
    """Return the restores that are under way, with their rate and the time that is left."""
    return [
        {**each.document(), "per_second": each.per_second, "remaining_seconds": each.remaining_seconds}
        for each in _chosen(visit).picture().restores
    ]


def node(visit: Visit) -> Any:
    """Describe a node: how it runs, its rows, time and drops."""
    chosen = _chosen(visit)
    picture, drawing, name = chosen.picture(), chosen.topology(), visit.get("node")
    box = next((each for each in (drawing or {}).get("boxes", ()) if each["name"] == name), None)
    if box is None:
        raise NotThereError(f"the topology has no node {name[:100]!r}", hint="See /topology.")
    return {
        **box,
        "share": picture.shares.get(name),
        "per_second": picture.get("rates", {}).get("nodes", {}).get(name),
        "since_start": picture.get("nodes", {}).get(name),
        "drops": [_group(each) for each in picture.errors if each.node == name],
    }


def errors(visit: Visit) -> Any:
    """Return errors and drops in groups by node, class and line of code, and the topic of dead letters."""
    picture = _chosen(visit).picture()
    settings = picture.get("facts", {}).get("settings", {})
    return {
        "drops": [_group(each) for each in picture.errors],
        "lost": picture.get("lost", {}),
        "dead_letter_topic": settings.get("errors.dead.letter.queue.topic.name"),
    }


def _group(group: ErrorGroup) -> dict[str, Any]:
    return {
        **group.row(),
        "reason": group.reason,
        "place": _place(group.place),
        "minutes": [{"at_ms": minute * 60_000, "records": count} for minute, count in group.minutes],
    }


def _failure(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts, "record": _place(facts.get("record"))}


def _place(place: Sequence[Any] | None) -> dict[str, Any] | None:
    return None if place is None else dict(zip(("topic", "partition", "offset"), place, strict=True))


def stores(visit: Visit) -> Any:
    """List the stores that can be queried, as the query service does."""
    return _chosen(visit).queries().stores()


def alerts(visit: Visit) -> Any:
    """Return the alerts of all applications that hold now."""
    return [
        {"application": name, **alert}
        for name in visit.site.applications.names()
        for alert in visit.site.application(name).picture().get("alerts", ())
    ]


def health(visit: Visit) -> Any:
    """Return the state and alerts of each application; 503 if one is stuck, has failed, or has died."""
    applications = []
    for name in visit.site.applications.names():
        picture = visit.site.application(name).picture()
        applications.append({"application": name, "state": picture.state, "alerts": list(picture.get("alerts", ()))})
    is_ill = any(
        alert["name"] in ("failed", "died", "stuck", "silent") for each in applications for alert in each["alerts"]
    )
    return EscapedJson({"healthy": not is_ill, "applications": applications}, 503 if is_ill else 200)


def ready(visit: Visit) -> Any:
    """Return whether the log answers."""
    if visit.site.log is not None:
        visit.site.log.topics()
    return {"ready": True}


def metrics(visit: Visit) -> Any:
    """Return the alerts and lag of all applications in Prometheus' text format."""
    lines, lags = (
        [],
        ["# HELP penstock_lag_records Records of the partition that wait.", "# TYPE penstock_lag_records gauge"],
    )
    for name in visit.site.applications.names():
        picture = visit.site.application(name).picture()
        lines += alert_lines(name, picture.get("alerts", ())).splitlines()
        lags += [
            f'penstock_lag_records{{application="{label_text(name)}",partition="{label_text(each.name)}"}} {each.lag}'
            for each in picture.partitions
        ]
    text = "\n".join([*dict.fromkeys(lines), *lags, ""])  # the line of the type once
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
