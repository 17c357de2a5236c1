"""A connection to one broker: blocking, with several requests in flight, closed by any error."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import AuthenticationError, LogError
from penstock.log.client_counts import client_of, count
from penstock.log.kafka.client_settings import REQUEST_TIMEOUT_MS
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.wire.frequent_messages import FrequentCodec, codec_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafka.protocol.api_message import ApiMessage

    from penstock.log.client_counts import Client
    from penstock.log.kafka.security.oauth import TokenProvider

__all__ = [
    "NO_CONNECTION",
    "REFUSED_USER",
    "TIMED_OUT",
    "TLS_FAILED",
    "BrokerConnection",
    "arrivals",
    "check",
    "failed",
    "parse_answer",
]

NO_CONNECTION = LocalCode.TRANSPORT
TIMED_OUT = LocalCode.TIMED_OUT
TLS_FAILED = LocalCode.SSL
REFUSED_USER = LocalCode.AUTHENTICATION


def failed(code: int, text: str) -> KafkaException:
    """Make the exception of a code."""
    return KafkaException(KafkaError(code, text))


def check(code: int, doing: str) -> None:
    """Raise if this code of an answer is an error.

    Raises:
        KafkaException: Like librdkafka's clients.
    """
    if code:
        raise failed(code, f"{doing}: {KafkaError(code).str()}")


_LENGTH_BYTES = 4
_SMALLEST_ANSWER = 4  # the correlation id
# Memory for an answer is allocated before its sender is authenticated; the answers until then are small.
_MOST_BYTES_AT_FIRST = 512 << 10
_MOST_BYTES = 100_000_000  # librdkafka's default too
_CLIENT_ID = "penstock"
# A session that expires (KIP-368) is renewed well before.
_OF_SESSION = 0.8
_SLOW_BYTES_PER_S = 128 * 1024
_CONNECT_S = 3.0  # long enough for three attempts of the first packet
_SILENCE_S = 2.0  # after this silence it checks that the broker is still in the cluster


@dataclass(frozen=True, slots=True)
class _Sent:
    """A request that is on its way."""

    number: int
    kind: type[ApiMessage] | FrequentCodec
    size: int
    client: Client
    timed_as: str
    sent_s: float

    def count_answer(self, size: int, answer: Any) -> None:
        count(self.client, "answer-bytes", size)
        if self.timed_as:
            count(self.client, self.timed_as, (time.perf_counter() - self.sent_s) * 1000)
        if self.timed_as == "fetch-ms":
            count(self.client, "fetch-bytes", size)
        if self.timed_as in ("fetch-ms", "produce-ms"):
            count(self.client, "throttle-ms", getattr(answer, "throttle_time_ms", 0))


class BrokerConnection:
    """A connection with negotiated versions, authenticated.

    Requests have numbers, and each answer is kept for the receiver of its number, whoever reads it from the socket. So
    nobody else may watch the socket: `arrivals` waits for answers.

    Args:
        host: The broker's host.
        port: The broker's port.
        settings: The settings of `ClientSettings.kafka_python`.
        is_left: Returns whether this broker has left the cluster; called while it does not answer, as a machine that
            is gone closes no connection.

    Attributes:
        most_bytes: The size of the largest accepted answer (``receive.message.max.bytes``).

    Raises:
        KafkaException: With librdkafka's codes: _TRANSPORT if there is no connection or no answer in time, _SSL,
            _AUTHENTICATION, UNSUPPORTED_VERSION.
    """

    def __init__(
        self, host: str, port: int, settings: Mapping[str, Any], is_left: Callable[[], bool] = lambda: False
    ) -> None:
        self.address = f"{host}:{port}"
        self._settings = settings
        self._timeout_s = settings.get("request_timeout_ms", REQUEST_TIMEOUT_MS) / 1000
        self._is_left = is_left
        self._client_id = settings.get("client_id") or _CLIENT_ID
        self.most_bytes = _MOST_BYTES_AT_FIRST
        self._is_open = False  # versions are negotiated, and it is authenticated
        self._correlation = 0
        self._waiting: deque[_Sent] = deque()  # answers come in the order of requests
        self._clients: set[Client] = set()  # those that have used it
        self._answers: dict[int, Any] = {}
        self._unwanted: set[int] = set()
        self._failure: KafkaException | LogError | None = None
        self._expires: float | None = None
        self._versions: Any = None
        try:
            self._socket = socket.create_connection((host, port), _connect_s(settings))
            self._socket.settimeout(self._timeout_s)
        except OSError as error:
            raise failed(NO_CONNECTION, f"no connection to broker {self.address}: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._secure(host)
            self._socket.settimeout(min(_SILENCE_S, self._timeout_s))  # once: each change is a call of the system
            self._agree_on_versions()
            if settings.get("security_protocol", "PLAINTEXT").startswith("SASL"):
                self._authenticate(host)
        except BaseException:
            self.close()
            raise
        self._is_open = True
        self.most_bytes = settings.get("receive_message_max_bytes", _MOST_BYTES)

    @property
    def usable(self) -> bool:
        """Whether it is open, and its session has not expired."""
        return self._socket.fileno() >= 0 and (self._expires is None or time.monotonic() < self._expires)

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """The first and last version of each kind of request that the broker knows, by its number."""
        return dict(self._versions.api_versions)

    @property
    def kafka_version(self) -> str:
        """The newest Kafka whose requests the broker knows, such as "4.3", as far as they differ."""
        return ".".join(map(str, self._versions.broker_version[:2]))

    @property
    def is_idle(self) -> bool:
        """Whether it is usable and no request is in flight: a new one is answered at once."""
        return self.usable and not self._waiting

    def ask(self, request: ApiMessage) -> Any:
        """Send a request and wait for its answer."""
        return self.receive(self.send(request))

    def send(self, request: ApiMessage) -> int:
        """Send a request and return its number for `receive`. Receive every answer, or call `close`."""
        if request.API_VERSION is None:
            try:
                request.API_VERSION = self._versions.api_version(request)
            except Exception as error:
                raise failed(
                    KafkaError.UNSUPPORTED_VERSION, f"broker {self.address} does not know {request.name}: {error}"
                ) from error
        self._correlation += 1
        codec = codec_of(request.name, request.API_VERSION)
        if codec is not None:
            frame = memoryview(codec.encode(request, self._correlation, self._client_id))
        else:
            request.with_header(correlation_id=self._correlation, client_id=self._client_id)
            frame = memoryview(request.encode(framed=True, header=True))
        client = self._client_of(request.name)
        count(client, "request-bytes", len(frame))
        try:
            self._write(frame)
        except OSError as error:
            raise self._broken(error) from error
        kind = codec or request.header.get_response_class()
        facts = kind, len(frame), client, _timed_as(request)
        self._waiting.append(_Sent(self._correlation, *facts, time.perf_counter()))
        return self._correlation

    def receive(self, number: int) -> Any:
        """Return the answer to the request of this number."""
        while number not in self._answers:
            if not self._waiting:
                raise self._failure or self._broken(f"request {number} is not on its way")
            self._take_next()
        return self._answers.pop(number)

    def drop(self, number: int) -> None:
        """Let go of a request whose answer nobody will receive."""
        if self._answers.pop(number, None) is None:
            self._unwanted.add(number)

    def _take_next(self) -> None:
        """Read the answer to the oldest request, and keep it for its receiver."""
        # The kernel may still be sending earlier requests.
        unanswered = sum(sent.size for sent in self._waiting)
        timeout_s = self._timeout_s + unanswered / _SLOW_BYTES_PER_S
        sent = self._waiting.popleft()
        answer = self._read(sent, timeout_s)
        if sent.number in self._unwanted:
            self._unwanted.remove(sent.number)
        else:
            self._answers[sent.number] = answer

    def begins(self, number: int, *, readable: bool = False) -> bool:
        """Return whether the answer to a request is here or begins to arrive; earlier answers are kept on the way.

        It is also true if the connection is broken: `receive` raises the error.

        Args:
            number: The request.
            readable: The socket has bytes.
        """
        try:
            while number not in self._answers and self._waiting:
                if not (readable or self._has_pending()):
                    return False
                if self._waiting[0].number == number:
                    return True
                self._take_next()
                readable = False
        except (KafkaException, LogError) as error:
            self._failure = error
        return True

    def _has_pending(self) -> bool:
        """Return whether TLS has decrypted bytes that no selector shows."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _write(self, frame: memoryview) -> None:
        """Send all of a frame; raises TimeoutError if the kernel takes no byte for the connection's time-out."""
        taken = time.monotonic()
        while len(frame):
            try:
                frame = frame[self._socket.send(frame) :]
            except TimeoutError:
                if time.monotonic() - taken >= self._timeout_s:
                    raise
            else:
                taken = time.monotonic()

    def _read(self, sent: _Sent, timeout_s: float) -> Any:
        try:
            head = bytearray(_LENGTH_BYTES)
            self._fill(memoryview(head), timeout_s)
            length = int.from_bytes(head, "big", signed=True)
            self._check_length(length)
            frame = _empty_frame(length, sent.kind)
            self._fill(memoryview(frame), timeout_s)
        except OSError as error:
            raise self._broken(error) from error
        try:
            answer = parse_answer(frame, sent.number, sent.kind)
        except ValueError as error:
            raise self._broken(error) from error
        sent.count_answer(_LENGTH_BYTES + length, answer)
        return answer

    def _client_of(self, request: str) -> Client:
        client = client_of(request)
        if self._is_open and client not in self._clients:
            self._clients.add(client)
            count(client, "connections-made")
            if self._settings.get("security_protocol", "PLAINTEXT").startswith("SASL"):
                count(client, "authentications")
        return client

    def _check_length(self, length: int) -> None:
        if _SMALLEST_ANSWER <= length <= self.most_bytes:
            return
        if not self._is_open or length < 0:
            raise self._broken(f"the answer announces {length} bytes: is it Kafka, and is security.protocol right?")
        self.close()
        raise LogError(
            f"broker {self.address} announces an answer of {length:,} bytes; the limit is {self.most_bytes:,}",
            hint="If it is Kafka and has batches as large as this, set receive.message.max.bytes to a larger number.",
        )

    def close(self) -> None:
        """Close it; waiting for an answer raises an error then."""
        while self._clients:
            count(self._clients.pop(), "connections-closed")
        self._socket.close()
        self._waiting.clear()
        self._answers.clear()
        self._unwanted.clear()

    def _fill(self, view: memoryview, timeout_s: float) -> None:
        """Receive into a buffer; raises TimeoutError after ``timeout_s`` without any byte."""
        heard = time.monotonic()
        while len(view):
            try:
                count = self._socket.recv_into(view)
            except TimeoutError:
                if time.monotonic() - heard >= timeout_s:
                    raise
                if self._is_left():
                    raise ConnectionResetError("it does not answer, and has left the cluster") from None
                continue
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            view, heard = view[count:], time.monotonic()

    def _broken(self, reason: object) -> KafkaException:
        self.close()
        # A broker that rejects the certificate does so in answer to the first request.
        code = TLS_FAILED if _is_refusal(reason) and not self._is_open else NO_CONNECTION
        failure = self._failure = failed(code, f"the connection to broker {self.address} broke: {reason}")
        return failure

    def _secure(self, host: str) -> None:
        if not self._settings.get("security_protocol", "PLAINTEXT").endswith("SSL"):
            return
        context = self._settings.get("ssl_context") or ssl.create_default_context()
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            if _is_refusal(error):
                raise failed(TLS_FAILED, f"no TLS connection to broker {self.address}: {error}") from error
            raise failed(
                NO_CONNECTION, f"no TLS connection to broker {self.address}: {error}; is that listener TLS?"
            ) from error

    def _agree_on_versions(self) -> None:
        from kafka.protocol.broker_version_data import BrokerVersionData
        from kafka.protocol.metadata import ApiVersionsRequest

        # Every broker understands version 0, and its answer is sufficient.
        answer = self.ask(ApiVersionsRequest(version=0))
        if answer.error_code:
            raise failed(answer.error_code, f"broker {self.address} does not return its versions")
        versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        self._versions = BrokerVersionData(api_versions=versions)

    def _authenticate(self, host: str) -> None:
        from kafka.net.sasl import get_sasl_mechanism
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

        name = self._settings["sasl_mechanism"]
        answer = self.ask(SaslHandshakeRequest(mechanism=name, version=1))
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "no mechanism at all"
            raise self._refused(f"the broker offers {offered}")
        tokens = self._settings.get("tokens")
        own = {} if tokens is None else {"sasl_oauth_token_provider": _provider(tokens)}
        mechanism = get_sasl_mechanism(name)(host=host, **self._settings, **own)
        while not mechanism.is_done():
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=mechanism.auth_bytes(), max_version=1))
            if answer.error_code:
                raise self._refused(answer.error_message)
            try:
                mechanism.receive(answer.auth_bytes)
            except ValueError as error:
                raise self._refused(str(error)) from error
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
        if lifetime_ms:
            self._expires = time.monotonic() + _OF_SESSION * lifetime_ms / 1000

    def _refused(self, reason: str) -> KafkaException:
        count("admin", "failed-authentications")
        name, tokens = self._settings["sasl_mechanism"], self._settings.get("tokens")
        user = self._settings.get("sasl_plain_username") if tokens is None else tokens.client_id
        return failed(REFUSED_USER, f"broker {self.address} refuses user {user!r} by {name}: {reason}")


def arrivals(
    requests: Mapping[BrokerConnection, int], timeout_s: float, waker: socket.socket | None = None
) -> list[BrokerConnection]:
    """Wait until answers to some of these requests begin to arrive, and return their connections.

    Answers to earlier requests of the same connections are kept for their receivers. A connection that is broken is
    returned too: `BrokerConnection.receive` raises its error.

    Args:
        requests: Connections, each with the number of a request.
        timeout_s: The longest wait in seconds.
        waker: A socket that ends the wait when there is something to be read from it.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        answered = [connection for connection, number in requests.items() if connection.begins(number)]
        with selectors.PollSelector() as selector:  # nothing to open and close
            for connection in requests.keys() - answered:
                selector.register(connection._socket, selectors.EVENT_READ, connection)  # noqa: SLF001
            if waker is not None:
                selector.register(waker, selectors.EVENT_READ)
            ready = [key.data for key, _ in selector.select(0 if answered else max(0.0, deadline - time.monotonic()))]
        is_woken = None in ready
        answered += [each for each in ready if each is not None and each.begins(requests[each], readable=True)]
        if answered or is_woken or time.monotonic() >= deadline:
            return answered


def _empty_frame(length: int, kind: type[ApiMessage] | FrequentCodec) -> Any:
    """Return memory for an answer: for that to a frequent message nothing clears it first, as it has megabytes."""
    if isinstance(kind, FrequentCodec):
        return np.empty(length, np.uint8)
    from kafka.protocol.frame import KafkaBytes

    return KafkaBytes(length)


def parse_answer(frame: Any, number: int, kind: type[ApiMessage] | FrequentCodec) -> Any:
    """Parse the answer in a frame.

    Args:
        frame: A KafkaBytes; of a frequent message any bytes, which its answer may keep parts of.
        number: The request's number.
        kind: The answer's class, or the codec of a frequent message.

    Raises:
        ValueError: It is the answer to another request, or malformed.
    """
    try:
        if isinstance(kind, FrequentCodec):
            came, answer = kind.decode(memoryview(frame))
        else:
            came = kind.parse_header(frame).correlation_id
            answer = kind.decode(memoryview(frame)[frame.tell() :])  # given the frame itself, it would copy it twice
    except Exception as error:
        raise ValueError(f"the answer cannot be read: {type(error).__name__}: {error}") from error
    if came != number:
        raise ValueError(f"answer {came} came for request {number}")
    return answer


def _timed_as(request: ApiMessage) -> str:
    """Return under which name the time of a request counts; empty: under none."""
    name = str(request.name).removesuffix("Request")
    if name == "EndTxn":
        return "commit-txn-ms" if request.committed else "abort-txn-ms"
    return {"Fetch": "fetch-ms", "Produce": "produce-ms", "InitProducerId": "init-txn-ms"}.get(name, "")


def _is_refusal(reason: object) -> bool:
    """Return whether TLS was refused; a connection that just ends may be caused by a broker's shutdown."""
    return isinstance(reason, ssl.SSLError) and not isinstance(reason, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _connect_s(settings: Mapping[str, Any]) -> float:
    """Return the time-out in seconds for establishing a connection."""
    return float(settings.get("socket_connection_setup_timeout_ms", 1000 * _CONNECT_S)) / 1000


def _provider(tokens: TokenProvider) -> Any:
    """Wrap the tokens in the interface of kafka-python."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc] # its package has no types
        def token(self) -> str:
            try:
                return tokens.token()
            except AuthenticationError as error:
                raise failed(REFUSED_USER, error.message) from error

        def extensions(self) -> dict[str, str]:
            return dict(tokens.extensions)

    return Provider()
