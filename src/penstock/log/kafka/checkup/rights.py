"""The rights of this user: as brokers answer, without a write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError

from penstock.base.check_result import CheckResult
from penstock.log.kafka.checkup.cluster_questions import (
    COMPACTED,
    TopicFacts,
    absent_topic_rights,
    creation_error,
    group_operations,
    transactional_id_error,
)
from penstock.log.kafka.failures import name_of, persist, remedy

if TYPE_CHECKING:
    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.kafka.refused_access import ClusterAccess
    from penstock.log.kafka.wire.cluster import Cluster

__all__ = ["MissingRight", "RightsOf", "missing_topic_rights"]

_T = TypeVar("_T")
_PATIENCE_S = 10.0
_KIND_OPTIONS = {"topic": "--topic", "group": "--group", "transactional-id": "--transactional-id"}


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right that a user lacks: an operation on a topic, a group or transactional ids."""

    operation: str
    kind: str
    name: str
    is_prefix: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether an application cannot run without it: where records are not deleted, topics only grow."""
        return self.operation != "DELETE"

    def __str__(self) -> str:
        return f"may not {self.operation} {self.kind} {self.name}" + (" (prefixed)" if self.is_prefix else "")

    def command(self, servers: str, principal: str) -> str:
        """Return the command that grants it."""
        pattern = " --resource-pattern-type prefixed" if self.is_prefix else ""
        return (
            f"kafka-acls --bootstrap-server {servers} --add --allow-principal '{principal}' "
            f"--operation {self.operation} {_KIND_OPTIONS[self.kind]} {self.name}{pattern}"
        )


def missing_topic_rights(needs: ApplicationNeeds, topics: Mapping[str, TopicFacts]) -> list[MissingRight]:
    """Return the rights to existing topics that the user lacks for an application.

    Args:
        needs: What the application reads and writes.
        topics: The facts of its topics, as `topic_facts` has asked for them.
    """
    operations_by_topic: dict[str, tuple[str, ...]] = dict.fromkeys(needs.sources, ("READ",))
    for sink in needs.sinks:
        operations_by_topic[sink] = (*operations_by_topic.get(sink, ()), "WRITE")
    operations_by_topic |= dict.fromkeys(needs.internal, ("READ", "WRITE"))
    operations_by_topic |= dict.fromkeys(needs.repartition, ("READ", "WRITE", "DELETE"))
    return [
        MissingRight(operation, "topic", name)
        for name, operations in operations_by_topic.items()
        if (facts := topics.get(name)) is not None and facts.operations is not None
        for operation in operations
        if operation not in facts.operations
    ]


class RightsOf:
    """The rights of a user for an application.

    Args:
        cluster: Connections.
        needs: The application, or the defaults of one.
        servers: ``bootstrap.servers``, for the commands that grant rights.
        access: The user, and explanations of refusals.
    """

    def __init__(self, cluster: Cluster, needs: ApplicationNeeds, servers: str, access: ClusterAccess) -> None:
        self._cluster, self._needs = cluster, needs
        self._servers, self._access, self._principal = servers, access, access.principal()

    def results(self, topics: Mapping[str, TopicFacts], *, is_named: bool) -> Iterator[CheckResult]:
        """Check all rights.

        Args:
            topics: The facts of the application's topics.
            is_named: Whether there is an application; else what is missing is no fault, as no application has asked.
        """
        yield self._result("rights: group", self._of_group(), f"READ group {self._needs.application}", is_named)
        own = self._of_own_topics()
        transactional = [each for each in own if each.kind == "transactional-id"]
        name = f"WRITE transactional ids {self._needs.prefix}*"
        yield self._result("rights: transactions", transactional, name, is_named)
        missing = [each for each in own if each.kind == "topic"]
        name = f"READ, WRITE and DELETE topics {self._needs.prefix}*"
        yield self._result("rights: own topics", missing, name, is_named)
        yield self._creation(is_named)
        missing = missing_topic_rights(self._needs, topics)
        missing += [
            MissingRight("READ" if name in self._needs.sources else "WRITE", "topic", name)
            for name in (*self._needs.sources, *self._needs.sinks)
            if name in topics and topics[name].error == KafkaError.TOPIC_AUTHORIZATION_FAILED
        ]
        if self._needs.sources or self._needs.sinks:
            yield self._result("rights: topics", missing, "READ sources, WRITE sinks", is_named)

    def _result(self, name: str, missing: Iterable[MissingRight], all_of: str, is_named: bool) -> CheckResult:  # noqa: FBT001
        missing = list(missing)
        if not missing:
            return CheckResult(name, f"{self._principal} may {all_of}", ok=True)
        commands = "; ".join(each.command(self._servers, self._principal) for each in missing)
        finding = f"{self._principal} {'; '.join(map(str, missing))}"
        ok = not (is_named and any(each.is_needed for each in missing))
        return CheckResult(name, finding, ok=ok, remedy=f"An administrator grants it: {commands}")

    def _ask(self, question: Callable[[], _T]) -> _T:
        """Ask coordinators and leaders, which a new cluster has after some seconds."""
        return persist(question, "asking for rights", _PATIENCE_S, self._access, self._cluster.forget)

    def _of_group(self) -> list[MissingRight]:
        group = self._needs.application
        operations = self._ask(partial(group_operations, self._cluster, group))
        return [MissingRight("READ", "group", group)] if operations is not None and "READ" not in operations else []

    def _of_own_topics(self) -> list[MissingRight]:
        """Return the rights to transactional ids and topics of the application's prefix that are missing."""
        prefix = self._needs.prefix
        absent = self._needs.unused_name()
        if self._ask(partial(transactional_id_error, self._cluster, absent)):
            return [MissingRight("WRITE", "transactional-id", prefix, is_prefix=True)]
        rights = self._ask(partial(absent_topic_rights, self._cluster, absent, absent))
        return [
            MissingRight(operation, "topic", prefix, is_prefix=True)
            for operation in ("READ", "WRITE", "DELETE")
            if not rights.get(operation, True)
        ]

    def _creation(self, is_named: bool) -> CheckResult:  # noqa: FBT001
        """Have the creation of a compacted topic validated, which creates nothing."""
        name, needs = "new topics", self._needs
        topic = needs.unused_name()
        code, text = creation_error(self._cluster.any_broker(), topic, 1, needs.replication, COMPACTED)
        if not code:
            return CheckResult(name, f"{self._principal} may CREATE compacted topics {needs.prefix}*", ok=True)
        if code in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            right = MissingRight("CREATE", "topic", needs.prefix, is_prefix=True)
            return self._result(name, [right], "", is_named)
        error = KafkaError(code)
        return CheckResult(
            name, f"a compacted topic would be refused: {text or error.str()} ({name_of(error)})", ok=False,
            remedy=remedy(code),
        )  # fmt: skip
