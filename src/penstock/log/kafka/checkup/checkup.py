"""The whole examination of a cluster and of the topics of an application, for `penstock doctor` and each start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from penstock.base.check_result import CheckResult
from penstock.base.terminal.human_numbers import counted
from penstock.errors import LogError
from penstock.log.kafka.checkup.inquiry import (
    advertised_brokers,
    broker_settings,
    features,
    topic_facts,
    topic_settings,
)
from penstock.log.kafka.checkup.offers import check_clock, check_features, check_quotas, check_requests
from penstock.log.kafka.checkup.reach import Reached, first_answer, reach_brokers
from penstock.log.kafka.checkup.rights import RightsOf
from penstock.log.kafka.checkup.settings_rules import broker_rules, topic_rules
from penstock.log.kafka.client_settings import ClientSettings
from penstock.log.kafka.clients.connections import Clients
from penstock.log.kafka.failures import error_of, failure, name_of, persist
from penstock.log.kafka.wire.cluster import Cluster
from penstock.log.kafka.wire.groups import committed_offsets
from penstock.log.kafka.wire.offsets import EARLIEST, list_offsets

if TYPE_CHECKING:
    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.base import TopicPartition
    from penstock.log.kafka.access import ClusterAccess
    from penstock.log.kafka.checkup.inquiry import TopicFacts
    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["check_topics", "examine_cluster"]

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
        found = f"{len(committed)} partitions"
        if lost:
            found = "; ".join(f"{tp.topic}-{tp.partition}: {count} records are gone" for tp, count in lost.items())
        remedy = (
            "Retention has removed records that were not processed: raise retention.ms of the topic. The start fails "
            "unless penstock.data.loss=continue."
        )
        yield CheckResult("committed offsets of the group", found, ok=not lost, remedy=remedy if lost else "")


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
        found = f"{_role(name, needs)}; {counted(facts.partitions, 'partition')}, {copies}"
        if name not in settings:
            found += ", settings not to be seen"
        remedy = " ".join(text for _, text in problems)
        yield CheckResult(title, found, ok=all(ok for ok, _ in problems), remedy=remedy)


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
