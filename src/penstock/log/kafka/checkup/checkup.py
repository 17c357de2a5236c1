"""The whole examination of a cluster and of the topics of an application, for `penstock doctor`.

It ends with a trial of what an application does, with a topic of its own, which is removed at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.base.check_result import CheckResult
from penstock.base.terminal.human_numbers import counted
from penstock.errors import LogError, PenstockError
from penstock.log.application_needs import ApplicationNeeds
from penstock.log.kafka.checkup.broker_capabilities import check_clock, check_features, check_quotas, check_requests
from penstock.log.kafka.checkup.cluster_questions import (
    advertised_brokers,
    broker_settings,
    features,
    topic_facts,
    topic_settings,
)
from penstock.log.kafka.checkup.rights import RightsOf
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.clients.connections import Clients
from penstock.log.kafka.failures import error_of, failure, name_of, persist
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.kafka.wire.connection import NO_CONNECTION, BrokerConnection
from penstock.log.kafka.wire.groups import EARLIEST, committed_offsets, list_offsets
from penstock.log.thread_clients import Writer

if TYPE_CHECKING:
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.log.kafka.checkup.cluster_questions import TopicFacts
    from penstock.log.kafka.refused_access import ClusterAccess
    from penstock.log.thread_clients import ThreadClients

__all__ = [
    "Reached",
    "broker_rules",
    "examine_cluster",
    "first_answer",
    "reach_brokers",
    "try_cluster",
]

_MOST_PARTITIONS = 12
_OFF_MS = 1_000
_SEGMENT_MS = 100
_COMPACTED_WITHIN_S = 60.0  # log.cleaner.backoff.ms of brokers is 15 s
_LOOK_S = 0.5
# A compacted topic whose segments are closed, and cleaned, as soon as may be.
_SETTINGS: Mapping[str, str] = {
    "cleanup.policy": "compact,delete",  # of topics that are compacted alone no client deletes records
    "retention.ms": "-1",
    "message.timestamp.type": "LogAppendTime",
    "segment.ms": str(_SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "0",
}


def try_cluster(log: TopicLog, needs: ApplicationNeeds, brokers: int) -> Iterator[CheckResult]:
    """Create a compacted topic, write a transaction, read it, see it compacted, delete records, delete the topic.

    Args:
        log: The cluster's log.
        needs: The application, whose prefix the topic and the transactional id have.
        brokers: The number of brokers, for a partition on each.
    """
    topic = needs.unused_name()
    partitions = max(1, min(brokers, _MOST_PARTITIONS))
    created = _attempt(f"trial: create {topic}", lambda: log.create_topic(topic, partitions, _SETTINGS))
    yield created
    if not created.ok:
        return
    try:
        yield from _used(log, topic, partitions)
    finally:
        deleted = _attempt(f"trial: delete {topic}", lambda: log.delete_topic(topic))
    yield deleted


def _used(log: TopicLog, topic: str, partitions: int) -> Iterator[CheckResult]:
    times: dict[int, tuple[float, float]] = {}
    prefix, _, name = topic.rpartition("-")
    clients = cast("ThreadClients", log)  # as each log is
    first = "trial: write in a transaction"
    try:
        with closing(clients.commit_producer(Writer(prefix, name, None))) as producer:

            def write(partition: int, value: bytes) -> None:
                began = time.time() * 1000
                producer.send([(topic, partition, _record(value))])
                producer.commit({})
                times.setdefault(partition, (began, time.time() * 1000))

            for partition in range(partitions):
                write(partition, b"1")
            yield CheckResult(first, f"{partitions} committed", ok=True)
            for value in (b"2", b"3"):  # each begins a new segment, and the last one is not cleaned
                time.sleep(2 * _SEGMENT_MS / 1000)
                write(0, value)
    except PenstockError as error:
        yield _failed(first, error)
        return
    yield _attempt("trial: read committed records", lambda: _read(log, topic, partitions))
    yield from _clocks(log, topic, times)
    yield _compaction(log, topic)
    yield _attempt("trial: delete records", lambda: log.delete_records(topic, 0, log.end_offset(topic, 0)))


def _record(value: bytes) -> pa.RecordBatch:
    columns = {"timestamp": pa.array([0], pa.int64()), "key": pa.array([b"k"]), "value": pa.array([value])}
    return pa.RecordBatch.from_pydict(columns)


def _read(log: TopicLog, topic: str, partitions: int) -> str:
    count = sum(log.read(topic, partition, 0).records.num_rows for partition in range(partitions))
    return f"{count} read"


def _clocks(log: TopicLog, topic: str, times: Mapping[int, tuple[float, float]]) -> Iterator[CheckResult]:
    """Compare the time at which the leader of each partition has appended the first record with ours."""
    for partition, (before, after) in sorted(times.items()):
        name = f"trial: clock of the leader of partition {partition}"
        try:
            # The oldest record may be compacted by now in the partition that has several.
            records = log.read(topic, partition, 0, 1).records
        except PenstockError as error:
            yield _failed(name, error)
            continue
        if not records.num_rows or records.column("value")[0].as_py() != b"1":
            continue
        stamp = records.column("timestamp")[0].as_py()
        ahead_ms = stamp - after if stamp > after else min(0.0, stamp - before)
        finding = f"{abs(ahead_ms):.0f} ms {'ahead of' if ahead_ms >= 0 else 'behind'} this machine's, or less"
        remedy = "Synchronise the clocks (NTP): retention and time-outs of transactions go by the brokers'."
        yield CheckResult(name, finding, ok=True, remedy=remedy if abs(ahead_ms) > _OFF_MS else "")


def _compaction(log: TopicLog, topic: str) -> CheckResult:
    """Wait until the first of two records of a key, in closed segments, is gone."""
    name = "trial: compaction"
    began = time.monotonic()
    try:
        while time.monotonic() - began < _COMPACTED_WITHIN_S:
            values = log.read(topic, 0, 0).records.column("value").to_pylist()
            if b"1" not in values:
                return CheckResult(name, f"after {time.monotonic() - began:.0f} s", ok=True)
            time.sleep(_LOOK_S)
    except PenstockError as error:
        return _failed(name, error)
    remedy = (
        "Changelogs grow without end if nothing is compacted: is the log cleaner of the brokers on, and keeping up?"
    )
    return CheckResult(name, f"not within {_COMPACTED_WITHIN_S:.0f} s", ok=True, remedy=remedy)


def _attempt(name: str, action: Any) -> CheckResult:
    try:
        told = action()
    except PenstockError as error:
        return _failed(name, error)
    return CheckResult(name, told if isinstance(told, str) else "done", ok=True)


def _failed(name: str, error: PenstockError) -> CheckResult:
    return CheckResult(name, error.message, ok=False, remedy=error.hint or "The message says all that is known.")


_HURRY_MS = 10_000
_START = "Check host and port, and that the broker runs. `penstock broker start` starts one on this machine."


@dataclass(frozen=True, slots=True)
class Reached:
    """A broker that answers."""

    node: int
    connection: BrokerConnection


def first_answer(
    servers: Iterable[str], settings: Mapping[str, Any], access: ClusterAccess
) -> tuple[BrokerConnection | None, list[CheckResult]]:
    """Connect to the addresses of ``bootstrap.servers``; return the first connection, and the addresses that failed.

    Args:
        servers: ``host:port`` each.
        settings: The settings of `ClientSettings.kafka_python`.
        access: Explains refusals.
    """
    first: BrokerConnection | None = None
    problems: list[tuple[str, str, str]] = []
    for server in servers:
        host, _, port = server.strip().rpartition(":")
        name = f"broker {server.strip()}"
        if not host or not port.isdecimal():
            problems.append((name, f"{server.strip()!r} is not host:port", "Give bootstrap.servers as host:port."))
            continue
        try:
            connection = _connected(host.strip("[]"), int(port), settings)
        except KafkaException as error:
            problems.append((name, *_explained(error, name, access, _START)))
            continue
        if first is None:
            first = connection
        else:
            connection.close()
    return first, [
        CheckResult(name, finding, ok=first is not None, remedy=remedy) for name, finding, remedy in problems
    ]


def reach_brokers(
    brokers: Mapping[int, tuple[str, int]], settings: Mapping[str, Any], access: ClusterAccess
) -> tuple[list[Reached], list[CheckResult]]:
    """Connect to each broker at the address that it advertises.

    Args:
        brokers: Host and port of each, by its number.
        settings: The settings of `ClientSettings.kafka_python`.
        access: Explains refusals.
    """
    answering, results = [], []
    for node, (host, port) in sorted(brokers.items()):
        name = f"broker {node} at {host}:{port}"
        began = time.perf_counter()
        try:
            connection = _connected(host, port, settings)
        except KafkaException as error:
            hint = (
                f"The cluster advertises {host}:{port} for broker {node}: set advertised.listeners of the broker to a "
                "name and a port that this machine reaches, or open the way to it."
            )
            finding, remedy = _explained(error, name, access, hint)
            results.append(CheckResult(name, finding, ok=False, remedy=remedy))
        else:
            took_ms = 1000 * (time.perf_counter() - began)
            answering.append(Reached(node, connection))
            finding = f"answers ({took_ms:.0f} ms to connect); speaks the protocol of Kafka {connection.kafka_version}"
            results.append(CheckResult(name, finding, ok=True))
    return answering, results


def _connected(host: str, port: int, settings: Mapping[str, Any]) -> BrokerConnection:
    hurried = {**settings, "request_timeout_ms": min(_HURRY_MS, settings.get("request_timeout_ms", _HURRY_MS))}
    return BrokerConnection(host, port, hurried)


def _explained(error: KafkaException, name: str, access: ClusterAccess, unreachable: str) -> tuple[str, str]:
    """Return what happened, and what to do."""
    inner = error_of(error)
    explained = failure(inner, f"connecting to {name}", access)
    refused = access.explained(inner, "") is not None
    if inner.code() == NO_CONNECTION and not refused and "no connection to" in inner.str():
        return f"does not answer: {inner.str().rpartition(': ')[2]}", unreachable
    return explained.message, explained.hint or unreachable


_DAY_MS = 24 * 3600 * 1000
_SAFE_COPIES = 3
# The harmful value, whether an application runs with it, and what to do.
_SWITCHES = {
    "unclean.leader.election.enable": (
        "true",
        True,
        "A broker that lacks records may become the leader, and confirmed records are lost: set it to false.",
    ),
    "auto.create.topics.enable": (
        "true",
        True,
        "A topic whose name is misspelt is created by the first client that asks for it: set it to false.",
    ),
    "log.cleaner.enable": (
        "false",
        False,
        "Nothing is compacted: changelogs and the ledger grow without end. Set it to true.",
    ),
    "delete.topic.enable": (
        "false",
        True,
        "`penstock app reset` cannot delete the application's topics: set it to true.",
    ),
}


def broker_rules(settings: Mapping[str, str], brokers: int, needs: ApplicationNeeds) -> Iterator[CheckResult]:
    """Check the settings of a broker; those that it does not show are left out.

    Args:
        settings: Names and values.
        brokers: The number of brokers of the cluster.
        needs: The application's needs, or the defaults of one.

    >>> [each.verdict for each in broker_rules({"log.cleaner.enable": "false"}, 3, ApplicationNeeds("shop"))]
    ['missing']
    """
    if "default.replication.factor" in settings:
        copies = int(settings["default.replication.factor"])
        yield _copies("default.replication.factor", copies, brokers)
        yield from _in_sync(settings, copies if needs.replication < 0 else needs.replication)
    yield from _turned_on(settings)
    yield from _times(settings, needs)
    if "message.max.bytes" in settings:
        most = int(settings["message.max.bytes"])
        too_small = most < needs.request_bytes
        remedy = (
            f"A batch of the application may have {needs.request_bytes:,} bytes (producer.max.request.size): raise "
            "message.max.bytes, or set max.message.bytes of its topics."
        )
        yield CheckResult("message.max.bytes", f"{most:,}", ok=True, remedy=remedy if too_small else "")
    for name in ("transaction.state.log", "offsets.topic"):
        if f"{name}.replication.factor" in settings:
            yield _copies(f"{name}.replication.factor", int(settings[f"{name}.replication.factor"]), brokers)
    if "transaction.state.log.min.isr" in settings and "transaction.state.log.replication.factor" in settings:
        least = int(settings["transaction.state.log.min.isr"])
        copies = int(settings["transaction.state.log.replication.factor"])
        yield CheckResult(
            "transaction.state.log.min.isr", str(least), ok=least <= copies,
            remedy="" if least <= copies else f"No transaction can begin: the topic has {copies} copies. Lower it.",
        )  # fmt: skip


def _copies(name: str, copies: int, brokers: int) -> CheckResult:
    finding = f"{copies}, of {brokers} broker{'s' if brokers > 1 else ''}"
    if copies == 1:
        remedy = "The loss of one disk loses data: have three brokers or more, and 3 copies."
    elif copies < _SAFE_COPIES:
        remedy = "While one broker restarts, the loss of another loses data, or stops the application: have 3 copies."
    else:
        remedy = ""
    return CheckResult(name, finding, ok=True, remedy=remedy)


def _in_sync(settings: Mapping[str, str], copies: int) -> Iterator[CheckResult]:
    if "min.insync.replicas" not in settings:
        return
    least = int(settings["min.insync.replicas"])
    remedy = ""
    if least > copies:
        remedy = (
            f"No record can be written with acks=all to a topic with {copies} copies: lower it, or have more copies."
        )
    elif least == copies > 1:
        remedy = "One broker that restarts stops all writes: have one copy more than min.insync.replicas."
    elif least == 1 < copies:
        remedy = "A record that one broker alone has is confirmed, and lost with it: set it to 2."
    finding = f"{least}, of {copies} cop{'ies' if copies > 1 else 'y'}"
    yield CheckResult("min.insync.replicas", finding, ok=least <= copies, remedy=remedy)


def _turned_on(settings: Mapping[str, str]) -> Iterator[CheckResult]:
    for name, (harmful, is_bearable, remedy) in _SWITCHES.items():
        if name in settings:
            is_harmful = settings[name].lower() == harmful
            ok = is_bearable or not is_harmful
            yield CheckResult(name, settings[name], ok=ok, remedy=remedy if is_harmful else "")
    name = "group.coordinator.rebalance.protocols"
    if name in settings:
        protocols = {each.strip().lower() for each in settings[name].split(",")}
        remedy = (
            "One instance of an application runs at a time; for several that share its tasks add streams."
            if "streams" not in protocols
            else ""
        )
        yield CheckResult(name, settings[name], ok=True, remedy=remedy)


def _times(settings: Mapping[str, str], needs: ApplicationNeeds) -> Iterator[CheckResult]:
    name = "transaction.max.timeout.ms"
    if name in settings:
        enough = int(settings[name]) >= needs.transaction_timeout_ms
        remedy = f"Set producer.transaction.timeout.ms, now {needs.transaction_timeout_ms}, to no more than it."
        yield CheckResult(name, settings[name], ok=enough, remedy="" if enough else remedy)
    name = "offsets.retention.minutes"
    if name in settings:
        is_short = int(settings[name]) < 24 * 60
        remedy = "An application that is stopped for longer loses its place: set it to a week (10080) or more."
        yield CheckResult(name, settings[name], ok=True, remedy=remedy if is_short else "")
    name = "transactional.id.expiration.ms"
    if name in settings:
        is_short = int(settings[name]) < _DAY_MS
        remedy = "Producers that write nothing for longer are forgotten: set it to a day (86400000) or more."
        yield CheckResult(name, settings[name], ok=True, remedy=remedy if is_short else "")


def topic_rules(
    name: str, settings: Mapping[str, str], copies: int, needs: ApplicationNeeds
) -> Iterator[tuple[bool, str]]:
    """Yield what is wrong with the settings of an application's topic: whether it can run with them, and what to do.

    >>> shop = ApplicationNeeds("shop", compacted=("shop-counts-changelog",))
    >>> list(topic_rules("shop-counts-changelog", {"cleanup.policy": "delete"}, 3, shop))
    [(False, 'cleanup.policy is delete, and the store is lost with its oldest records: set it to compact.')]
    """
    policy = settings.get("cleanup.policy", "")
    if name in needs.compacted and policy and "compact" not in policy:
        yield False, f"cleanup.policy is {policy}, and the store is lost with its oldest records: set it to compact."
    if name in needs.repartition and policy:
        if "compact" in policy:
            yield False, f"cleanup.policy is {policy}, and records of equal keys are lost: set it to delete."
        elif (kept_ms := int(settings.get("retention.ms", -1))) >= 0:
            yield True, f"retention.ms is {kept_ms}, and records that wait for longer are lost: set it to -1."
    if name in needs.sources and "delete" in policy:
        kept_ms = int(settings.get("retention.ms", -1))
        if 0 <= kept_ms < _DAY_MS:
            hours = kept_ms / 3_600_000
            yield True, f"retention.ms is {kept_ms}: an application that is stopped for {hours:.3g} h loses records."
        if (kept_bytes := int(settings.get("retention.bytes", -1))) >= 0:
            yield True, f"retention.bytes is {kept_bytes}: an application that falls behind by more loses records."
    if settings.get("unclean.leader.election.enable") == "true":
        yield True, "unclean.leader.election.enable is true, and confirmed records may be lost: set it to false."
    least = int(settings.get("min.insync.replicas", 1))
    if copies and least > copies:
        yield False, f"min.insync.replicas is {least} and there are {copies} copies: no record can be written."


_PATIENCE_S = 10.0
_VERDICTS = {"missing": 0, "warning": 1, "ok": 2}


def examine_cluster(
    servers: str, settings: Mapping[str, Any], needs: ApplicationNeeds, *, is_named: bool
) -> Iterator[CheckResult]:
    """Examine a cluster without changing anything in it, and yield the results one by one.

    Args:
        servers: ``host:port,...``.
        settings: Settings of Kafka's clients, by their Java names.
        needs: What an application needs.
        is_named: Whether it is one that the user has named; else what is for a certain application is left out.

    Raises:
        ConfigError: The settings are wrong.
    """
    own = ClientSettings.of(servers, settings)
    clients = Clients(servers, settings)
    access, of_python = clients.access, own.kafka_python()
    needs = replace(
        needs,
        replication=int(settings.get("replication.factor", -1)),
        transaction_timeout_ms=clients.thread_timeouts.least_ms,
        request_bytes=clients.max_request_bytes,
    )
    with ExitStack() as stack:
        connection, results = first_answer(of_python["bootstrap_servers"], of_python, access)
        yield from results
        if connection is None:
            return
        stack.enter_context(closing(connection))
        cluster = stack.enter_context(closing(Cluster(of_python)))
        checkup = _Checkup(own, access, cluster, connection, needs, is_named=is_named)
        brokers = advertised_brokers(connection)
        reached, results = reach_brokers(brokers, of_python, access)
        for each in reached:
            stack.enter_context(closing(each.connection))
        yield from results
        yield from checkup.results(len(brokers), reached)


class _Checkup:
    def __init__(
        self,
        settings: ClientSettings,
        access: ClusterAccess,
        cluster: Cluster,
        connection: BrokerConnection,
        needs: ApplicationNeeds,
        *,
        is_named: bool,
    ) -> None:
        self._settings, self._access = settings, access
        self._cluster, self._connection = cluster, connection
        self._needs, self._is_named = needs, is_named

    def results(self, brokers: int, reached: list[Reached]) -> Iterator[CheckResult]:
        yield from check_requests([self._connection, *(each.connection for each in reached)])
        yield from check_features(features(self._connection))
        yield from self._settings_of(brokers, reached)
        principal = self._access.principal()
        client_id = self._settings.kafka_python().get("client_id") or "penstock"
        yield check_quotas(self._connection, principal.removeprefix("User:"), client_id)
        yield check_clock(self._connection)
        if len(reached) < brokers:
            return  # what is asked of coordinators and leaders would only time out
        try:
            persist(self._learn_topics, "asking for the group", _PATIENCE_S, self._access, self._cluster.forget)
            needs = self._needs
            topics = topic_facts(self._connection, {*needs.sources, *needs.sinks, *needs.internal})
            rights = RightsOf(self._cluster, needs, self._settings.bootstrap_servers, self._access)
            yield from rights.results(topics, is_named=self._is_named)
            if self._is_named:
                yield from check_topics(needs, topics, topic_settings(self._connection, _seen(topics)))
                yield from self._lost_records(topics)
        except (KafkaException, LogError) as error:
            explained = (
                error if isinstance(error, LogError) else failure(error, "asking for rights and topics", self._access)
            )
            remedy = explained.hint or "The broker's log may say more."
            yield CheckResult("rights", explained.message, ok=not self._is_named, remedy=remedy)

    def _learn_topics(self) -> None:
        """Have the topics of an application whose topology is not known: those of its prefix and of its group."""
        if self._is_named and not self._needs.sources:
            read = {tp.topic for tp in self._committed()}
            self._needs = self._needs.with_topics(topic_facts(self._connection, None), read)

    def _committed(self) -> dict[TopicPartition, int]:
        """Return the offsets of the application's group; none if this user may not see them."""
        try:
            committed = committed_offsets(self._cluster, self._needs.application)
        except KafkaException as error:
            if error_of(error).code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                return {}
            raise
        return {tp: each.offset for tp, each in committed.items()}

    def _settings_of(self, brokers: int, reached: list[Reached]) -> Iterator[CheckResult]:
        """Check the settings of all brokers; of brokers that differ the worst result is shown."""
        worst: dict[str, CheckResult] = {}
        for each in reached:
            try:
                settings = broker_settings(each.connection, each.node)
            except KafkaException as error:
                code = error_of(error)
                remedy = (
                    "An administrator sees them; DESCRIBE_CONFIGS on the cluster allows it to this user."
                    if code.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
                    else "Managed services may hide them: see the service's own pages."
                )
                yield CheckResult("settings of brokers", f"not to be seen: {name_of(code)}", ok=True, remedy=remedy)
                return
            for result in broker_rules(settings, brokers, self._needs):
                before = worst.setdefault(result.name, result)
                if _VERDICTS[result.verdict] < _VERDICTS[before.verdict]:
                    worst[result.name] = result
        yield from worst.values()

    def _lost_records(self, topics: Mapping[str, TopicFacts]) -> Iterator[CheckResult]:
        """Compare the committed offsets with the first records that retention has left."""
        committed = {
            tp: offset for tp, offset in self._committed().items() if tp.topic in topics and not topics[tp.topic].error
        }
        if not committed:
            yield CheckResult("committed offsets of the group", "none: it would begin anew", ok=True)
            return
        first = list_offsets(self._cluster, dict.fromkeys(committed, EARLIEST), "read_uncommitted")
        lost = {tp: first[tp].offset - offset for tp, offset in committed.items() if first[tp].offset > offset}
        finding = f"{len(committed)} partitions"
        if lost:
            finding = "; ".join(f"{tp.topic}-{tp.partition}: {count} records are gone" for tp, count in lost.items())
        remedy = (
            "Retention has removed records that were not processed: raise retention.ms of the topic. The start fails "
            "unless penstock.data.loss=continue."
        )
        yield CheckResult("committed offsets of the group", finding, ok=not lost, remedy=remedy if lost else "")


def _seen(topics: Mapping[str, TopicFacts]) -> list[str]:
    return [name for name, facts in topics.items() if not facts.error]


def check_topics(
    needs: ApplicationNeeds, topics: Mapping[str, TopicFacts], settings: Mapping[str, Mapping[str, str]]
) -> Iterator[CheckResult]:
    """Check the topics of an application.

    Args:
        needs: What it needs.
        topics: The facts of its topics.
        settings: The settings of those that this user may see the settings of.
    """
    for name in dict.fromkeys((*needs.sources, *needs.sinks, *needs.internal, *topics)):
        facts = topics.get(name)
        if facts is not None and facts.error == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            continue  # see the rights
        title = f"topic {name}"
        if facts is None or facts.error:
            yield _absent(title, name, needs)
            continue
        problems = list(topic_rules(name, settings.get(name, {}), facts.replicas, needs))
        problems += _of_partitions(name, facts, needs)
        copies = f"{facts.replicas} cop{'y' if facts.replicas == 1 else 'ies'}"
        finding = f"{_role(name, needs)}; {counted(facts.partitions, 'partition')}, {copies}"
        if name not in settings:
            finding += ", settings not to be seen"
        remedy = " ".join(text for _, text in problems)
        yield CheckResult(title, finding, ok=all(ok for ok, _ in problems), remedy=remedy)


def _of_partitions(name: str, facts: TopicFacts, needs: ApplicationNeeds) -> Iterator[tuple[bool, str]]:
    if facts.leaderless:
        text = f"{counted(facts.leaderless, 'partition')} without a leader: is a broker away that has the only copy?"
        yield False, text
    elif facts.in_sync < facts.replicas:
        yield True, "Not all copies are in sync: is a broker away, or slow?"
    needed = needs.internal.get(name, 0)
    if needed and facts.partitions != needed:
        may_grow = name in needs.compacted and facts.partitions < needed
        text = f"The topology needs {counted(needed, 'partition')}: "
        yield may_grow, text + ("the start adds them." if may_grow else "reset the application, or use another id.")


def _absent(title: str, name: str, needs: ApplicationNeeds) -> CheckResult:
    if name not in needs.sources:
        return CheckResult(title, f"{_role(name, needs)}; the start creates it", ok=True)
    return CheckResult(title, "source; it does not exist", ok=False, remedy=f"Create it: penstock topics create {name}")


def _role(name: str, needs: ApplicationNeeds) -> str:
    roles = {
        "source": needs.sources,
        "sink": needs.sinks,
        "compacted topic": needs.compacted,
        "repartition topic": needs.repartition,
    }
    return " and ".join(role for role, names in roles.items() if name in names) or "own topic"
