"""Explanations of refused access: the user, the operation, and the grant or setting that is missing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from penstock.errors import AuthenticationError, AuthorizationError, LogError
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.error_codes import LocalCode
from penstock.log.kafka.security.security_settings import Security

__all__ = ["ClusterAccess"]


# Code -> the kind of resource, the fact with its name, and the default operation.
_UNAUTHORISED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ("topic", "topic", "DESCRIBE"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: ("group", "group", "READ"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("transactional-id", "transactional_id", "WRITE"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ("cluster", "cluster", "IDEMPOTENT_WRITE"),
}
_UNAUTHENTICATED = {
    LocalCode.AUTHENTICATION,
    LocalCode.SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_NOISE = re.compile(
    r"^\w*(://)?[\w.:\[\]-]+(/\w+)?: |( \(after \d+ms in state \w+(, .* suppressed)?\))|( \(_?[A-Z_]+\)$)"
)
_TLS_TEXT = re.compile(
    r"SSL alert|\[SSL: |PLAINTEXT broker listener|SSL handshake failed|is that listener TLS", re.IGNORECASE
)

# Pattern of the error's text -> hint.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        "supported mechanisms: ?$|offers no mechanism",
        (
            "That listener authenticates nobody: set security.protocol to PLAINTEXT, or use the port of the SASL "
            "listener."
        ),
    ),
    ("supported mechanisms|the broker offers", "Set sasl.mechanism to one that the broker has."),
    (
        "invalid credentials|invalid username|authentication failed",
        (
            "Is the password right, and does the broker know this user for this mechanism? Users of SCRAM are created "
            "with kafka-configs --alter --add-config 'SCRAM-SHA-512=[password=...]' --entity-type users."
        ),
    ),
    (
        "certificate verify failed|could not be verified|unable to get local issuer|self.signed",
        "Trust the authority that signed the broker's certificate: ssl.truststore.location (or ssl.ca.location).",
    ),
    (
        "hostname|host name|IP address mismatch",
        (
            "The broker's certificate is for a name other than bootstrap.servers or advertised.listeners. Use a "
            "name that is in it; ssl.endpoint.identification.algorithm= (empty) turns this check off."
        ),
    ),
    (
        "alert bad certificate|certificate required|handshake failure|alert unknown ca|alert certificate",
        "The broker requires a client certificate, signed by an authority that it trusts: ssl.keystore.location.",
    ),
    (
        "PLAINTEXT broker listener|wrong version number|closed by peer|is that listener TLS",
        (
            "That port does not use TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port of the "
            "TLS listener."
        ),
    ),
)
_OTHERWISE = "See security.protocol, sasl.* and ssl.* in the settings, and the broker's log."


class ClusterAccess:
    """The user of a cluster's clients, and the cluster's last refusal.

    librdkafka keeps trying after a wrong password, and its calls only time out: the reason comes by ``error_cb``.

    Args:
        settings: The clients' settings.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._refused: tuple[float, KafkaError] | None = None
        self._is_ending: Callable[[], bool] = lambda: False
        self._end_s, self._end_by = 0.0, 0.0

    def give_up_at_end(self, is_ending: Callable[[], bool], within_s: float) -> None:
        """Have `is_over` be true for an application that has been ending for longer than this."""
        self._is_ending, self._end_s = is_ending, within_s

    def is_over(self) -> bool:
        """Return whether failed requests are tried no more, as their application is to end."""
        if not self._is_ending():
            return False
        self._end_by = self._end_by or time.monotonic() + self._end_s
        return time.monotonic() >= self._end_by

    def note(self, error: KafkaError) -> bool:
        """Store an error from ``error_cb`` if it is a refusal, and return whether it is."""
        refused = self.is_refusal(error) and error.code() not in _UNAUTHORISED
        if refused:
            self._refused = (time.monotonic(), error)
        return refused

    @staticmethod
    def is_refusal(error: KafkaError) -> bool:
        """Return whether an error is about rights or identity, so that retries are useless."""
        return (
            error.code() in _UNAUTHORISED
            or error.code() in _UNAUTHENTICATED
            or _TLS_TEXT.search(error.str()) is not None
        )

    def refused_since(self, began: float) -> KafkaError | None:
        """Return the last refusal if it came after a monotonic time."""
        return self._refused[1] if self._refused is not None and self._refused[0] >= began else None

    def explained(self, error: KafkaError, doing: str, **facts: Any) -> LogError | None:
        """Return the error to raise for one about rights or identity; None for others.

        Args:
            error: Kafka's error.
            doing: The attempted action, such as "reading orders-0".
            facts: ``topic``, ``group`` or ``transactional_id``, and the ``operation`` by its name in ACLs.
        """
        if error.code() in _UNAUTHORISED:
            return self._unauthorised(error, doing, facts)
        if self.is_refusal(error):
            return self._unauthenticated(error, doing, facts)
        return None

    def _unauthorised(self, error: KafkaError, doing: str, facts: dict[str, Any]) -> AuthorizationError:
        kind, fact, usual = _UNAUTHORISED[error.code()]
        operation = str(facts.get("operation") or usual)
        if kind == "cluster" and operation == "WRITE":
            operation = usual  # writing in general; the topic is not checked yet
        name = str(facts.get(fact) or ("kafka-cluster" if kind == "cluster" else _quoted(error.str())))
        principal = self.principal()
        resource = "--cluster" if kind == "cluster" else f"--{kind} {name or 'NAME'}"
        servers = self._settings.bootstrap_servers
        hidden = " (If the topic exists, grant WRITE instead: a user without rights to it does not see it.)"
        return AuthorizationError(
            f"{doing}: {principal} may not {operation} {kind} {name}".rstrip(),
            hint=f"An administrator grants it: kafka-acls --bootstrap-server {servers} --add "
            f"--allow-principal '{principal}' --operation {operation} {resource}"
            + (hidden if operation == "CREATE" else ""),
            **{"code": error.name(), **facts}
            | {"principal": principal, "operation": operation, "resource_type": kind, "resource": name},
        )

    def _unauthenticated(self, error: KafkaError, doing: str, facts: dict[str, Any]) -> AuthenticationError:
        security = self._settings.security()
        said = _NOISE.sub("", error.str())
        remedy = next((hint for text, hint in _REMEDIES if re.search(text, said, re.IGNORECASE)), _OTHERWISE)
        return AuthenticationError(
            f"{doing}: no access to {self._settings.bootstrap_servers} with {_tried(security)}: {said}",
            hint=remedy,
            **{"code": error.name(), **facts},
        )

    def principal(self) -> str:
        """Return the user's name in ACLs, as far as it is known here: brokers may rename those of certificates."""
        security = self._settings.security()
        if security.uses_sasl:
            return f"User:{security.username or self._settings.token_subject() or '?'}"
        if security.uses_tls and (subject := security.subject()):
            return f"User:{subject}"
        return "User:ANONYMOUS"


def _tried(security: Security) -> str:
    parts = [security.protocol]
    if security.uses_sasl:
        parts.append(security.mechanism + (f" as user {security.username!r}" if security.username else ""))
    if security.uses_tls:
        parts.append(f"trusting {security.trusted_file[0] or ('ssl.ca.pem' if security.trusted else 'the system')}")
        subject = security.subject()
        parts.append(f"as {subject}" if subject else "without a client certificate" if len(parts) == 2 else "")
    return ", ".join(part for part in parts if part)


def _quoted(text: str) -> str:
    """Return the resource in librdkafka's text, if there is one: ``Subscribed topic not available: orders: ...``."""
    match = re.search(r"topic not available: ([\w.-]+):", text) or re.search(r"['\"]([\w.-]+)['\"]", text)
    return match.group(1) if match else ""
