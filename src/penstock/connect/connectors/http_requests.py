"""What connectors that speak HTTP share: values as JSON, answers that may pass, and waits that a server asks for."""

from __future__ import annotations

import base64
import json
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from penstock.connect.api import SinkTaskContext
from penstock.connect.data import DataError, Moment, RetriableError, Schema, SinkRecord, Struct
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition
from penstock.serde.data.logical import DATE_NAME, TIME_NAME

if TYPE_CHECKING:
    import httpx

__all__ = [
    "AGAIN",
    "LONGEST_WAIT_S",
    "ArrivedRecords",
    "AskedWait",
    "LimitedExchange",
    "is_same_server",
    "json_bytes",
    "may_pass",
    "plain",
    "require_trust",
    "retry_after_s",
    "shown_place",
]

AGAIN = (408, 425, 429)
LONGEST_WAIT_S = 300.0
AUTHORITIES = "The environment's variable SSL_CERT_FILE names a file with the authorities of servers."
_LONGEST_SLEEP_S = 10.0  # a task that waits longer is asked in between whether it goes on


def may_pass(answer: httpx.Response) -> bool:
    """Return whether the same request may succeed later."""
    return answer.status_code in AGAIN or answer.is_server_error


def retry_after_s(text: str | None) -> float | None:
    """Return the seconds for which an answer asks to wait by its header ``Retry-After``, at most five minutes.

    >>> retry_after_s("7"), retry_after_s("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after_s("soon"), retry_after_s(None)
    (7.0, 0.1, None, None)
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        return min(max(seconds, 0.1), LONGEST_WAIT_S) if math.isfinite(seconds) else None
    try:
        when = parsedate_to_datetime(text)
        left = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return None
    return min(max(left, 0.1), LONGEST_WAIT_S)


class AskedWait:
    """The time until which a server wants no requests.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0

    def note(self, answer: httpx.Response) -> None:
        """Take the header ``Retry-After`` of an answer, if it has one."""
        after_s = retry_after_s(answer.headers.get("Retry-After"))
        if after_s is not None:
            self._until = self._clock() + after_s

    def keep(self, context: SinkTaskContext, reason: str) -> None:
        """Go on only if the time is over.

        Raises:
            RetriableError: It is not; the worker waits.
        """
        left_s = self._until - self._clock()
        if left_s > 0:
            context.timeout(math.ceil(min(left_s, _LONGEST_SLEEP_S) * 1000))
            raise RetriableError(f"{reason} {left_s:.0f} s more")


class ArrivedRecords:
    """The records of a batch that have arrived: when the batch comes again, only the others are sent."""

    def __init__(self) -> None:
        self._places: set[tuple[Any, ...]] = set()

    def left(self, records: Sequence[SinkRecord]) -> list[SinkRecord]:
        """Return the records of a batch that have not arrived."""
        return [record for record in records if _place(record) not in self._places]

    def add(self, records: Iterable[SinkRecord]) -> None:
        """Note that records have arrived, while others of their batch may not."""
        self._places.update(map(_place, records))

    def forget(self, records: Iterable[SinkRecord]) -> None:
        """Forget the records of a batch that has arrived whole."""
        self._places.difference_update(map(_place, records))

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records of partitions that the task gives up."""
        gone = {(tp.topic, tp.partition) for tp in partitions}
        self._places = {record_place for record_place in self._places if record_place[:2] not in gone}


class LimitedExchange:
    """A limit for the exchanges of a client, whatever trickles in: beyond it the connection is shut down.

    A client's own timeouts are those of single reads: a server that sends a byte now and then would hold it for ever.
    The client has its ``hooks``, and sends within its ``with``.

    Args:
        limit_s: The longest time from the request to the end of its answer.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.is_over = False
        self._timer: threading.Timer | None = None
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    @property
    def hooks(self) -> dict[str, list[Callable[..., Any]]]:
        """The client's ``event_hooks``, by which it knows the connections."""
        return {"request": [self._watch]}

    def __enter__(self) -> Self:
        self.is_over = False
        self._timer = threading.Timer(self.limit_s, self._end)
        self._timer.daemon = True
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._timer is not None  # noqa: S101 - it was entered
        self._timer.cancel()
        self._timer.join()  # it may be ending this exchange: it must not end the next one

    def _watch(self, request: httpx.Request) -> None:
        request.extensions["trace"] = self._trace

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            with self._lock:
                self._sockets = [each for each in self._sockets if each.fileno() >= 0]
                self._sockets.append(info["return_value"].get_extra_info("socket"))
                if self.is_over:
                    self._shut()

    def _end(self) -> None:
        with self._lock:
            self.is_over = True
            self._shut()

    def _shut(self) -> None:
        for each in self._sockets:
            with suppress(OSError):  # it is closed already
                socket.socket.shutdown(each, socket.SHUT_RDWR)


def is_same_server(one: httpx.URL, two: httpx.URL) -> bool:
    """Return whether two addresses are of one server; the same host by https instead of http is."""
    is_secured = (one.scheme, two.scheme, two.port) == ("http", "https", None)
    return one.host == two.host and (is_secured or (one.scheme, one.port) == (two.scheme, two.port))


def require_trust(error: BaseException, server: str, hint: str = AUTHORITIES) -> None:
    """Go on only if an error has another reason than a certificate that is not trusted.

    Args:
        error: The error of a request.
        server: The address, as it may be shown.
        hint: How to trust the certificate.

    Raises:
        ConnectError: It is the certificate: the next request would fail, too.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, ssl.SSLCertVerificationError):
            problem = each.verify_message or str(each)
            raise ConnectError(f"the certificate of {server} is not trusted: {problem}", hint=hint) from error
        each = each.__cause__ or each.__context__


def _place(record: SinkRecord) -> tuple[Any, ...]:
    return record.original_topic, record.original_partition, record.original_offset


def shown_place(record: SinkRecord) -> str:
    """Return where a record stands, for errors."""
    return f"{record.original_topic}-{record.original_partition}, offset {record.original_offset}"


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON that any parser reads.

    Raises:
        DataError: It is nested too deeply.

    Example:
        >>> json_bytes({"load": float("nan"), "text": "ü"}).decode()
        '{"load":"NaN","text":"ü"}'
    """
    try:
        text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=str)
    except RecursionError as error:
        raise DataError("the value is nested too deeply for JSON") from error
    return text.encode("utf-8", "replace")  # halves of characters, which no text has


def plain(value: Any) -> Any:
    """Return a value as JSON takes it; numbers that JSON does not have are texts, as Kafka's JsonConverter writes them.

    >>> plain({"at": Moment(0), "price": Decimal("1.50"), "raw": b"a", "rate": float("-inf")})
    {'at': '1970-01-01T00:00:00+00:00', 'price': '1.50', 'raw': 'YQ==', 'rate': '-Infinity'}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Struct):
        return {part.name: _of_schema(value[part.name], part.schema) for part in value.schema.fields}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Moment):
        try:
            return value.datetime().isoformat()
        except OverflowError:
            return str(value)  # a year beyond 9999
    return str(value) if isinstance(value, Decimal) else value


def _of_schema(value: Any, schema: Schema) -> Any:
    """Return the value of a field as JSON takes it: a date as a date, a time of the day as a time."""
    if isinstance(value, Moment) and schema.name in (DATE_NAME, TIME_NAME):
        try:
            return (value.date() if schema.name == DATE_NAME else value.time()).isoformat()
        except OverflowError:
            return str(value)
    inner = schema.values
    if isinstance(value, list) and inner is not None:
        return [_of_schema(each, inner) for each in value]
    if isinstance(value, dict) and inner is not None:
        return {str(key): _of_schema(each, inner) for key, each in value.items()}
    return plain(value)
