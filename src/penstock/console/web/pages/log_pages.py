"""Topics, messages and groups of the log."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.base.durations import timestamp_ms
from penstock.console.filtering import document_in
from penstock.console.group_watch import GroupRow, waiting_of
from penstock.console.lag_trend import Trend
from penstock.console.messages import MessageQuery, neighbours, one_message, read_messages, record_at
from penstock.console.web.message_views import hex_lines, tree_of
from penstock.console.web.page import NotThereError, Visit, whole
from penstock.console.web.pages.application_pages import linked_places, linked_topics
from penstock.errors import LogError, OffsetOutOfRangeError, PenstockError
from penstock.log.application_needs import owner_of
from penstock.log.base import TopicPartition
from penstock.log.groups.group_admin import GroupAdmin, seconds_behind

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = [
    "begin_of",
    "group",
    "group_rows",
    "groups",
    "log_of",
    "message",
    "message_query",
    "place_of",
    "start_of",
    "topic",
    "topic_facts",
    "topic_stamp",
    "topics",
]

_MOST_TOPICS = 2_000
_RATE_S = 60


_STARTS = {"": "newest", "latest": "newest", "earliest": "oldest", "newest": "newest", "oldest": "oldest"}


def log_of(visit: Visit) -> TopicLog:
    """Return the console's log.

    Raises:
        PenstockError: It has none.
    """
    if visit.site.log is None:
        raise PenstockError("this console has no log", hint="Start it with --bootstrap-servers.")
    return visit.site.log


def topics(visit: Visit) -> Mapping[str, Any]:
    """Return the topics with their records, and the groups and applications that they belong to."""
    log = log_of(visit)
    within, all_topics = visit.get("find").strip().lower(), log.topics()
    infos = [each for each in all_topics if within in each.name.lower()][:_MOST_TOPICS]
    names = [each.name for each in infos]
    ends, firsts = log.end_offsets(names), log.beginning_offsets(names)
    records = dict.fromkeys(names, 0)
    for tp, end in ends.items():
        records[tp.topic] += end - firsts[tp]
    owners = visit.site.applications.names()
    rows = [
        {
            "name": each.name,
            "partitions": each.partitions,
            "records": records[each.name],
            "policy": each.config.get("cleanup.policy", "delete"),
            "owner": owner_of(each.name, owners) or "",
        }
        for each in infos
    ]
    shown = [row for row in rows if visit.get("internal") not in ("no", "false") or not row["owner"]]
    return {"rows": shown, "total": len(all_topics), "internal": sum(1 for row in rows if row["owner"])}


def start_of(kind: str, value: str) -> str:
    """Return where a search of messages begins, with the offset or the time checked.

    Args:
        kind: ``offset``, ``time``, or a place that needs no value, such as ``newest``.
        value: The offset; or the time as milliseconds or an ISO date and time.
    """
    if kind == "offset":
        return str(whole(value, "the offset", 0, 2**62))
    if kind == "time":
        return f"time:{int(value) if value.lstrip('-').isdecimal() else timestamp_ms(value, 'the time')}"
    return kind


def begin_of(visit: Visit) -> tuple[str, str]:
    """Return where an address wants to begin, and the offset or time that belongs to it.

    A page's form says it by ``start`` and ``at``, an address of the interface by ``at`` alone: earliest, latest,
    ``offset:N`` or ``time:T``; the page takes both.
    """
    at = visit.get("at").strip()
    if visit.get("start"):
        return visit.get("start"), at
    kind, _, value = at.partition(":")
    if kind in ("offset", "time"):
        return kind, value
    if at not in _STARTS:
        raise PenstockError(f"at={at[:40]!r} is unknown", hint="Use earliest, latest, offset:N or time:T.")
    return _STARTS[at], ""


def _formats_of(visit: Visit) -> dict[str, str]:
    """Return the formats that a visit asks for, by the names of their parameters; empty ones are those noted."""
    return {f"{side}_format": visit.get(f"{side}_format") or visit.get(f"{side}_serde") for side in ("key", "value")}


def message_query(visit: Visit) -> MessageQuery:
    """Return what the parameters of a visit ask for; formats that it does not name are those noted in the log."""
    start = start_of(*begin_of(visit))
    formats = _formats_of(visit)
    partition = visit.get("partition")
    is_in_all = partition == "all"
    return MessageQuery(
        visit.get("name"),
        start,
        whole(partition, "the partition", 0, 1_000_000) if partition and not is_in_all else None,
        min(whole(visit.get("limit"), "the limit", 50, 500), 500),
        visit.get("filter"),
        formats["key_format"],
        formats["value_format"],
        visit.get("cursor"),
        visit.site.permissions.masked,
        visit.site.permissions.messages,
        visit.get("text"),
        visit.get("key"),
        is_in_all,
    )


def topic_stamp(visit: Visit) -> object:
    """Return a value that changes with the topic's end, if the page shows its newest messages."""
    if not _is_newest(visit):
        return "stands"
    return tuple(sorted(log_of(visit).end_offsets([visit.get("name")]).values()))


def _is_newest(visit: Visit) -> bool:
    """Return whether a page shows the newest messages, and so follows the topic."""
    if any(visit.get(name) for name in ("cursor", "filter", "text", "key")):
        return False
    with suppress(PenstockError):
        return begin_of(visit)[0] == "newest"
    return False


def topic(visit: Visit) -> Mapping[str, Any]:
    """Return a part of a topic's messages."""
    log = log_of(visit)
    name = visit.get("name")
    if name not in {each.name for each in log.topics()}:
        raise NotThereError(f"the log has no topic {name[:100]!r}", hint="The page of topics lists them.")
    info = log.topic(name)
    ends, firsts = log.end_offsets([name]), log.beginning_offsets([name])
    facts: dict[str, Any] = {
        "info": info,
        "bounds": [(tp.partition, firsts[tp], end) for tp, end in sorted(ends.items())],
        "allowed": visit.site.permissions.messages,
        "found": None,
        "problem": None,
        "start": visit.get("start", "newest"),
        "at": visit.get("at"),
        "formats": _formats_of(visit),
        "is_newest": _is_newest(visit),
        "is_search": any(visit.get(name) for name in ("filter", "text", "key")),
        "search": {},
    }
    if not visit.site.permissions.messages:
        return facts
    try:
        facts["start"], facts["at"] = begin_of(visit)
        facts["search"] = {
            "start": facts["start"],
            "at": facts["at"],
            **{name: visit.get(name) for name in ("partition", "key", "text", "filter")},
            **facts["formats"],
        }
        return {**facts, "found": read_messages(log, message_query(visit))}
    except (PenstockError, ValueError) as error:
        exposure = visit.site.exposure
        shown = exposure.error(error) if isinstance(error, PenstockError) else PenstockError(exposure.text_of(error))
        return {**facts, "problem": shown}


def topic_facts(visit: Visit) -> Mapping[str, Any]:
    """Return a topic's size, rate, settings, and the groups that read it."""
    log, name = log_of(visit), visit.get("name")
    if name not in {each.name for each in log.topics()}:
        raise NotThereError(f"the log has no topic {name[:100]!r}", hint="The page of topics lists them.")
    ends, firsts = log.end_offsets([name]), log.beginning_offsets([name])
    record_sizes = log.record_sizes({tp: (firsts[tp], end) for tp, end in ends.items()})
    # Without a sample, as where records may not be read, the size is 0, which says nothing of a partition with records.
    sizes = {tp: size for tp, size in record_sizes.items() if size or firsts[tp] == ends[tp]}
    recent = log.offsets_for_times(dict.fromkeys(ends, unix_ms() - _RATE_S * 1000))
    partitions = [
        {
            "number": tp.partition,
            "first": firsts[tp],
            "end": end,
            "bytes": sizes.get(tp),
            "rate": 0.0 if (since := recent.get(tp)) is None else (end - since.offset) / _RATE_S,
        }
        for tp, end in sorted(ends.items())
    ]
    found_groups = visit.site.groups.consumers(log, ends)
    consumers = [{"group": group, "partitions": count, "lag": lag} for group, (count, lag) in found_groups.lags.items()]
    return {
        "info": log.topic(name),
        "partitions": partitions,
        "bytes": sum(sizes.values()) if len(sizes) == len(ends) else None,
        "rate": sum(each["rate"] for each in partitions),
        "consumers": sorted(consumers, key=lambda each: -each["lag"]),
        "asked": (found_groups.asked, found_groups.total),
        "owner": owner_of(name, visit.site.applications.names()) or "",
    }


def place_of(visit: Visit) -> tuple[str, int, int]:
    """Return the topic, partition and offset of an address.

    Raises:
        NotThereError: The log has no such partition.
    """
    name = visit.get("name")
    partition = whole(visit.get("number"), "the partition", 0, 1_000_000)
    partitions = {each.name: each.partitions for each in log_of(visit).topics()}
    if partition >= partitions.get(name, 0):
        raise NotThereError(f"the log has no {name[:100]}-{partition}", hint="The page of topics lists them.")
    return name, partition, whole(visit.get("offset"), "the offset", 0, 2**62)


def message(visit: Visit) -> Mapping[str, Any]:
    """Return one message whole."""
    log = log_of(visit)
    query = message_query(visit)
    visit.site.exposure.require_messages()
    _, partition, offset = place_of(visit)
    try:
        shown = one_message(log, query, partition, offset)
    except OffsetOutOfRangeError as error:
        raise NotThereError(error.message, hint=error.hint) from error
    if shown is None:
        raise NotThereError(
            f"{query.topic}-{partition} has no message at offset {offset:,}",
            hint="It was deleted or compacted, or the offset holds the end of a transaction.",
        )
    links = linked_places(visit, linked_topics(visit), [shown["original"]])
    record, exposure = record_at(log, query.topic, partition, offset) or {}, visit.site.exposure
    return {
        "topic": query.topic,
        "found": shown,
        "original_path": links.get(shown["original"]),
        "neighbours": neighbours(log, query.topic, partition, offset),
        "trees": {side: tree_of(document_in(shown[side])) for side in ("key", "value")},
        "hex": {side: "" if exposure.hides(side) else hex_lines(record.get(side)) for side in ("key", "value")},
        "formats": _formats_of(visit),
    }


def group_rows(visit: Visit) -> list[GroupRow]:
    """Return all groups with their lag, how old it is, and how it moves."""
    within = visit.get("find").strip()
    return visit.site.groups.rows(log_of(visit), lambda name: _trend_of_application(visit, name), within)


def _trend_of_application(visit: Visit, name: str) -> Trend | None:
    if name not in visit.site.applications.names():
        return None
    picture = visit.site.application(name).picture()
    return picture.trend if picture.is_running and picture.trend.word != "unknown" else None


def groups(visit: Visit) -> Mapping[str, Any]:
    """Return all groups with their lag."""
    return {"rows": group_rows(visit), "total": visit.site.groups.total}


def group(visit: Visit) -> Mapping[str, Any]:
    """Return a group's members, and its lag by partition in records and seconds."""
    log, name = log_of(visit), visit.get("name")
    try:
        described = GroupAdmin(log).describe(name)
    except LogError as error:
        raise NotThereError(error.message, hint=error.hint) from error
    behind = seconds_behind(log, waiting_of(log, described.partitions), unix_ms())
    rows = [
        {
            "row": row,
            "behind": 0.0 if not row.lag else behind.get(TopicPartition(row.topic, row.partition)),
            "owner": described.owner(row.topic, row.partition),
        }
        for row in described.partitions
    ]
    lag = sum(row.lag for row in described.partitions)
    trend = _trend_of_application(visit, name) or visit.site.groups.note(name, lag)
    return {"group": described, "rows": rows, "lag": lag, "trend": trend, "there": linked_topics(visit)}
