"""The newest dead letters of an application: what failed, why, and the record that it was."""

from __future__ import annotations

from typing import Any

from penstock.console.exposure import HIDDEN, LETTER_HEADERS
from penstock.console.messages import MessageQuery, original_of, read_messages
from penstock.console.web.page import Visit
from penstock.serde.plain import text_of

__all__ = ["newest_letters"]

_MOST = 20


def newest_letters(visit: Visit, topic: str | None) -> list[dict[str, Any]]:
    """Return the newest messages of a topic of dead letters, the newest first; none where messages may not be seen.

    Args:
        visit: The visit.
        topic: The topic; None: there is none.
    """
    log = visit.site.log
    if not topic or log is None or not visit.site.permissions.messages:
        return []
    if topic not in {each.name for each in log.topics()}:
        return []
    masked = visit.site.permissions.masked
    query = MessageQuery(topic, limit=_MOST, key_format="bytes", value_format="bytes", masked=masked)
    rows = read_messages(log, query).rows
    return [
        {
            "timestamp": row["timestamp"],
            "place": (topic, row["partition"], row["offset"]),
            "original": original_of(row["headers"]),
            "why": _why(row["headers"]),
        }
        for row in rows
    ]


def _why(headers: list[tuple[str, bytes | None]]) -> str:
    named = {name: text_of(value or b"") for name, value in headers}
    for prefix in LETTER_HEADERS:
        kind = named.get(f"{prefix}exception", "") or named.get(f"{prefix}exception.class.name", "")
        said = named.get(f"{prefix}message", "") or named.get(f"{prefix}exception.message", "")
        if kind or said:
            kind = kind.rpartition(".")[2]
            return kind if said == HIDDEN else f"{kind}: {said}"[:300]
    return ""
