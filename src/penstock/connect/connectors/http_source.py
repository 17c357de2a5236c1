"""The HTTP source: the records of JSON answers, page by page, and the positions that show what is new."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import parsedate_to_datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from penstock.base.backoff import Backoff
from penstock.base.log_lines import own_logger
from penstock.base.masking import without_passwords
from penstock.connect.config import Importance, Kind, NamedValues, OneOf, Password, Range, Setting, WebUrl, named_values
from penstock.connect.connectors.http_requests import (
    LONGEST_WAIT_S,
    LimitedExchange,
    is_same_server,
    may_pass,
    require_trust,
    retry_after_s,
)
from penstock.connect.functions import Offsets, Record, Settings, source
from penstock.errors import ConnectError

if TYPE_CHECKING:
    import httpx

__all__ = ["MOST_OF_ROUND", "NewRecords", "http_poll", "mark_of", "position_order"]

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


_log = own_logger(__name__)
NO_CONTENT, RESET_CONTENT, NOT_FOUND, NOT_MODIFIED = 204, 205, 404, 304
MOST_REDIRECTS = 20
NO_SECRETS = frozenset({"accept", "accept-language", "user-agent"})  # headers that any host may see
MOST_BYTES = 64 << 20
MOST_SAME = 4  # pages in a row that are the same: the address has no more
_BACKOFF = Backoff(1.0, LONGEST_WAIT_S, jitter=0.5)


def field_at(value: Any, path: str) -> Any:
    """Return the part of a JSON value at a path of names and numbers joined by dots; None if it is not there.

    >>> field_at({"data": [{"id": 7}]}, "data.0.id"), field_at({}, "a.b"), field_at([1], "")
    (7, None, [1])
    """
    for step in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


@source(
    "HttpSource",
    url=Setting(
        name="url", kind=Kind.STRING, rule=WebUrl(), importance=Importance.HIGH, doc="The address of requests."
    ),
    topic=Setting(name="topic", kind=Kind.STRING, importance=Importance.HIGH, doc="Where records are written."),
    interval_ms=Setting(
        name="interval.ms",
        kind=Kind.LONG,
        default=60_000,
        rule=Range(1),
        doc="The time between two rounds of requests.",
    ),
    records_path=Setting(
        name="records.path",
        kind=Kind.STRING,
        default="",
        doc="The list of records in an answer, such as data.items; none: the whole answer, a list or one record.",
    ),
    key_path=Setting(name="key.path", kind=Kind.STRING, default="", doc="The key in a record, such as id."),
    pagination=Setting(
        name="pagination",
        kind=Kind.STRING,
        default="none",
        rule=OneOf(("none", "cursor", "link", "page")),
        doc="cursor: each answer names the next one; link: by the header Link; page: numbers, until one is "
        "empty, not found, or four in a row are the same.",
    ),
    cursor_path=Setting(name="cursor.path", kind=Kind.STRING, default="next", doc="The next cursor in an answer."),
    cursor_param=Setting(
        name="cursor.param", kind=Kind.STRING, default="cursor", doc="The parameter of a request that takes the cursor."
    ),
    page_param=Setting(
        name="page.param", kind=Kind.STRING, default="page", doc="The parameter with the page's number."
    ),
    page_first=Setting(name="page.first", kind=Kind.INT, default=1, doc="The number of the first page."),
    since_path=Setting(
        name="since.path",
        kind=Kind.STRING,
        default="",
        doc="The field of records that grows, such as updated_at: a time, a number or a text, compared as such. "
        "The next round of requests sends the largest one; records that are not newer are skipped. Records in "
        "which it is null come once, as long as they are listed.",
    ),
    since_param=Setting(
        name="since.param", kind=Kind.STRING, default="since", doc="The parameter of a request that takes it."
    ),
    headers=Setting(name="headers", kind=Kind.LIST, default="", rule=NamedValues(), doc="Headers, as name:value."),
    authorization=Setting(
        name="authorization", kind=Kind.PASSWORD, default=Password(""), doc="The header Authorization: a secret."
    ),
    timeout_ms=Setting(
        name="timeout.ms", kind=Kind.INT, default=30_000, rule=Range(1), doc="The longest time of a request, in ms."
    ),
)
def http_poll(settings: Settings, offsets: Offsets) -> Iterator[Any]:
    """Poll an address for JSON; each page is one transaction with the position of the next one.

    Records are read once where the address allows it: requests continue from the stored cursor or page, an
    answer with the same ETag is not read twice, and with ``since.path`` only newer records are read, in
    any order. An address without any of these is read as a whole in each round. An address that fails, or asks to
    wait (``Retry-After``), is requested again later. Redirections to another server are followed only without
    secrets: with ``headers`` or ``authorization`` they are refused.
    """
    import httpx

    source_partition = {"url": str(settings.url)}
    state = _State(dict(offsets.get(source_partition) or {}))
    headers = named_values(settings.headers)
    headers["Accept"] = headers.get("Accept", "application/json")
    if settings.authorization:
        headers["Authorization"] = settings.authorization.secret
    failures = 0
    exchange = LimitedExchange(settings.timeout_ms / 1000)
    with httpx.Client(headers=headers, timeout=exchange.limit_s, event_hooks=exchange.hooks) as client:
        while True:
            try:
                page = _ask(client, exchange, settings, state)
            except _AgainError as again:
                failures += 1
                pause_s = again.after_s if again.after_s is not None else _BACKOFF.pause_s(failures)
                _log.warning("%s, and is asked again in %.1f s", without_passwords(str(again)), pause_s)
                yield pause_s
                continue
            failures = 0
            if page is not None and state.holds(settings, page):
                continue
            records = [] if page is None else state.new(settings, page)
            more = page is not None and state.move(settings, page)
            if page is not None:
                offset = state.stored()
                batch = [
                    Record(
                        settings.topic,
                        each,
                        key=_key(each, settings.key_path),
                        partition=source_partition,
                        offset=offset,
                    )
                    for each in records
                ]
                if batch:
                    yield batch
            if not more:
                yield settings.interval_ms / 1000


class HttpPage:
    """An answer.

    Attributes:
        body: Its JSON.
        records: The records in it.
        url: Its address, behind redirections.
        link: The address of the next page by its header Link.
        etag: Its ETag.
    """

    def __init__(self, body: Any, records: list[Any], answer: httpx.Response, link: str | None = None) -> None:
        self.body, self.records, self.link = body, records, link
        self.url, self.etag = str(answer.url), answer.headers.get("ETag")


class _AgainError(Exception):
    """A request that may succeed later: why it did not, and when the server wants to be asked again."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class _State:
    """The place in the pages, and what is new: what is stored as the offset."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.cursor: Any = stored.get("cursor")
        self.link: str | None = stored.get("link")
        self.page: int | None = stored.get("page")
        self.etag: str | None = stored.get("etag")
        self.before: str | None = stored.get("before")  # the hash of the page before, in this round
        self._held: list[list[Any]] = []  # pages that were the page before once more
        self._behind: set[str] = set()  # the addresses or cursors that this round has read
        self.positions = NewRecords(stored)

    def stored(self) -> dict[str, Any]:
        before = self.before if self.page is not None else None
        fields = {"cursor": self.cursor, "link": self.link, "page": self.page, "etag": self.etag, "before": before}
        return {name: value for name, value in fields.items() if value is not None} | self.positions.stored()

    @property
    def is_first(self) -> bool:
        """Whether the next request begins a round."""
        return self.link is None and self.page is None

    def new(self, settings: Settings, page: HttpPage) -> list[Any]:
        """Return the records that have not come yet."""
        path = settings.since_path
        records = [each for held in (*self._held, page.records) for each in held]
        self._held.clear()
        if not path:
            return records
        placed = [(each, field_at(each, path)) for each in records]
        if placed and self.positions.is_empty and all(position is None for _, position in placed):
            position_order(None)  # no record has the field: its name is wrong
        return [each for each, position in placed if self.positions.take(each, position)]

    def move(self, settings: Settings, page: HttpPage) -> bool:
        """Go to the next page; return whether there is one now."""
        if settings.pagination == "none":  # of more pages, the first says nothing about the others
            self.etag = page.etag
        match settings.pagination:
            case "cursor" if page.body is None:  # there is nothing at the cursor yet
                pass
            case "cursor":
                following = field_at(page.body, settings.cursor_path)
                moved = following not in (None, "", self.cursor) and self._leads_on(str(self.cursor), str(following))
                self.cursor = following or None  # without one the list has ended: the next round begins it again
                if moved and page.records:
                    return True
            case "link" if page.link is not None and self._leads_on(page.url, page.link):
                self.link = page.link
                return True
            case "page" if page.records:
                self.page = (self.page if self.page is not None else int(settings.page_first)) + 1
                return True
        self.link = self.page = self.before = None
        self._behind.clear()
        self.positions.end_round()
        return False

    def _leads_on(self, here: str, following: str) -> bool:
        """Return whether a page names one that this round has not read yet: some lists are a ring."""
        if len(self._behind) < MOST_OF_ROUND:
            self._behind.add(mark_of(here))
        return mark_of(following) not in self._behind

    def holds(self, settings: Settings, page: HttpPage) -> bool:
        """Return whether a page is the page before once more, and the pages behind it have to say what that means.

        Some addresses answer the last page for every number behind it. A page that differs, or that is empty, shows
        that this one does not: then those that were held are pages of their own.
        """
        if settings.pagination != "page" or not page.records:
            return False
        before, self.before = self.before, mark_of(page.records)
        if before != self.before:
            return False
        if len(self._held) < MOST_SAME - 2:
            self._held.append(page.records)
            self.page = (self.page if self.page is not None else int(settings.page_first)) + 1
            return True
        self._held.clear()
        page.records = []
        return False


def _ask(client: httpx.Client, exchange: LimitedExchange, settings: Settings, state: _State) -> HttpPage | None:
    """Return the next answer; None: nothing has changed."""
    import httpx

    params: dict[str, str] = {}
    headers: dict[str, str] = {}
    if settings.pagination == "cursor" and state.cursor is not None:
        params[settings.cursor_param] = str(state.cursor)
    if settings.pagination == "page":
        params[settings.page_param] = str(settings.page_first if state.page is None else state.page)
    if settings.since_path and state.positions.since is not None and state.link is None:
        params[settings.since_param] = str(state.positions.since)
    if state.etag and settings.pagination == "none":
        headers["If-None-Match"] = state.etag
    url = httpx.URL(state.link or settings.url).copy_merge_params(params)
    shown = str(settings.url)
    try:
        with exchange:
            answer, data = _answer(client, settings, url, headers)
    except httpx.UnsupportedProtocol as error:
        raise ConnectError(f"{shown} redirects to what is no HTTP: {error}", hint="Correct url.") from error
    except httpx.TransportError as error:
        require_trust(error, without_passwords(shown))
        if exchange.is_over:
            raise _AgainError(f"{shown} sends its answer too slowly for timeout.ms") from error
        raise _AgainError(f"{shown} does not answer: {str(error) or type(error).__name__}") from error
    except httpx.RequestError as error:  # it is compressed in another way than it says, or redirects without end
        raise ConnectError(f"the answer of {shown} cannot be read: {error}", hint="Correct url.") from error
    if exchange.is_over:  # where an answer ends with its connection, its end is not known to be the end
        raise _AgainError(f"{shown} sends its answer too slowly for timeout.ms")
    if answer.status_code == NOT_MODIFIED:
        return None
    is_behind = answer.status_code == NOT_FOUND and state.page is not None  # what some say behind the last page
    if answer.status_code in (NO_CONTENT, RESET_CONTENT) or is_behind:
        return HttpPage(None, [], answer)
    if not answer.is_success:
        raise ConnectError(
            f"{shown} answers {answer.status_code}: {data[:200].decode('utf-8', 'replace')}",
            hint="Correct url, headers or authorization: the same request would fail again.",
        )
    try:
        body = json.loads(_text(answer, data))
    except (ValueError, RecursionError) as error:
        if _may_be_cut_off(answer, data, error):
            raise _AgainError(f"the answer of {shown} ends in the middle") from error
        raise ConnectError(
            f"{shown} does not answer JSON: {data[:100].decode('utf-8', 'replace')}",
            hint="This source reads JSON; ask for it by headers=Accept:application/json.",
        ) from error
    records = field_at(body, settings.records_path)
    if records is None and settings.records_path and _has(body, settings.records_path):
        records = []  # null, which some write for none
    elif records is None and settings.records_path:
        names = ", ".join(body) if isinstance(body, dict) else type(body).__name__
        raise ConnectError(
            f"the answer of {shown} has nothing at {settings.records_path}", hint=f"It has {names or 'nothing'}."
        )
    link = answer.links.get("next", {}).get("url")
    following = str(answer.url.join(link)) if link else None
    if following and httpx.URL(following).host != httpx.URL(shown).host:
        raise ConnectError(
            f"{shown} names a next page on another host: {following}",
            hint="Records and secrets are not sent there: ask that host itself.",
        )
    if following and _has_secrets(settings) and not is_same_server(httpx.URL(shown), httpx.URL(following)):
        raise ConnectError(
            f"{shown} names a next page on another server: {following}",
            hint="Secrets are not sent to another port, or without https. Set url to that server if you trust it.",
        )
    if not isinstance(records, list):
        records = [] if records is None else [records]
    return HttpPage(body, records, answer, following)


def _answer(
    client: httpx.Client, settings: Settings, url: httpx.URL, headers: dict[str, str]
) -> tuple[httpx.Response, bytes]:
    """Return the answer with its body, behind redirections; secrets are sent to the server of ``url`` alone."""
    import httpx

    request = client.build_request("GET", url, headers=headers)
    for _ in range(MOST_REDIRECTS):
        with closing(client.send(request, stream=True)) as answer:
            if answer.status_code != NOT_MODIFIED and may_pass(answer):
                after_s = retry_after_s(answer.headers.get("Retry-After"))
                raise _AgainError(f"{settings.url} answers {answer.status_code}", after_s)
            data = b"" if answer.status_code == NOT_MODIFIED else _body(answer)
        if answer.next_request is None:
            return answer, data
        following = answer.next_request
        if not is_same_server(url, following.url) and _has_secrets(settings):
            raise ConnectError(
                f"{settings.url} redirects to another server: {following.url.host}:{following.url.port or ''}",
                hint="Secrets are not sent there. Set url to that address if you trust it.",
            )
        request = following
    raise httpx.TooManyRedirects(f"more than {MOST_REDIRECTS} redirections", request=request)


def _has_secrets(settings: Settings) -> bool:
    names = {name.lower() for name in named_values(settings.headers)}
    return bool(settings.authorization) or not names <= NO_SECRETS


def _text(answer: httpx.Response, data: bytes) -> str | bytes:
    """Return the text in the encoding that the answer names; without one, JSON's own rules find it."""
    encoding = answer.charset_encoding
    if encoding is None or encoding.lower() in ("utf-8", "utf8"):
        return data
    try:
        return data.decode(encoding)
    except LookupError:  # no encoding has this name
        return data


def _has(body: Any, path: str) -> bool:
    """Return whether there is something at a path, if only null."""
    parent, _, name = path.rpartition(".")
    holder = field_at(body, parent)
    return isinstance(holder, dict) and name in holder


def _may_be_cut_off(answer: httpx.Response, data: bytes, error: Exception) -> bool:
    """Return whether JSON stops where a connection may have ended: the answer did not say how long it is."""
    if not isinstance(error, json.JSONDecodeError) or not {"content-length", "transfer-encoding"}.isdisjoint(
        answer.headers
    ):
        return False
    is_open = error.msg.startswith("Unterminated") or not error.doc[error.pos :].strip()
    return bool(data.strip()) and data.lstrip()[:1] in b'{["' and is_open


def _body(answer: httpx.Response) -> bytes:
    body = bytearray()
    for part in answer.iter_bytes():
        body += part
        if len(body) > MOST_BYTES:
            raise ConnectError(
                f"an answer of {answer.url.host} has more than {MOST_BYTES >> 20} MiB", hint="Ask for smaller pages."
            )
    return bytes(body)


def _key(record: Any, path: str) -> Any:
    return field_at(record, path) if path else None
