"""The HTTP source: the records of JSON answers, page by page, and what is new at the next request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from penstock.base.backoff import Backoff
from penstock.connect.config import Importance, Kind, NamedValues, OneOf, Password, Range, Setting, WebUrl
from penstock.connect.connectors.http import may_pass
from penstock.connect.connectors.http_positions import NewRecords
from penstock.connect.functions.decorators import source
from penstock.connect.functions.function_settings import Settings
from penstock.connect.functions.record import Offsets, Record
from penstock.errors import ConnectError

if TYPE_CHECKING:
    import httpx

__all__ = ["HttpPage", "field_at", "http_poll"]

NOT_MODIFIED = 304
MOST_BYTES = 64 << 20
_BACKOFF = Backoff(1.0, 300.0, jitter=0.5)


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
        doc="cursor: each answer names the next one; link: by the header Link; page: numbers, until one is empty.",
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
        "The next round of requests sends the largest one; records that are not newer are skipped.",
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
    wait (``Retry-After``), is requested again later.
    """
    import httpx

    source_partition = {"url": str(settings.url)}
    state = _State(dict(offsets.get(source_partition) or {}))
    headers = dict(_header(part) for part in settings.headers)
    headers["Accept"] = headers.get("Accept", "application/json")
    if settings.authorization:
        headers["Authorization"] = settings.authorization.secret
    failures = 0
    with httpx.Client(headers=headers, timeout=settings.timeout_ms / 1000, follow_redirects=True) as client:
        while True:
            try:
                page = _ask(client, settings, state)
            except _AgainError as again:
                failures += 1
                yield again.after_s if again.after_s is not None else _BACKOFF.pause_s(failures)
                continue
            failures = 0
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
        link: The address of the next page by its header Link.
        etag: Its ETag.
    """

    def __init__(self, body: Any, records: list[Any], link: str | None, etag: str | None) -> None:
        self.body, self.records, self.link, self.etag = body, records, link, etag


class _AgainError(Exception):
    def __init__(self, after_s: float | None = None) -> None:
        super().__init__()
        self.after_s = after_s


class _State:
    """The place in the pages, and what is new: what is stored as the offset."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.cursor: Any = stored.get("cursor")
        self.link: str | None = stored.get("link")
        self.page: int | None = stored.get("page")
        self.etag: str | None = stored.get("etag")
        self.positions = NewRecords(stored)

    def stored(self) -> dict[str, Any]:
        fields = {"cursor": self.cursor, "link": self.link, "page": self.page, "etag": self.etag}
        return {name: value for name, value in fields.items() if value is not None} | self.positions.stored()

    @property
    def is_first(self) -> bool:
        """Whether the next request begins a round."""
        return self.link is None and self.page is None

    def new(self, settings: Settings, page: HttpPage) -> list[Any]:
        """Return the records that have not come yet."""
        path = settings.since_path
        if not path:
            return page.records
        return [each for each in page.records if self.positions.take(each, field_at(each, path))]

    def move(self, settings: Settings, page: HttpPage) -> bool:
        """Go to the next page; return whether there is one now."""
        if settings.pagination == "none":  # of more pages, the first says nothing about the others
            self.etag = page.etag
        match settings.pagination:
            case "cursor":
                following = field_at(page.body, settings.cursor_path)
                moved = following not in (None, "", self.cursor)
                self.cursor = following or None  # without one the list has ended: the next round begins it again
                if moved and page.records:
                    return True
            case "link" if page.link is not None:
                self.link = page.link
                return True
            case "page" if page.records:
                self.page = (self.page if self.page is not None else int(settings.page_first)) + 1
                return True
        self.link = self.page = None
        self.positions.end_round()
        return False


def _ask(client: httpx.Client, settings: Settings, state: _State) -> HttpPage | None:
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
    try:
        with client.stream("GET", url, headers=headers) as answer:
            if answer.status_code == NOT_MODIFIED:
                return None
            if may_pass(answer):
                raise _AgainError(_retry_after(answer.headers.get("Retry-After")))
            data = _body(answer)
    except httpx.TransportError as error:
        raise _AgainError from error
    shown = str(settings.url)
    if not answer.is_success:
        raise ConnectError(
            f"{shown} answers {answer.status_code}: {data[:200].decode('utf-8', 'replace')}",
            hint="Correct url, headers or authorization: the same request would fail again.",
        )
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConnectError(
            f"{shown} does not answer JSON: {data[:100].decode('utf-8', 'replace')}",
            hint="This source reads JSON; ask for it by headers=Accept:application/json.",
        ) from error
    records = field_at(body, settings.records_path)
    if records is None and settings.records_path:
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
    return HttpPage(body, records if isinstance(records, list) else [records], following, answer.headers.get("ETag"))


def _body(answer: httpx.Response) -> bytes:
    body = bytearray()
    for part in answer.iter_bytes():
        body += part
        if len(body) > MOST_BYTES:
            raise ConnectError(
                f"an answer of {answer.url.host} has more than {MOST_BYTES >> 20} MiB", hint="Ask for smaller pages."
            )
    return bytes(body)


def _header(part: str) -> tuple[str, str]:
    name, _, value = part.partition(":")
    return name.strip(), value.strip()


def _retry_after(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return min(max(float(text), 0.1), _BACKOFF.longest_s)
    except ValueError:
        pass
    try:
        left = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(max(left, 0.1), _BACKOFF.longest_s)


def _key(record: Any, path: str) -> Any:
    return field_at(record, path) if path else None
