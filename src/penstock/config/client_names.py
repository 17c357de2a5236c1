"""The settings of Kafka's clients by Java's and by librdkafka's names, and the clients that accept them.

Java's names are those of the client library 4.3, librdkafka's those of 2.16 without its callbacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from penstock.base.nearest_name import nearest_names, question
from penstock.errors import ConfigError

__all__ = ["CLIENT_NAMES", "CLIENT_PREFIXES", "ClientName", "check_client_name", "is_client_name", "split_prefix"]

JAVA = frozenset({"java"})
LIBRDKAFKA = frozenset({"librdkafka"})
BOTH = JAVA | LIBRDKAFKA
PENSTOCK = frozenset({"penstock"})

# The client that a prefix is for; the longer ones say more, and win.
CLIENT_PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "main.consumer.": "consumer",
        "restore.consumer.": "consumer",
        "global.consumer.": "consumer",
        "consumer.": "consumer",
        "producer.": "producer",
        "admin.": "admin",
    }
)


@dataclass(frozen=True, slots=True)
class ClientName:
    """A setting of clients.

    Attributes:
        name: The name of the setting.
        clients: The clients that accept it: "consumer", "producer", "admin".
        sides: "java", "librdkafka", both if it means the same, or "penstock" for what neither has.
    """

    name: str
    clients: frozenset[str]
    sides: frozenset[str]


# A for admin, C for consumer, P for producer.
_NAMES: Mapping[tuple[frozenset[str], str], str] = {
    (BOTH, "ACP"): """
        client.dns.lookup client.id connections.max.idle.ms enable.metrics.push metadata.max.age.ms
        metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy reconnect.backoff.max.ms
        reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms
        sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.mechanism
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
        sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol
        socket.connection.setup.timeout.ms ssl.cipher.suites ssl.endpoint.identification.algorithm ssl.key.password
        ssl.keystore.location ssl.keystore.password
    """,
    (BOTH, "AP"): """
        retries
    """,
    (BOTH, "C"): """
        allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs client.rack enable.auto.commit
        fetch.max.bytes fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
        heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
        partition.assignment.strategy session.timeout.ms
    """,
    (BOTH, "P"): """
        acks batch.size compression.type delivery.timeout.ms enable.idempotence linger.ms
        max.in.flight.requests.per.connection transaction.timeout.ms transactional.id
    """,
    (JAVA, "A"): """
        bootstrap.controllers
    """,
    (JAVA, "AC"): """
        default.api.timeout.ms
    """,
    (JAVA, "ACP"): """
        metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms receive.buffer.bytes
        sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
        sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
        sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
        sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
        sasl.oauthbearer.scope.claim.name security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
        ssl.enabled.protocols ssl.engine.factory.class ssl.keymanager.algorithm ssl.keystore.certificate.chain
        ssl.keystore.key ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
        ssl.truststore.type
    """,
    (JAVA, "C"): """
        exclude.internal.topics fetch.max.wait.ms key.deserializer max.poll.records share.acknowledgement.mode
        share.acquire.mode value.deserializer
    """,
    (JAVA, "CP"): """
        interceptor.classes
    """,
    (JAVA, "P"): """
        buffer.memory compression.gzip.level compression.lz4.level compression.zstd.level key.serializer max.block.ms
        max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable
        partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys
        transaction.two.phase.commit.enable value.serializer
    """,
    (LIBRDKAFKA, "ACP"): """
        api.version.request api.version.request.timeout.ms broker.address.family broker.address.ttl debug
        enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification https.ca.location
        https.ca.pem log.connection.close log.thread.name log_level max.in.flight message.copy.max.bytes
        message.max.bytes receive.message.max.bytes reconnect.backoff.jitter.ms sasl.kerberos.keytab
        sasl.kerberos.principal sasl.mechanisms sasl.oauthbearer.assertion.jwt.template.file
        sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
        sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
        sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.password sasl.username
        socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
        socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
        ssl.certificate.location ssl.certificate.pem ssl.crl.location ssl.curves.list ssl.engine.id
        ssl.engine.location ssl.key.location ssl.key.pem ssl.providers ssl.sigalgs.list statistics.interval.ms
        topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
        topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """,
    (PENSTOCK, "ACP"): """
        penstock.kafka.identity penstock.kafka.identity.format penstock.kafka.identity.profile
        penstock.kafka.identity.region penstock.kafka.identity.role.arn penstock.kafka.identity.scope
    """,
    (LIBRDKAFKA, "C"): """
        auto.commit.enable coordinator.query.interval.ms enable.auto.offset.store enable.partition.eof
        fetch.error.backoff.ms fetch.message.max.bytes fetch.queue.backoff.ms fetch.wait.max.ms
        queued.max.messages.kbytes queued.min.messages
    """,
    (LIBRDKAFKA, "P"): """
        batch.num.messages compression.codec compression.level delivery.report.only.error message.send.max.retries
        message.timeout.ms partitioner queue.buffering.backpressure.threshold queue.buffering.max.kbytes
        queue.buffering.max.messages queue.buffering.max.ms queuing.strategy request.required.acks
        sticky.partitioning.linger.ms
    """,
}
_CLIENTS = {"A": "admin", "C": "consumer", "P": "producer"}

CLIENT_NAMES: Mapping[str, ClientName] = MappingProxyType(
    {
        name: ClientName(name, frozenset(_CLIENTS[letter] for letter in letters), sides)
        for (sides, letters), text in _NAMES.items()
        for name in text.split()
    }
)


def split_prefix(name: str) -> tuple[str, str]:
    """Split a name into the prefix of a kind of client and the rest.

    >>> split_prefix("main.consumer.fetch.max.bytes"), split_prefix("acks")
    (('main.consumer.', 'fetch.max.bytes'), ('', 'acks'))
    """
    prefix = next((prefix for prefix in CLIENT_PREFIXES if name.startswith(prefix)), "")
    return prefix, name.removeprefix(prefix)


def is_client_name(name: str) -> bool:
    """Return whether a client accepts this name, with or without a prefix."""
    return split_prefix(name)[1] in CLIENT_NAMES


def check_client_name(name: str) -> None:
    """Raise ConfigError, with similar names, unless a client accepts this setting."""
    prefix, bare = split_prefix(name)
    definition = CLIENT_NAMES.get(bare)
    if definition is None:
        client = CLIENT_PREFIXES.get(prefix)
        names = [each.name for each in CLIENT_NAMES.values() if client is None or client in each.clients]
        meant = question(*(prefix + one for one in nearest_names(bare, names, 3)))
        raise ConfigError(
            f"Kafka's clients have no setting {bare!r}" + (f" (given as {name!r})" if prefix else ""),
            hint=f"{meant} Java's names and librdkafka's are known.".lstrip(),
            setting=name,
        )
    if prefix and CLIENT_PREFIXES[prefix] not in definition.clients:
        takers = " and ".join(f"{client}s" for client in sorted(definition.clients))
        raise ConfigError(
            f"{name} has no effect: {bare} is a setting of {takers}", hint="Take another prefix.", setting=name
        )
