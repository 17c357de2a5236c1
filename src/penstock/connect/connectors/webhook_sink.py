"""The webhook sink: records as JSON to a URL."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.base.masking import without_passwords
from penstock.connect.api import SinkTask
from penstock.connect.config import (
    ConfigDef,
    Importance,
    Kind,
    Model,
    NamedValues,
    OneOf,
    Password,
    Range,
    Setting,
    WebUrl,
    named_values,
)
from penstock.connect.connectors.confluent_settings import HTTP_SINK_MODEL
from penstock.connect.connectors.http_requests import (
    ArrivedRecords,
    AskedWait,
    LimitedExchange,
    is_same_server,
    json_bytes,
    may_pass,
    require_trust,
    shown_place,
)
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.data import DataError, RetriableError, SinkRecord
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    import httpx

__all__ = ["WebhookSinkConnector", "WebhookSinkTask"]

MOST_REDIRECTS = 20
MOST_ANSWER_BYTES = 64 << 10
TOO_LARGE = 413
OF_RECORDS = (400, 409, TOO_LARGE, 422)  # answers to what was sent, not to who sent it and where
KEEPS_BODY = (307, 308)

CONFIG = ConfigDef(
    [
        Setting(name="url", kind=Kind.STRING, rule=WebUrl(), importance=Importance.HIGH, doc="Where records go."),
        Setting(name="method", kind=Kind.STRING, default="POST", rule=OneOf(("POST", "PUT")), doc="POST or PUT."),
        Setting(name="headers", kind=Kind.LIST, default="", rule=NamedValues(), doc="Headers, as name:value."),
        Setting(
            name="authorization",
            kind=Kind.PASSWORD,
            default=Password(""),
            doc="The header Authorization: a secret.",
        ),
        Setting(
            name="batch.size",
            kind=Kind.INT,
            default=100,
            rule=Range(1),
            doc="The largest number of records in a request; 1: no list.",
        ),
        Setting(
            name="timeout.ms",
            kind=Kind.INT,
            default=30_000,
            rule=Range(1),
            doc="The longest time of a request, in ms.",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An answer that refuses what was sent."""

    status: int
    text: str


class WebhookSinkTask(SinkTask):
    """A task: it sends one request after another, and remembers what has arrived until the whole batch has."""

    java_class: ClassVar[str] = "WebhookSinkTask"
    _client: httpx.Client | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        import httpx

        parsed = CONFIG.parse(settings)
        self._url, self._method = str(parsed["url"]), str(parsed["method"])
        self._shown = without_passwords(self._url)
        self._batch_size: int = parsed["batch.size"]
        headers = {"Content-Type": "application/json"} | named_values(parsed["headers"])
        if parsed["authorization"]:
            headers["Authorization"] = parsed["authorization"].secret
        self._has_secrets = bool(parsed["headers"] or parsed["authorization"] or httpx.URL(self._url).userinfo)
        self._exchange = LimitedExchange(parsed["timeout.ms"] / 1000)
        self._client = httpx.Client(headers=headers, timeout=self._exchange.limit_s, event_hooks=self._exchange.hooks)
        self._wait = AskedWait()
        self._arrived = ArrivedRecords()

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        self._wait.keep(self.context, f"{self._shown} wants no requests for")
        left = self._arrived.left(records)
        for first in range(0, len(left), self._batch_size):
            for record, body in self._requests(left[first : first + self._batch_size]):
                self._send(record, body)
        self._arrived.forget(records)

    def close(self, places: Collection[TopicPartition]) -> None:
        self._arrived.close(places)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    def _requests(self, records: Sequence[SinkRecord]) -> Iterator[tuple[list[SinkRecord], list[bytes]]]:
        """Yield the records of a request with their JSON, without those that have none."""
        taken: list[SinkRecord] = []
        texts: list[bytes] = []
        for record in records:
            try:
                texts.append(json_bytes(record.value))
                taken.append(record)
            except DataError as error:
                self._refuse(record, error.message)
        if taken:
            yield taken, texts

    def _send(self, records: Sequence[SinkRecord], texts: Sequence[bytes]) -> None:
        """Send a request; where some of its records are refused, find out which by sending each alone."""
        body = texts[0] if self._batch_size == 1 else b"[" + b",".join(texts) + b"]"
        refusal = self._request(body)
        if refusal is None:
            self._arrived.add(records)
            return
        problem = f"{self._shown} answers {refusal.status}: {refusal.text}"
        if len(records) == 1:
            self._refuse(records[0], problem)
        elif refusal.status == TOO_LARGE:
            middle = len(records) // 2
            self._send(records[:middle], texts[:middle])
            self._send(records[middle:], texts[middle:])
        elif self.context.errant_record_reporter is None:
            raise DataError(
                f"{problem} (the records from {shown_place(records[0])} to {shown_place(records[-1])})",
                hint="Correct the records, or set errors.tolerance=all: then only those that are refused are left out.",
            )
        else:
            for record, text in zip(records, texts, strict=True):
                self._send([record], [text])

    def _refuse(self, record: SinkRecord, problem: str) -> None:
        """Report a record; it counts as one that has arrived."""
        error = DataError(
            f"the record of {shown_place(record)} is refused: {problem}",
            hint="Correct the record or the settings, or send such records to a dead letter queue.",
        )
        if self.context.errant_record_reporter is None:
            raise error
        self.context.errant_record_reporter.report(record, error)
        self._arrived.add([record])

    def _request(self, body: bytes) -> _Refusal | None:
        """Send a request, behind redirections; return the answer that refuses it, or None.

        Raises:
            RetriableError: The server is away, busy, or wants to be asked later.
            ConnectError: The same request would fail again, whatever the records.
        """
        import httpx

        assert self._client is not None  # noqa: S101 - the task has started
        request = self._client.build_request(self._method, self._url, content=body)
        for _ in range(MOST_REDIRECTS):
            try:
                with self._exchange, closing(self._client.send(request, stream=True)) as answer:
                    text = _text(answer)
            except httpx.UnsupportedProtocol as error:
                problem = f"{self._shown} redirects to what is no HTTP: {error}"
                raise ConnectError(problem, hint="Correct url.") from error
            except httpx.TransportError as error:
                require_trust(error, self._shown)
                if self._exchange.is_over:
                    raise RetriableError(f"{self._shown} has not answered within timeout.ms") from error
                raise RetriableError(
                    f"{self._shown} cannot be reached: {str(error) or type(error).__name__}"
                ) from error
            if answer.is_success:
                return None
            if may_pass(answer):
                self._wait.note(answer)
                self._wait.keep(self.context, f"{self._shown} answers {answer.status_code} and asks to wait for")
                raise RetriableError(f"{self._shown} answers {answer.status_code}")
            if answer.status_code in OF_RECORDS:
                return _Refusal(answer.status_code, text)
            if answer.next_request is None:
                raise ConnectError(
                    f"{self._shown} answers {answer.status_code}: {text}",
                    hint="Correct url, method, headers or authorization: the same request would fail again.",
                )
            request = self._redirected(answer, answer.next_request)
        raise ConnectError(f"{self._shown} redirects more than {MOST_REDIRECTS} times", hint="Correct url.")

    def _redirected(self, answer: httpx.Response, following: httpx.Request) -> httpx.Request:
        """Return the request to where an answer points, if it has the same body and goes to whom it may."""
        target = without_passwords(str(following.url))
        if answer.status_code not in KEEPS_BODY:
            raise ConnectError(
                f"{self._shown} answers {answer.status_code} and names {target}, which would get no records: "
                "such a redirection is followed without a body",
                hint="Set url to that address if the records belong there.",
            )
        if self._has_secrets and not is_same_server(answer.request.url, following.url):
            raise ConnectError(
                f"{self._shown} redirects to another server: {target}",
                hint="Secrets are not sent there. Set url to that address if you trust it.",
            )
        return following


class WebhookSinkConnector(AlikeTasksSink):
    """Send the values of records as JSON to a URL, in lists of ``batch.size``.

    What may succeed later is sent again until it does: while the server is away, after 408, 425, 429 and answers from
    500 on, not before the time of ``Retry-After``. Only the requests that failed are sent again, but after a crash,
    or when an answer is lost, some records may arrive twice. Any answer from 200 to 299 says that they have arrived.
    Records that are refused (400, 409, 413, 422) go to the dead letter queue, or fail the task; those of a refused list
    are sent one by one with ``errors.tolerance=all``, and a list that is too large (413) by halves. 307 and 308 are
    followed, to another server only without ``headers`` and ``authorization``; other redirections lose the body, and
    fail.
    """

    java_class: ClassVar[str] = "WebhookSink"
    config: ClassVar[ConfigDef] = CONFIG
    model: ClassVar[Model] = HTTP_SINK_MODEL
    task_class: ClassVar[type[SinkTask]] = WebhookSinkTask


def _text(answer: httpx.Response) -> str:
    """Return the first words of an answer; its status counts also if it is cut off, endless or packed wrongly."""
    import httpx

    body = bytearray()
    with suppress(httpx.HTTPError):
        for part in answer.iter_bytes():
            body += part
            if len(body) > MOST_ANSWER_BYTES:
                break
    return bytes(body[:200]).decode("utf-8", "replace")
