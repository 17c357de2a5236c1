"""Access control lists of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.log.acls import TopicAcl

if TYPE_CHECKING:
    from penstock.log.kafka.cluster_topics import Topics

__all__ = ["add_topic_acls", "topic_acls"]

_REQUEST_S = 10.0
_ANY = AclBindingFilter(
    ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def topic_acls(topics: Topics, admin: Any) -> list[TopicAcl] | None:
    """List the rights to single topics; None: the cluster asks for none.

    Raises:
        AuthorizationError: The user may not see them.
    """
    try:
        bindings = topics.ask(lambda: admin.describe_acls(_ANY).result(_REQUEST_S), "listing access control lists")
    except Exception as error:
        if _is_off(error):
            return None
        raise
    literal = [each for each in bindings if each.resource_pattern_type == ResourcePatternType.LITERAL]
    return [
        TopicAcl(each.name, each.principal, each.host, each.operation.name, each.permission_type.name)
        for each in literal
    ]


def add_topic_acls(topics: Topics, admin: Any, rules: Sequence[TopicAcl]) -> None:
    """Add rights to topics; those that are there already stay.

    Raises:
        AuthorizationError: The user may not change them.
        LogError: The cluster has no authorizer.
    """
    bindings = [
        AclBinding(
            ResourceType.TOPIC, each.topic, ResourcePatternType.LITERAL, each.principal, each.host,
            AclOperation[each.operation], AclPermissionType[each.permission],
        )
        for each in rules
    ]  # fmt: skip

    def act() -> None:
        for future in admin.create_acls(bindings).values():
            future.result(_REQUEST_S)

    if bindings:
        topics.ask(act, "adding access control lists", "ALTER")


def _is_off(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.SECURITY_DISABLED:
            return True
        error = error.__cause__
    return False
