"""What the JSON interface says of topics, messages and groups."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from penstock.base.escapes import json_text
from penstock.console.messages import one_message, read_messages, record_at
from penstock.console.request_limits import FILE_BYTES, SHOWN_CHARACTERS, exporting, fit_for_file
from penstock.console.web.message_views import as_csv, as_json_lines
from penstock.console.web.page import NotThereError, Visit
from penstock.console.web.pages import log_pages
from penstock.console.web.pages.log_pages import group_rows, log_of, message_query, place_of
from penstock.errors import PenstockError
from penstock.serde.plain_json import plain, text_of

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = [
    "as_response",
    "export",
    "group",
    "groups",
    "message",
    "message_document",
    "messages",
    "require_topic",
    "topic",
    "topics",
]

_EXPORTED, _PART, _EXPORT_S = 10_000, 500, 20.0


def topics(visit: Visit) -> Any:
    """List the topics; ``internal=false`` leaves out those of applications."""
    return log_pages.topics(visit)["rows"]


def _known(log: TopicLog, name: str) -> str:
    if name not in {each.name for each in log.topics()}:
        raise NotThereError(f"the log has no topic {name[:100]!r}", hint="/api/v1/topics lists them.")
    return name


def topic(visit: Visit) -> Any:
    """Describe a topic: its partitions, settings, and the groups that read it."""
    log = log_of(visit)
    info = log.topic(_known(log, visit.get("name")))
    ends, firsts = log.end_offsets([info.name]), log.beginning_offsets([info.name])
    return {
        "name": info.name,
        "config": dict(info.config),
        "partitions": [
            {"partition": tp.partition, "beginning": firsts[tp], "end": end} for tp, end in sorted(ends.items())
        ],
    }


def require_topic(visit: Visit) -> None:
    """Raise an error unless the topic is there and its messages may be seen."""
    visit.site.exposure.require_messages()
    _known(log_of(visit), visit.get("name"))


def messages(visit: Visit) -> Any:
    """Return messages, how far the topic was searched, and where to go on."""
    require_topic(visit)
    page = read_messages(log_of(visit), message_query(visit))
    return {
        "messages": [message_document(row) for row in page.rows],
        "searched": page.searched,
        "total": page.total,
        "next": page.cursor or None,
    }


def export(visit: Visit) -> Response:
    """Send up to 10,000 of the messages that a search finds as a file: ``format=csv`` or ``json``, one a line."""
    require_topic(visit)
    form = visit.get("format") or "json"
    if form not in ("csv", "json"):
        raise PenstockError(f"format={form[:20]!r} is unknown", hint="Use csv or json.")
    query = replace(message_query(visit), characters=SHOWN_CHARACTERS, cursor="")
    parts: list[str] = []  # as text at once: messages as objects take ten times the memory
    count = size = 0
    until = time.monotonic() + _EXPORT_S
    with exporting():
        while True:
            page = read_messages(log_of(visit), replace(query, limit=min(_PART, _EXPORTED - count)))
            documents = map(message_document, page.rows)
            parts.append(as_csv(documents, is_first=not parts) if form == "csv" else as_json_lines(documents))
            count, size = count + len(page.rows), size + len(parts[-1])
            is_full = count >= _EXPORTED or size >= FILE_BYTES
            if not page.cursor or is_full or time.monotonic() >= until:
                break
            query = replace(query, cursor=page.cursor)
    name = re.sub(r"[^\w.-]", "_", f"{query.topic}.{'csv' if form == 'csv' else 'jsonl'}", flags=re.ASCII)
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "cache-control": "no-store",
        "x-complete": "false" if page.cursor else "true",
    }
    kind = "text/csv" if form == "csv" else "application/x-ndjson"
    content = (part.encode("utf-8", "backslashreplace") for part in parts)  # packed part by part
    return StreamingResponse(content, media_type=kind, headers=headers)


def message_document(row: dict[str, Any]) -> dict[str, Any]:
    """Return a message for JSON; what is too large is cut, as text."""
    return {
        **{name: row[name] for name in ("partition", "offset", "timestamp", "bytes", "key", "value")},
        "is_cut": row["key_is_cut"] or row["value_is_cut"],
        "headers": [[name, None if value is None else text_of(value)] for name, value in row["headers"]],
        **({"headers_left_out": row["headers_left_out"]} if row.get("headers_left_out") else {}),
        **({"problem": row["problem"]} if row["problem"] else {}),
        **(_original(row["original"]) if row.get("original") else {}),
    }


def _original(position: tuple[str, int, int]) -> dict[str, Any]:
    return {"original": dict(zip(("topic", "partition", "offset"), position, strict=True))}


def message(visit: Visit) -> Any:
    """Return a message whole; ``raw=key`` or ``raw=value`` sends its bytes, for a file."""
    visit.site.exposure.require_messages()
    raw = visit.get("raw")
    if not raw:
        position = place_of(visit)
        whole = one_message(log_of(visit), message_query(visit), position[1], position[2])
        if whole is None:
            raise _gone(*position)
        return message_document(whole)
    if raw not in ("key", "value"):
        raise PenstockError(f"raw={raw[:20]!r} is unknown", hint="Use key or value.")
    visit.site.exposure.require_bytes(raw)
    topic_name, partition, offset = place_of(visit)
    record = record_at(log_of(visit), topic_name, partition, offset)
    if record is None:
        raise _gone(topic_name, partition, offset)
    name = re.sub(r"[^\w.-]", "_", f"{topic_name}-{partition}-{offset}.{raw}", flags=re.ASCII)
    return Response(
        fit_for_file(record[raw], f"the {raw} of this message"),
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"},
    )


def _gone(topic_name: str, partition: int, offset: int) -> NotThereError:
    return NotThereError(f"{topic_name}-{partition} has no message at offset {offset:,}", hint="It is gone.")


def groups(visit: Visit) -> Any:
    """List the groups with their state, lag, how old it is, and how it moves."""
    return [
        {
            **asdict(row.summary),
            "lag": row.lag,
            "behind_seconds": row.behind,
            "trend": row.trend.word,
            "per_second": row.trend.per_second,
            "caught_up_seconds": row.caught_up_seconds,
        }
        for row in group_rows(visit)
    ]


def group(visit: Visit) -> Any:
    """Describe a group: its members, and the lag and owner of each partition."""
    facts = log_pages.group(visit)
    described = facts["group"]
    return {
        "group": described.group,
        "state": described.state,
        "lag": facts["lag"],
        "trend": facts["trend"].word,
        "per_second": facts["trend"].per_second,
        "members": [
            {"member": each.member, "client": each.client, "host": each.host, "partitions": len(each.owned)}
            for each in described.members
        ],
        "partitions": [
            {
                **asdict(each["row"]),
                "behind_seconds": each["behind"],
                "owner": each["owner"].member if each["owner"] else None,
            }
            for each in facts["rows"]
        ],
    }


def as_response(outcome: Any) -> Response:
    """Return an answer as JSON, unless it is a response already."""
    if isinstance(outcome, Response):
        return outcome
    return _Json(outcome, headers={"cache-control": "no-store"})


class _Json(JSONResponse):
    """JSON that may have NaN in values of users (null then), and any characters."""

    def render(self, content: Any) -> bytes:
        text = json_text(content, default=plain)
        if "NaN" in text or "Infinity" in text:
            text = json_text(json.loads(text, parse_constant=lambda _: None))
        return text.encode()
