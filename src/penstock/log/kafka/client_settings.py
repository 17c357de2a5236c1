"""One set of settings for all of Kafka's clients: Java's, librdkafka's and those written in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from penstock.base.identities import claim_of
from penstock.base.secrets import Secretive, masked, resolved
from penstock.config import CONFIG_DEFS
from penstock.config.client_names import CLIENT_NAMES, CLIENT_PREFIXES, check_client_name, split_prefix
from penstock.config.definitions import PREFIXES
from penstock.errors import ConfigError, PenstockError
from penstock.log.kafka.security.oauth import IDENTITY, TokenProvider, tokens_of
from penstock.log.kafka.security.security_settings import Security, jaas_line, parse_jaas

__all__ = ["REQUEST_TIMEOUT_MS", "ClientSettings", "TransactionTimeouts"]

REQUEST_TIMEOUT_MS: int = CONFIG_DEFS["request.timeout.ms"].default

_SLOW_BYTES_PER_S = 256 * 1024
_MOST_MS = 900_000  # the brokers' transaction.max.timeout.ms by default


class TransactionTimeouts:
    """The time-outs of one cluster's transactions.

    Each step doubles the time-out, so that few producers have to change theirs.

    Args:
        least_ms: The time-out of small transactions; ``producer.transaction.timeout.ms``.
        most_ms: The longest time-out to request; lowered once brokers have refused it.

    Example:
        >>> timeouts = TransactionTimeouts(30_000)
        >>> timeouts.needed(1_000), timeouts.needed(20_000_000)
        (30000, 120000)
        >>> timeouts.refused(120_000), timeouts.allowed(120_000)
        (True, 60000)
    """

    def __init__(self, least_ms: int, most_ms: int = _MOST_MS) -> None:
        self.least_ms = least_ms
        self.most_ms = max(least_ms, most_ms)

    def needed(self, size_bytes: int) -> int:
        """Return the time-out for a transaction of this size."""
        timeout_ms = self.least_ms
        # The least time-out covers the overhead and a few records.
        while timeout_ms < self.most_ms and timeout_ms < 1000 * size_bytes / _SLOW_BYTES_PER_S + self.least_ms / 2:
            timeout_ms *= 2
        return self.allowed(timeout_ms)

    def longer(self, timeout_ms: int) -> int | None:
        """Return the next longer time-out; None if there is none."""
        next_ms = self.allowed(2 * timeout_ms)
        return next_ms if next_ms > timeout_ms else None

    def allowed(self, timeout_ms: int) -> int:
        """Return this time-out, or the longest that brokers allow."""
        return min(timeout_ms, self.most_ms)

    def refused(self, timeout_ms: int) -> bool:
        """Lower the limit after brokers have refused a time-out; return whether a shorter one is left to try."""
        if timeout_ms <= self.least_ms:
            return False
        self.most_ms = max(self.least_ms, timeout_ms // 2)
        return True


ClientKind = Literal["consumer", "producer", "admin", "restore.consumer", "global.consumer"]

_SCHEME = "kafka://"
_SUBJECT = "sasl.oauthbearer.sub.claim.name"
# Java's name -> librdkafka's names, if they differ; the first of them is used.
_RENAMED: Mapping[str, tuple[str, ...]] = {
    "acks": ("acks", "request.required.acks"),
    "buffer.memory": ("queue.buffering.max.kbytes",),
    "compression.type": ("compression.type", "compression.codec"),
    "delivery.timeout.ms": ("delivery.timeout.ms", "message.timeout.ms"),
    "enable.auto.commit": ("enable.auto.commit", "auto.commit.enable"),
    "fetch.max.wait.ms": ("fetch.wait.max.ms",),
    "linger.ms": ("linger.ms", "queue.buffering.max.ms"),
    "max.in.flight.requests.per.connection": ("max.in.flight.requests.per.connection", "max.in.flight"),
    "max.partition.fetch.bytes": ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    "max.request.size": ("message.max.bytes",),
    "metadata.max.age.ms": ("topic.metadata.refresh.interval.ms",),
    "receive.buffer.bytes": ("socket.receive.buffer.bytes",),
    "request.timeout.ms": ("socket.timeout.ms",),
    "retries": ("retries", "message.send.max.retries"),
    "sasl.mechanism": ("sasl.mechanism", "sasl.mechanisms"),
    "sasl.oauthbearer.client.credentials.client.id": ("sasl.oauthbearer.client.id",),
    "sasl.oauthbearer.client.credentials.client.secret": ("sasl.oauthbearer.client.secret",),
    "send.buffer.bytes": ("socket.send.buffer.bytes",),
}
_JAVA_NAME = {own: java for java, names in _RENAMED.items() for own in names}
_ASSIGNORS = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_PYTHON_NAMES = {
    "client.id": ("client_id", str),
    "request.timeout.ms": ("request_timeout_ms", int),
    "receive.buffer.bytes": ("receive_buffer_bytes", int),
    "receive.message.max.bytes": ("receive_message_max_bytes", int),
    "send.buffer.bytes": ("send_buffer_bytes", int),
    "connections.max.idle.ms": ("connections_max_idle_ms", int),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", int),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", int),
    "retry.backoff.ms": ("retry_backoff_ms", int),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", int),
}


# Options of the login module of Amazon's Java library: those with a counterpart, and those that change no token.
_OF_AMAZON = {"awsProfileName": "profile", "awsRoleArn": "role.arn"}
_OF_AMAZONS_RETRIES = frozenset({"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"})

_OF_WRITERS = frozenset({  # those of producers that are obeyed without librdkafka too
    "acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms", "enable.idempotence", "linger.ms",
    "max.request.size", "metadata.max.age.ms", "request.timeout.ms", "transaction.timeout.ms", "transactional.id",
})  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class ClientSettings:
    """The settings of the clients of one Kafka cluster.

    Names are Java's (as in a StreamsConfig) or librdkafka's, with or without one of the prefixes ``consumer.``,
    ``main.consumer.``, ``restore.consumer.``, ``global.consumer.``, ``producer.`` and ``admin.``. References such as
    ``${env:KAFKA_PASSWORD}`` stay references until a client is made, in the process that makes it.

    >>> settings = ClientSettings.of("kafka://broker:9092", {"fetch.max.wait.ms": 50, "producer.linger.ms": "5"})
    >>> settings.librdkafka("consumer")
    {'bootstrap.servers': 'broker:9092', 'fetch.wait.max.ms': '50'}
    >>> settings.jvm("producer")
    {'bootstrap.servers': 'broker:9092', 'linger.ms': '5'}

    Attributes:
        bootstrap_servers: ``host:port``, several separated by commas.
        given: Names and values, unchanged.
    """

    bootstrap_servers: str
    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, url: str = "", settings: Mapping[str, Any] | None = None) -> ClientSettings:
        """Check the names and make the settings; of a whole StreamsConfig's ``given``, only clients' are kept.

        Args:
            url: ``host:port[,host:port]``, with or without ``kafka://``; by default ``bootstrap.servers``.
            settings: Names and values.

        Raises:
            ConfigError: No client has a setting of this name, one has two values, or there is no broker.
        """
        settings = settings or {}
        servers = url or str(settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or "")
        if not servers:
            raise ConfigError("bootstrap.servers must be set", hint="For example localhost:9092")
        client_settings = {name: _text(value) for name, value in _of_clients(settings) if value is not None}
        for kind in get_args(ClientKind):
            _require_obeyed(_layers(kind, client_settings.items()))  # finds a setting with two values early
        return cls(servers.removeprefix(_SCHEME).rstrip("/"), tuple(sorted(client_settings.items())))

    def __repr__(self) -> str:
        return f"ClientSettings({self.bootstrap_servers!r}, {masked(dict(self.given))!r})"

    @property
    def exposes_login(self) -> bool:
        """Whether passwords or tokens go over the network in plain text: to another machine, without TLS."""
        security, _ = self._of("admin")
        hosts = {server.rpartition(":")[0].strip("[]") for server in self.bootstrap_servers.split(",")}
        is_elsewhere = bool(hosts - {"localhost", "127.0.0.1", "::1"})
        return security.protocol == "SASL_PLAINTEXT" and security.mechanism in {"PLAIN", "OAUTHBEARER"} and is_elsewhere

    def librdkafka(self, kind: ClientKind) -> dict[str, Any]:
        """Return the settings of confluent-kafka; the repr hides secrets."""
        security, rest = self._of(kind)
        client = _client(kind)
        config: dict[str, Any] = Secretive({"bootstrap.servers": resolved("bootstrap.servers", self.bootstrap_servers)})
        for name, value in rest.items():
            config |= _for_librdkafka(name, value, client)
        config |= security.librdkafka()
        if (tokens := _tokens(security, rest)) is not None:
            config |= tokens.librdkafka()
        return config

    def jvm(self, kind: ClientKind) -> dict[str, str]:
        """Return the settings of Java's clients; the repr hides secrets."""
        security, rest = self._of(kind)
        properties = Secretive({"bootstrap.servers": resolved("bootstrap.servers", self.bootstrap_servers)})
        properties |= {name: value for name, value in rest.items() if _is_of_java(name, _client(kind))}
        properties |= security.jvm()
        tokens = None if security.jaas else _tokens(security, rest)
        if tokens is not None and (login := tokens.login()):
            properties["sasl.jaas.config"] = jaas_line(security.mechanism, login)  # older clients read only it
        return properties

    def kafka_python(self) -> dict[str, Any]:
        """Return the settings of clients written in Python, by kafka-python's names; the repr hides secrets."""
        security, rest = self._of("consumer")
        servers = resolved("bootstrap.servers", self.bootstrap_servers)
        config: dict[str, Any] = Secretive(bootstrap_servers=servers.split(","), security_protocol=security.protocol)
        for name, (new, read) in _PYTHON_NAMES.items():
            if name in rest:
                config[new] = read(rest[name])
        if security.uses_sasl:
            config["sasl_mechanism"] = security.mechanism
            config["sasl_plain_username"] = security.username
            config["sasl_plain_password"] = security.password
        if (tokens := _tokens(security, rest)) is not None:
            config["tokens"] = tokens
        if (context := security.context()) is not None:
            config["ssl_context"] = context
        return config

    def only_of_librdkafka(self) -> tuple[str, ...]:
        """List the settings of a producer that only librdkafka's obeys: some have no other, some are its own login.

        >>> settings = {"producer.partitioner": "consistent", "producer.linger.ms": "5", "client.id": "a"}
        >>> ClientSettings.of("broker:9092", settings).only_of_librdkafka()
        ('partitioner',)
        """
        security, rest = self._of("producer")
        other_security, other = self._of("consumer")

        def is_obeyed(name: str, value: str) -> bool:
            is_of_connections = name in _PYTHON_NAMES or name.startswith(("sasl.", "ssl."))
            return name in _OF_WRITERS or (is_of_connections and other.get(name) == value)

        names = [name for name, value in rest.items() if not is_obeyed(name, value)]
        names = [name for name in names if _for_librdkafka(name, rest[name], "producer")]
        return (*names, "security.protocol") if security != other_security else tuple(names)

    def security(self, kind: ClientKind = "consumer") -> Security:
        """Return protocol, mechanism, user and certificates."""
        return self._of(kind)[0]

    def token_subject(self) -> str | None:
        """Return whose tokens these clients show, as brokers read them; None if the token does not say it."""
        security, rest = self._of("consumer")
        try:
            tokens = _tokens(security, rest)
            return None if tokens is None else claim_of(tokens.token(), rest.get(_SUBJECT, "sub"))
        except PenstockError:
            return None

    def _of(self, kind: ClientKind) -> tuple[Security, dict[str, str]]:
        merged = {name: resolved(name, value) for name, value in _layers(kind, self.given).items()}
        merged = _with_identity(merged)
        return Security.of(merged)


def _with_identity(settings: dict[str, str]) -> dict[str, str]:
    """Return settings with the identity that those of a cloud's Java library stand for.

    >>> _with_identity({"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"})["penstock.kafka.identity"]
    'aws'
    """
    mechanism = settings.get("sasl.mechanism", "").upper()
    own = dict(settings)
    if mechanism == "AWS_MSK_IAM":  # the mechanism of Amazon's Java library; its brokers take OAUTHBEARER as well
        own.setdefault(IDENTITY, "aws")
        options = parse_jaas(own.pop("sasl.jaas.config")).options if "sasl.jaas.config" in own else {}
        if lacks := sorted(options.keys() - _OF_AMAZON.keys() - _OF_AMAZONS_RETRIES):
            raise ConfigError(
                f"sasl.jaas.config has {', '.join(lacks)}, which Amazon's signer for Python does not have",
                hint=f"Leave it out, or set {IDENTITY}=module:function, a function of your own that signs.",
                setting="sasl.jaas.config",
            )
        for option in options.keys() & _OF_AMAZON.keys():
            own.setdefault(f"{IDENTITY}.{_OF_AMAZON[option]}", options[option])
        own["sasl.mechanism"] = "OAUTHBEARER"
    elif own.get("sasl.login.callback.handler.class", "").endswith("GcpLoginCallbackHandler"):
        own.setdefault(IDENTITY, "google")
    if not own.get(IDENTITY):
        return settings
    own.setdefault("sasl.mechanism", "OAUTHBEARER")
    protocol = own.get("security.protocol", "PLAINTEXT").upper()
    if own["sasl.mechanism"].upper() != "OAUTHBEARER" or not protocol.startswith("SASL"):
        mechanism = own["sasl.mechanism"]
        raise ConfigError(
            f"{IDENTITY} would have no effect: security.protocol is {protocol} and sasl.mechanism {mechanism}",
            hint="Tokens are for security.protocol=SASL_SSL with sasl.mechanism=OAUTHBEARER.",
            setting=IDENTITY,
        )
    return own


def _tokens(security: Security, rest: Mapping[str, str]) -> TokenProvider | None:
    return tokens_of(security.login, rest) if security.uses_sasl and security.mechanism == "OAUTHBEARER" else None


def _of_clients(settings: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """Yield the settings of clients; other settings of an app are left out, unknown ones raise ConfigError."""
    others = tuple(prefix for prefix in PREFIXES if prefix not in CLIENT_PREFIXES)
    for name, value in settings.items():
        if name in ("bootstrap.servers", "metadata.broker.list"):
            continue
        is_of_clients = split_prefix(name)[1] in CLIENT_NAMES
        if not is_of_clients and (name in CONFIG_DEFS or name.startswith(others)):
            continue
        check_client_name(name)
        yield name, value


def _require_obeyed(settings: Mapping[str, str]) -> None:
    lookup = settings.get("client.dns.lookup", "use_all_dns_ips")
    if lookup != "use_all_dns_ips":
        raise ConfigError(
            f"client.dns.lookup is {lookup}, and only use_all_dns_ips is obeyed",
            hint="Leave it out, and name bootstrap servers as their certificates do: canonical names are for Kerberos.",
            setting="client.dns.lookup",
        )


def _is_of_java(name: str, client: str) -> bool:
    return "java" in CLIENT_NAMES[name].sides and client in CLIENT_NAMES[name].clients


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return str(value)


def _client(kind: str) -> str:
    return kind.rpartition(".")[2]


def _layers(kind: str, settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings of one kind of client, by Java's names; settings with a longer prefix win."""
    client = _client(kind)
    special = "main.consumer." if kind == "consumer" else f"{kind}."
    order = {"": 0, f"{client}.": 1, special: 2 if special != f"{client}." else 1}
    layers: tuple[dict[str, str], ...] = ({}, {}, {})
    for name, value in settings:
        prefix, bare = split_prefix(name)
        if prefix not in order or client not in CLIENT_NAMES[bare].clients:
            continue
        java = _JAVA_NAME.get(bare, bare)
        layer = layers[order[prefix]]
        if bare == "queue.buffering.max.kbytes":
            value = str(int(value) * 1024)  # noqa: PLW2901
        if layer.get(java, value) != value:
            raise ConfigError(
                f"{prefix}{java} and {name} are one setting with two values",
                hint=f"Keep {prefix}{java}.",
                setting=prefix + java,
            )
        layer[java] = value
    return {**layers[0], **layers[1], **layers[2]}


def _for_librdkafka(name: str, value: str, client: str) -> dict[str, str]:
    """Return a setting by librdkafka's name and in its units; empty if librdkafka does not have it."""
    if name == "request.timeout.ms" and client == "producer":
        return {name: value}  # the broker's response time; socket.timeout.ms would limit transactions as well
    if name == "metadata.max.age.ms":
        return {"topic.metadata.refresh.interval.ms": value, name: str(3 * int(value))}
    if name == "buffer.memory":
        return {"queue.buffering.max.kbytes": str(max(1, int(value) // 1024))}
    if name == "auto.offset.reset" and value == "none":
        return {name: "error"}
    if name == "ssl.cipher.suites" and "_WITH_" in value:
        return {}  # Java's names of ciphers
    if name == "partition.assignment.strategy":
        strategies = [one.strip().rpartition(".")[2] for one in value.split(",")]
        assignors = [_ASSIGNORS.get(one, one) for one in strategies if one != "StickyAssignor"]
        return {name: ",".join(assignors)} if assignors else {}
    if name in _RENAMED:
        return {_RENAMED[name][0]: value}
    return {name: value} if "librdkafka" in CLIENT_NAMES[name].sides else {}
