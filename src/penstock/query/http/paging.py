"""Pages of answers, limited by entries, bytes and time, so that no query blocks the process that answers it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.query.http.answers import refused

__all__ = ["PAGE_BYTES", "PAGE_ENTRIES", "AnswerPage", "in_time", "page_of"]

E = TypeVar("E")

PAGE_ENTRIES = 10_000
PAGE_BYTES = 8 << 20
READ_S = 10.0
_LOOK_EVERY = 256


@dataclass(frozen=True, slots=True)
class AnswerPage:
    """A part of an answer.

    Attributes:
        shown: The entries as plain data.
        last: The last entry as it was read; None if there are none.
        has_more: Whether more entries follow.
    """

    shown: list[dict[str, Any]]
    last: Any
    has_more: bool


def page_of(
    entries: Iterable[E], show: Callable[[E], dict[str, Any]], limit: int, max_bytes: int = PAGE_BYTES
) -> AnswerPage:
    """Collect up to ``limit`` entries, or about ``max_bytes`` of JSON text; at least one entry, if there is any.

    >>> page_of(["a", "b", "c"], lambda e: {"key": e}, 2)
    AnswerPage(shown=[{'key': 'a'}, {'key': 'b'}], last='b', has_more=True)
    """
    shown: list[dict[str, Any]] = []
    last, size = None, 0
    for entry in entries:
        if len(shown) >= limit or size >= max_bytes:
            return AnswerPage(shown, last, has_more=True)
        one = show(entry)
        size += len(json.dumps(one))
        shown.append(one)
        last = entry
    return AnswerPage(shown, last, has_more=False)


def in_time(entries: Iterable[E], seconds: float = READ_S) -> Iterator[E]:
    """Yield entries while reading them takes no longer than this.

    Raises:
        StateError: It takes longer (TOO_MUCH_WORK).
    """
    deadline = time.monotonic() + seconds
    for number, entry in enumerate(entries):
        if number % _LOOK_EVERY == 0 and time.monotonic() > deadline:
            raise refused(
                f"{number:,} entries were read in {seconds:.0f} s, and the query has not ended",
                "Query one key, a shorter range or a shorter time.",
                "TOO_MUCH_WORK",
                503,
            )
        yield entry
