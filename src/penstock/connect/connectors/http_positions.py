"""Positions of records, by which the HTTP source tells what is new: numbers, times, or texts, each compared as such."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from fractions import Fraction
from typing import Any

from penstock.errors import ConnectError

__all__ = ["MOST_OF_ROUND", "NewRecords", "mark_of", "position_order"]

MOST_EQUAL = 50_000
MOST_OF_ROUND = 200_000
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_TIME = re.compile(
    r"(?P<year>[0-9]{4})-?(?P<month>[0-9]{2})-?(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):?(?P<minute>[0-9]{2})(?::?(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,30}))?)?"
    r"\s?(?P<zone>Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)?)?",
    re.IGNORECASE,
)
_DATE_ALONE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MAIL = re.compile(r"[A-Za-z]{3,9},? .*[0-9]{2}:[0-9]{2}.*")


def position_order(value: Any) -> tuple[str, Any]:
    """Return what a position is compared by: its kind, and its place among those of its kind.

    A text that is a time (ISO 8601, or as in mails) is a time; without a zone it is one of UTC. A text of digits is a
    number.

    Raises:
        ConnectError: It is none of a number, a time and a text.

    Example:
        >>> position_order("2024-01-01T12:00:00+02:00") == position_order("2024-01-01 10:00:00.000Z")
        True
        >>> position_order("9") < position_order("10"), position_order(1), position_order("b7")
        (True, ('a number', 1), ('a text', 'b7'))
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return "a number", value
    if not isinstance(value, str) or not value:
        shown = json.dumps(value, default=str)[:100]
        raise ConnectError(
            f"a record has {shown} at since.path", hint="It must name a field with a number, a time or a text."
        )
    if _NUMBER.fullmatch(value):
        return "a number in a text", Decimal(value)
    moment = _TIME.fullmatch(value)
    try:
        if moment is not None and (moment["hour"] or _DATE_ALONE.fullmatch(value)):
            return "a time", _instant(moment)
        if _MAIL.fullmatch(value):
            when = parsedate_to_datetime(value)
            return "a time", Fraction(int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()))
    except ValueError:
        pass  # 31 February, and texts that only look like times
    return "a text", value


def _instant(moment: re.Match[str]) -> Fraction:
    """Return the seconds since 1970, exactly."""
    numbers = {name: int(moment[name] or 0) for name in ("year", "month", "day", "hour", "minute", "second")}
    leap = numbers["second"] == 60
    numbers["second"] -= leap
    days = numbers["hour"] == 24  # the end of the day
    numbers["hour"] %= 24
    when = datetime(**numbers, tzinfo=UTC) + timedelta(days=days, seconds=leap)
    zone = moment["zone"] or ""
    shift = 0
    if zone[:1] in ("+", "-"):
        digits = zone[1:].replace(":", "").ljust(4, "0")
        shift = (int(digits[:2]) * 3600 + int(digits[2:]) * 60) * (-1 if zone[0] == "-" else 1)
    whole = (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    fraction = moment["fraction"]
    return whole - shift + (Fraction(int(fraction), 10 ** len(fraction)) if fraction else Fraction(0))


@dataclass(slots=True)
class _Edge:
    """A position, and the records that have come with exactly it."""

    value: Any
    order: tuple[str, Any]
    marks: dict[str, None]


class NewRecords:
    """The detection of records that have not come yet, by a position that grows from round to round.

    Records of a round come in any order and over several pages. What is older than the newest record of the rounds
    before has come, and so have the records that were seen at exactly that position. Records without a position are
    remembered as long as one of two rounds in turn has them: those that an address lists no more cost nothing.

    Args:
        stored: What `stored` returned before.
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        since, newest = stored.get("since"), stored.get("newest")
        marks = [each if len(each) == _MARK else _hash(each) for each in stored.get("ids") or ()]  # once whole records
        seen = stored.get("seen")
        self._since = None if since is None else _edge(since, marks if seen is None else seen)
        self._newest = None if newest is None else _edge(newest, marks)
        self._unplaced_before = dict.fromkeys(str(mark) for mark in stored.get("unplaced") or ())  # of two rounds
        self._unplaced_last: dict[str, None] = dict(self._unplaced_before)
        self._unplaced: dict[str, None] = {}  # of this round
        self._round: set[str] = set()

    @property
    def is_empty(self) -> bool:
        """Whether no record had a position so far."""
        return self._since is None and self._newest is None

    @property
    def since(self) -> Any:
        """The newest position of the rounds before, as it came; None before the first."""
        return None if self._since is None else self._since.value

    def stored(self) -> dict[str, Any]:
        """Return what is to be stored with the records that were taken."""
        offset: dict[str, Any] = {}
        if self._since is not None:
            offset |= {"since": self._since.value, "seen": list(self._since.marks)}
        if self._newest is not None:
            offset |= {"newest": self._newest.value, "ids": list(self._newest.marks)}
        unplaced = self._unplaced_before | self._unplaced
        if unplaced:
            offset["unplaced"] = list(unplaced)
        return offset

    def take(self, record: Any, value: Any) -> bool:
        """Return whether a record is new; it is noted as one that has come.

        Raises:
            ConnectError: Its position cannot be compared with those that came before.
        """
        mark = mark_of(record)
        if value is None:
            return self._take_unplaced(mark)
        order = position_order(value)
        for edge in (self._since, self._newest):
            if edge is not None and edge.order[0] != order[0]:
                raise ConnectError(
                    f"the positions {edge.value!r} and {value!r} of since.path cannot be compared: one is "
                    f"{edge.order[0]}, the other {order[0]}",
                    hint="Name another field; if it is another one than before, reset the connector's offsets.",
                )
        if self._since is not None and (order < self._since.order or mark in self._since.marks):
            return False
        if mark in self._round or (self._newest is not None and mark in self._newest.marks):
            return False
        if len(self._round) < MOST_OF_ROUND:
            self._round.add(mark)
        if self._newest is None or self._newest.order < order:
            self._newest = _Edge(value, order, {})
        if self._newest.order == order:
            self._newest.marks[mark] = None
            if len(self._newest.marks) > MOST_EQUAL:
                raise ConnectError(
                    f"more than {MOST_EQUAL:,} records have the position {value!r}",
                    hint="Name a finer field by since.path, such as a time with its seconds.",
                )
        return True

    def _take_unplaced(self, mark: str) -> bool:
        if mark in self._unplaced:
            return False
        if len(self._unplaced) >= MOST_EQUAL:
            raise ConnectError(
                f"more than {MOST_EQUAL:,} records of one round have no position",
                hint="Name a field by since.path that records have.",
            )
        self._unplaced[mark] = None
        return mark not in self._unplaced_before

    def end_round(self) -> None:
        """End a round, as all pages are read: what comes next must be newer."""
        self._round.clear()
        self._unplaced_before = self._unplaced_last | self._unplaced
        self._unplaced_last, self._unplaced = self._unplaced, {}
        newest = self._newest
        if newest is None or (self._since is not None and newest.order == self._since.order):
            if newest is not None and self._since is not None:
                self._since.marks |= newest.marks
                newest.marks = dict(self._since.marks)
            return
        self._since = _Edge(newest.value, newest.order, dict(newest.marks))


def _edge(value: Any, marks: Iterable[str]) -> _Edge:
    return _Edge(value, position_order(value), dict.fromkeys(str(mark) for mark in marks))


def mark_of(value: Any) -> str:
    """Return a short text that is the same for equal values of JSON."""
    return _hash(json.dumps(value, sort_keys=True))


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:12]).decode()


_MARK = 16  # characters of a hash
