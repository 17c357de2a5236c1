"""The webhook sink: records as JSON to a URL."""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.connect.config import Importance, Kind, NamedValues, OneOf, Password, Range, Setting, WebUrl
from penstock.connect.data import DataError, Moment, RetriableError, Schema, SinkRecord, Struct
from penstock.connect.functions.decorators import sink
from penstock.connect.functions.function_settings import Settings
from penstock.errors import ConnectError
from penstock.serde.data.logical import DATE_NAME, TIME_NAME

if TYPE_CHECKING:
    import httpx

__all__ = ["AGAIN", "json_bytes", "may_pass", "plain", "webhook"]

AGAIN = (408, 425, 429)


@sink(
    "WebhookSink",
    url=Setting(name="url", kind=Kind.STRING, rule=WebUrl(), importance=Importance.HIGH, doc="Where records go."),
    method=Setting(name="method", kind=Kind.STRING, default="POST", rule=OneOf(("POST", "PUT")), doc="POST or PUT."),
    headers=Setting(name="headers", kind=Kind.LIST, default="", rule=NamedValues(), doc="Headers, as name:value."),
    authorization=Setting(
        name="authorization", kind=Kind.PASSWORD, default=Password(""), doc="The header Authorization: a secret."
    ),
    batch_size=Setting(
        name="batch.size",
        kind=Kind.INT,
        default=100,
        rule=Range(1),
        doc="The largest number of records in a request; 1: no list.",
    ),
    timeout_ms=Setting(
        name="timeout.ms", kind=Kind.INT, default=30_000, rule=Range(1), doc="The longest time of a request, in ms."
    ),
)
def webhook(settings: Settings, batch: list[SinkRecord]) -> None:
    """Send the values of records as JSON; a request that may succeed later is sent again, so some may arrive twice."""
    import httpx

    fields = (part.partition(":") for part in settings.headers if ":" in part)
    headers = {"Content-Type": "application/json"} | {name.strip(): value.strip() for name, _, value in fields}
    if settings.authorization:
        headers["Authorization"] = settings.authorization.secret
    for first in range(0, len(batch), settings.batch_size):
        values = [record.value for record in batch[first : first + settings.batch_size]]
        body = json_bytes(values[0] if settings.batch_size == 1 else values)
        try:
            answer = httpx.request(
                settings.method, settings.url, content=body, headers=headers, timeout=settings.timeout_ms / 1000
            )
        except httpx.TransportError as error:
            raise RetriableError(f"{settings.url} cannot be reached: {error}") from error
        if may_pass(answer):
            raise RetriableError(f"{settings.url} answers {answer.status_code}")
        if not answer.is_success:
            raise ConnectError(
                f"{settings.url} answers {answer.status_code}: {answer.text[:200]}",
                hint="Correct the settings or the records: the same request would fail again.",
            )


def may_pass(answer: httpx.Response) -> bool:
    """Return whether the same request may succeed later."""
    return answer.status_code in AGAIN or answer.is_server_error


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
