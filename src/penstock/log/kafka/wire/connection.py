"""One connection to one broker: blocking, several requests on their way, closed by any error."""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import AuthenticationError
from penstock.log.kafka.wire.errors import NO_CONNECTION, REFUSED_USER, TLS_FAILED, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka.protocol.api_message import ApiMessage

    from penstock.log.kafka.oauth import TokenSource

__all__ = ["BrokerConnection"]

_LENGTH_BYTES = 4
_CLIENT_ID = "penstock"
# A session that expires (KIP-368) is opened anew well before.
_OF_SESSION = 0.8


class BrokerConnection:
    """A connection that has agreed on versions and is authenticated.

    Args:
        host: Of the broker.
        port: Of the broker.
        settings: As `ClientSettings.kafka_python` gives them.

    Raises:
        KafkaException: As librdkafka's clients raise it: _TRANSPORT if there is nobody or no answer in time, _SSL,
            _AUTHENTICATION, UNSUPPORTED_VERSION.
    """

    def __init__(self, host: str, port: int, settings: Mapping[str, Any]) -> None:
        self.address = f"{host}:{port}"
        self._settings = settings
        self._timeout_s = settings.get("request_timeout_ms", 30_000) / 1000
        self._client_id = settings.get("client_id") or _CLIENT_ID
        self._correlation = 0
        self._waiting: deque[tuple[int, type[ApiMessage]]] = deque()  # answers come in the order of requests
        self._answers: dict[int, Any] = {}
        self._expires: float | None = None
        self._versions: Any = None
        try:
            self._socket = socket.create_connection((host, port), self._timeout_s)
        except OSError as error:
            raise failed(NO_CONNECTION, f"no connection to broker {self.address}: {error}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._secure(host)
            self._agree_on_versions()
            if settings.get("security_protocol", "PLAINTEXT").startswith("SASL"):
                self._authenticate(host)
        except BaseException:
            self.close()
            raise

    @property
    def usable(self) -> bool:
        """Whether it is open, and its session lasts."""
        return self._socket.fileno() >= 0 and (self._expires is None or time.monotonic() < self._expires)

    def ask(self, request: ApiMessage) -> Any:
        """Sends a request and waits for its answer."""
        return self.receive(self.send(request))

    def send(self, request: ApiMessage) -> int:
        """Sends a request; gives the number that `receive` wants. Every answer must be received, or `close` called."""
        if request.API_VERSION is None:
            try:
                request.API_VERSION = self._versions.api_version(request)
            except Exception as error:
                raise failed(
                    KafkaError.UNSUPPORTED_VERSION, f"broker {self.address} does not know {request.name}: {error}"
                ) from error
        self._correlation += 1
        request.with_header(correlation_id=self._correlation, client_id=self._client_id)
        try:
            self._socket.sendall(request.encode(framed=True, header=True))
        except OSError as error:
            raise self._broken(error) from error
        self._waiting.append((self._correlation, request.header.get_response_class()))
        return self._correlation

    def receive(self, number: int) -> Any:
        """The answer to the request of this number."""
        while number not in self._answers:
            if not self._waiting:
                raise self._broken(f"request {number} is not on its way")
            expected, kind = self._waiting.popleft()
            self._answers[expected] = self._read(expected, kind)
        return self._answers.pop(number)

    def _read(self, number: int, kind: type[ApiMessage]) -> Any:
        from kafka.protocol.frame import KafkaBytes

        try:
            head = bytearray(_LENGTH_BYTES)
            self._fill(memoryview(head))
            frame = KafkaBytes(int.from_bytes(head, "big"))
            self._fill(memoryview(frame))
        except OSError as error:
            raise self._broken(error) from error
        header = kind.parse_header(frame)
        if header.correlation_id != number:
            raise self._broken(f"answer {header.correlation_id} came for request {number}")
        return kind.decode(memoryview(frame)[frame.tell() :])  # given the frame itself, it would copy it twice

    def close(self) -> None:
        """Ends it; whoever waits for an answer gets an error."""
        self._socket.close()
        self._waiting.clear()
        self._answers.clear()

    def _fill(self, view: memoryview) -> None:
        while len(view):
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            view = view[count:]

    def _broken(self, reason: object) -> KafkaException:
        self.close()
        return failed(NO_CONNECTION, f"the connection to broker {self.address} broke: {reason}")

    def _secure(self, host: str) -> None:
        if not self._settings.get("security_protocol", "PLAINTEXT").endswith("SSL"):
            return
        context = self._settings.get("ssl_context") or ssl.create_default_context()
        try:
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLError as error:
            raise failed(TLS_FAILED, f"no TLS connection to broker {self.address}: {error}") from error
        except OSError as error:
            raise failed(
                NO_CONNECTION, f"no TLS connection to broker {self.address}: {error}; is that listener TLS?"
            ) from error

    def _agree_on_versions(self) -> None:
        from kafka.protocol.broker_version_data import BrokerVersionData
        from kafka.protocol.metadata import ApiVersionsRequest

        # Version 0 is understood by every broker; its answer has all that is needed here.
        answer = self.ask(ApiVersionsRequest(version=0))
        if answer.error_code:
            raise failed(answer.error_code, f"broker {self.address} does not tell its versions")
        versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        self._versions = BrokerVersionData(api_versions=versions)

    def _authenticate(self, host: str) -> None:
        from kafka.net.sasl import get_sasl_mechanism
        from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

        name = self._settings["sasl_mechanism"]
        answer = self.ask(SaslHandshakeRequest(mechanism=name, version=1))
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
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

    def _refused(self, why: str) -> KafkaException:
        name, tokens = self._settings["sasl_mechanism"], self._settings.get("tokens")
        user = self._settings.get("sasl_plain_username") if tokens is None else tokens.client_id
        return failed(REFUSED_USER, f"broker {self.address} refuses user {user!r} by {name}: {why}")


def _provider(tokens: TokenSource) -> Any:
    """The tokens as kafka-python wants to be given them."""
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
