"""The check of a cluster at the start of an application, before any record is processed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from penstock.errors import AuthorizationError, LogError
from penstock.log.kafka.checkup.broker_capabilities import missing_requests
from penstock.log.kafka.checkup.cluster_questions import COMPACTED, creation_error, topic_facts, transactional_id_error
from penstock.log.kafka.checkup.rights import MissingRight, missing_topic_rights
from penstock.log.kafka.failures import persist

if TYPE_CHECKING:
    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.kafka.clients.connections import Clients

__all__ = ["compaction_refusal", "require_able"]

_REFUSES = frozenset({KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REQUEST})
_DOCTOR = "`penstock doctor -b {} APPLICATION` lists all that is missing."


def compaction_refusal(validate: Callable[[Mapping[str, str]], tuple[int, str]]) -> str | None:
    """Return why brokers refuse compacted topics; None: they do not, or they refuse this topic for another reason.

    A policy of the brokers may ask for copies, partitions or settings that the topic will have when it is created.

    >>> compaction_refusal(lambda settings: (44, "3 copies, please"))
    >>> compaction_refusal(lambda settings: (40, "only delete") if settings else (0, ""))
    'only delete'

    Args:
        validate: Validates the creation of a topic with these settings, and returns the error as `creation_error`.
    """
    code, text = validate(COMPACTED)
    if code not in _REFUSES or validate({})[0] == code:
        return None
    return text or str(KafkaError(code).str())


def require_able(clients: Clients, needs: ApplicationNeeds, own_topic: str) -> None:
    """Check that the brokers can run an application, and that this user may do what it does.

    Args:
        clients: The clients of the log.
        needs: The application.
        own_topic: The compacted topic that it has in any case.

    Raises:
        LogError: The brokers have no transactions, or refuse compacted topics.
        AuthorizationError: Rights are missing; the message names all of those that are known.
    """
    cluster, access = clients.cluster(), clients.access
    doctor = _DOCTOR.format(clients.servers)

    def ask() -> list[MissingRight]:
        connection = cluster.any_broker()
        if lacks := missing_requests(connection.versions):
            raise LogError(
                f"application {needs.application!r} cannot run over the brokers at {clients.servers}: they have no "
                f"{'; no '.join(lack for lack, _ in lacks)}",
                hint=f"{' '.join(remedy for _, remedy in lacks)} {doctor}",
            )
        facts = topic_facts(connection, {*needs.sources, *needs.sinks, *needs.internal, own_topic})
        own = facts.get(own_topic)
        if own is not None and own.error == KafkaError.UNKNOWN_TOPIC_OR_PART:
            refusal = compaction_refusal(partial(creation_error, connection, own_topic, 1, needs.replication))
            if refusal is not None:
                raise LogError(
                    f"application {needs.application!r} cannot run over the brokers at {clients.servers}: they refuse "
                    f"compacted topics: {refusal}",
                    hint=f"State and the instance's lease are kept in topics with cleanup.policy=compact. {doctor}",
                )
        missing = [each for each in missing_topic_rights(needs, facts) if each.is_needed]
        if transactional_id_error(cluster, f"{needs.prefix}penstock-start"):
            missing.append(MissingRight("WRITE", "transactional-id", needs.prefix, is_prefix=True))
        return missing

    doing = f"looking whether application {needs.application!r} can run"
    missing = persist(ask, doing, clients.patience_s, access, cluster.forget)
    if missing:
        principal = access.principal()
        commands = "; ".join(each.command(clients.servers, principal) for each in missing)
        raise AuthorizationError(
            f"application {needs.application!r}: {principal} {'; '.join(map(str, missing))}",
            hint=f"An administrator grants it: {commands}",
            principal=principal, operation=missing[0].operation, resource_type=missing[0].kind,
            resource=missing[0].name,
        )  # fmt: skip
