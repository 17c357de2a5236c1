"""What brokers are able to do: their requests and features, quotas, and the time on their clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from penstock.base.check_result import CheckResult
from penstock.base.terminal.human_numbers import size
from penstock.log.kafka.checkup.cluster_questions import client_quotas, clock_difference_ms
from penstock.log.kafka.failures import error_of, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.kafka.wire.connection import BrokerConnection

__all__ = ["check_clock", "check_features", "check_quotas", "check_requests", "missing_requests"]

_MOST_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Needed:
    """A use of requests: name and number of each with the first version that is enough."""

    purpose: str
    requests: tuple[tuple[str, int, int], ...]
    remedy: str
    is_needed: bool = True


_NEEDED = (
    _Needed(
        "transactions",
        (("InitProducerId", 22, 0), ("AddPartitionsToTxn", 24, 0), ("AddOffsetsToTxn", 25, 0), ("EndTxn", 26, 0),
         ("TxnOffsetCommit", 28, 3)),
        "Applications write their outputs, their state and the lease of their instance in transactions: use brokers "
        "that have them (Kafka 2.5 or later), or the embedded log.",
    ),
    _Needed(
        "committed offsets",
        (("OffsetCommit", 8, 2), ("OffsetFetch", 9, 7)),
        "A start must wait while a transaction that changes the offsets is open (require_stable): use Kafka 2.5 or "
        "later.",
    ),
    _Needed(
        "topics and their settings",
        (("CreateTopics", 19, 2), ("DescribeConfigs", 32, 1)),
        "Internal topics are created with settings of their own: use brokers that can do it for a client.",
    ),
    _Needed(
        "deletion of records",
        (("DeleteRecords", 21, 0),),
        "Repartition topics keep all records, as nothing deletes those that are processed: watch their size.",
        is_needed=False,
    ),
    _Needed(
        "changes of settings",
        (("IncrementalAlterConfigs", 44, 0),),
        "The settings of the application's ledger cannot be corrected: it is created with them.",
        is_needed=False,
    ),
    _Needed(
        "hanging transactions",
        (("DescribeProducers", 61, 0), ("DescribeTransactions", 65, 0), ("ListTransactions", 66, 0)),
        "A transaction that a broker has forgotten to end cannot be found and ended: that needs Kafka 3.0 or later.",
        is_needed=False,
    ),
    _Needed(
        "streams groups",
        (("StreamsGroupHeartbeat", 88, 0), ("StreamsGroupDescribe", 89, 0)),
        "One instance runs at a time; several that share the tasks need Kafka 4.2 or later.",
        is_needed=False,
    ),
)  # fmt: skip


def missing_requests(versions: Mapping[int, tuple[int, int]]) -> list[tuple[str, str]]:
    """Return what no application can run without and a broker does not know: the use with the requests, the remedy.

    Args:
        versions: As `BrokerConnection.versions`.
    """
    return [
        (f"{needed.purpose} ({', '.join(lacks)})", needed.remedy)
        for needed in _NEEDED
        if needed.is_needed and (lacks := _lacks(needed, versions))
    ]


def check_requests(connections: Sequence[BrokerConnection]) -> list[CheckResult]:
    """Check that every broker knows the requests that an application sends."""
    results = []
    for needed in _NEEDED:
        lacks = sorted({lack for connection in connections for lack in _lacks(needed, connection.versions)})
        finding = f"brokers do not know {', '.join(lacks)}" if lacks else "brokers know the requests"
        ok = not (lacks and needed.is_needed)
        results.append(CheckResult(needed.purpose, finding, ok=ok, remedy=needed.remedy if lacks else ""))
    return results


def _lacks(needed: _Needed, versions: Mapping[int, tuple[int, int]]) -> list[str]:
    lacks = []
    for name, number, least in needed.requests:
        if number not in versions:
            lacks.append(name)
        elif versions[number][1] < least:
            lacks.append(f"{name} version {least}")
    return lacks


def check_features(levels: Mapping[str, int]) -> list[CheckResult]:
    """Check the features that the cluster has agreed on."""
    transactions, streams = levels.get("transaction.version", 0), levels.get("streams.version", 0)
    set_it = "kafka-features --bootstrap-server ... upgrade --feature {}"
    return [
        CheckResult(
            "transaction.version", str(transactions), ok=True,
            remedy="" if transactions >= 2 else "A commit takes three round trips in place of two: "
            + set_it.format("transaction.version=2") + " (Kafka 4.0 or later).",
        ),
        CheckResult(
            "streams.version", str(streams), ok=True,
            remedy="" if streams >= 1 else "One instance of an application runs at a time; for several that share its "
            "tasks: " + set_it.format("streams.version=1") + " (Kafka 4.2 or later).",
        ),
    ]  # fmt: skip


def check_quotas(connection: BrokerConnection, user: str, client_id: str) -> CheckResult:
    """Check the quotas that this user and client may have.

    Args:
        connection: To a broker.
        user: The user's name, without ``User:``.
        client_id: The ``client.id``.
    """
    name = "quotas"
    try:
        quotas = client_quotas(connection)
    except KafkaException as error:
        return _unseen(name, error, "DESCRIBE_CONFIGS on the cluster shows them.")
    ours = {"user": (user, None), "client-id": (client_id, None)}
    limits = [
        f"{_entity(entity)}: {', '.join(_limit(key, value) for key, value in sorted(each.items()))}"
        for entity, each in quotas
        if all(kind in ours and whose in ours[kind] for kind, whose in entity.items())
    ]
    if not limits:
        return CheckResult(name, f"none for user {user} and client.id {client_id}", ok=True)
    remedy = "Brokers delay the answers to those who go over a quota: is it enough for the application, and a restore?"
    return CheckResult(name, "; ".join(limits), ok=True, remedy=remedy)


def _entity(entity: Mapping[str, str | None]) -> str:
    return " and ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in sorted(entity.items()))


def _limit(key: str, value: float) -> str:
    return f"{key} {size(int(value))}/s" if key.endswith("_byte_rate") else f"{key} {value:g}"


def check_clock(connection: BrokerConnection) -> CheckResult:
    """Compare the clock of the active controller with ours, without writing anything."""
    name = "clock of the controller"
    try:
        difference = clock_difference_ms(connection)
    except KafkaException as error:
        return _unseen(name, error, "DESCRIBE on the cluster shows it; --try compares the clocks of brokers.")
    if difference is None:
        return CheckResult(name, "these brokers do not say; --try compares the clocks of brokers", ok=True)
    ahead_ms, within_ms = difference
    way = "ahead of" if ahead_ms > 0 else "behind"
    finding = f"{abs(ahead_ms):.0f} ms {way} this machine's (within {within_ms:.0f} ms)"
    is_off = abs(ahead_ms) - within_ms > _MOST_MS
    remedy = "Synchronise the clocks (NTP): retention, time-outs of transactions and LogAppendTime go by the brokers'."
    return CheckResult(name, finding, ok=True, remedy=remedy if is_off else "")


def _unseen(name: str, error: KafkaException, remedy: str) -> CheckResult:
    return CheckResult(name, f"not to be seen: {name_of(error_of(error))}", ok=True, remedy=remedy)
