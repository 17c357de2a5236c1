"""What a cluster refuses, explained: who asked, what for, and what has to be granted or set."""

from __future__ import annotations

import re
import time
from typing import Any

from confluent_kafka import KafkaError

from penstock.errors import AuthenticationError, AuthorizationError, LogError
from penstock.log.kafka.security import Security
from penstock.log.kafka.settings import ClientSettings

__all__ = ["Access"]

# Code -> the kind of resource, the fact that has its name, and the operation if the caller does not tell.
_UNAUTHORISED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ("topic", "topic", "DESCRIBE"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: ("group", "group", "READ"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("transactional-id", "transactional_id", "WRITE"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ("cluster", "cluster", "IDEMPOTENT_WRITE"),
}
_UNAUTHENTICATED = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - that is how these codes are called
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_NOISE = re.compile(
    r"^\w*(://)?[\w.:\[\]-]+(/\w+)?: |( \(after \d+ms in state \w+(, .* suppressed)?\))|( \(_?[A-Z_]+\)$)"
)
_TLS_TEXT = re.compile(r"SSL alert|\[SSL: |PLAINTEXT broker listener|SSL handshake failed", re.IGNORECASE)

# What the text says -> what to do about it.
_REMEDIES: tuple[tuple[str, str], ...] = (
    (
        "supported mechanisms: ?$",
        (
            "That listener asks nobody who they are: set security.protocol to PLAINTEXT, or take the port of the SASL "
            "listener."
        ),
    ),
    ("supported mechanisms|the broker offers", "Set sasl.mechanism to one that the broker has."),
    (
        "invalid credentials|invalid username|authentication failed",
        (
            "Is the password right, and does the broker know this user for this mechanism? Users of SCRAM are made "
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
            "The broker's certificate is for another name than bootstrap.servers or advertised.listeners have. Use a "
            "name that is in it; ssl.endpoint.identification.algorithm= (empty) gives up this check."
        ),
    ),
    (
        "alert bad certificate|certificate required|handshake failure|alert unknown ca|alert certificate",
        "The broker wants a certificate of the client, signed by an authority that it trusts: ssl.keystore.location.",
    ),
    (
        "PLAINTEXT broker listener|wrong version number|closed by peer",
        (
            "That port speaks no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or take the port of the "
            "TLS listener."
        ),
    ),
)
_OTHERWISE = "See security.protocol, sasl.* and ssl.* in the settings, and the broker's log."


class Access:
    """Who we are to a cluster, and when it last refused us.

    librdkafka goes on trying after a wrong password, and its calls only time out: why is heard in ``error_cb``.

    Args:
        settings: Of the clients.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._refused: tuple[float, KafkaError] | None = None

    def note(self, error: KafkaError) -> bool:
        """To be called by ``error_cb``; whether the cluster refuses us."""
        refused = self.is_refusal(error) and error.code() not in _UNAUTHORISED
        if refused:
            self._refused = (time.monotonic(), error)
        return refused

    @staticmethod
    def is_refusal(error: KafkaError) -> bool:
        """Whether it is about rights or identity: trying again is of no use."""
        return (
            error.code() in _UNAUTHORISED
            or error.code() in _UNAUTHENTICATED
            or _TLS_TEXT.search(error.str()) is not None
        )

    def refused_since(self, began: float) -> KafkaError | None:
        """The refusal that was noted after a monotonic time."""
        return self._refused[1] if self._refused is not None and self._refused[0] >= began else None

    def explained(self, error: KafkaError, doing: str, **facts: Any) -> LogError | None:
        """The error to raise if this one is about rights or identity; None if it is not.

        Args:
            error: Kafka's.
            doing: What was tried, as "reading orders-0".
            facts: ``topic``, ``group`` or ``transactional_id``, and the ``operation`` as ACLs call it.
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
            operation = usual  # to write anything at all; which topic was not asked yet
        name = str(facts.get(fact) or ("kafka-cluster" if kind == "cluster" else _quoted(error.str())))
        principal = self.principal()
        resource = "--cluster" if kind == "cluster" else f"--{kind} {name or 'NAME'}"
        servers = self._settings.bootstrap_servers
        hidden = " (If the topic is there, grant WRITE instead: one without rights to it does not see it.)"
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
        remedy = next((what for text, what in _REMEDIES if re.search(text, said, re.IGNORECASE)), _OTHERWISE)
        return AuthenticationError(
            f"{doing}: no access to {self._settings.bootstrap_servers} with {_tried(security)}: {said}",
            hint=remedy,
            **{"code": error.name(), **facts},
        )

    def principal(self) -> str:
        """The user that ACLs speak of, as far as it can be known here: brokers may rename those of certificates."""
        security = self._settings.security()
        if security.uses_sasl:
            return f"User:{security.username or '?'}"
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
    """The resource that librdkafka's text names, if it does: ``Subscribed topic not available: orders: ...``."""
    found = re.search(r"topic not available: ([\w.-]+):", text) or re.search(r"['\"]([\w.-]+)['\"]", text)
    return found.group(1) if found else ""
