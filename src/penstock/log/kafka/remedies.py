"""The sentence with which the error of each of Kafka's codes ends: the limit or setting in question, and what to do."""

from __future__ import annotations

from confluent_kafka import KafkaError

from penstock.log.kafka.error_codes import CODES, LOCAL_CODES, ErrorCategory, LocalCode

__all__ = ["name_of", "remedy"]

_HANDLER = " production.exception.handler can leave such records out."
_REMEDIES = {
    # Records that brokers refuse.
    10: "The limit is max.message.bytes of the topic (of all topics: message.max.bytes of the brokers). Raise it with "
    "kafka-configs --alter --entity-type topics --entity-name TOPIC --add-config max.message.bytes=..., or send "
    "smaller records." + _HANDLER,
    18: "The limit is segment.bytes of the topic: raise it, or send smaller batches (producer.batch.size)." + _HANDLER,
    32: "The time is too far from the brokers' own: the limits are message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms of the topic (after: an hour by default). Are the timestamps milliseconds since "
    "1970-01-01 UTC?" + _HANDLER,
    87: "A topic with cleanup.policy=compact takes no records without a key. For other reasons see the broker's log."
    + _HANDLER,
    # Offsets.
    1: "Retention has removed the records, or the topic was created anew: move the group's offsets with penstock "
    "groups reset, or set auto.offset.reset.",
    12: "The limit is offset.metadata.max.bytes of the brokers.",
    28: "The limit of a request is message.max.bytes of the brokers: commit the offsets of fewer partitions at once.",
    109: "The records are in remote storage, which this client does not read: read from a later offset.",
    # Topics.
    17: "A topic's name has letters, digits, '.', '_' and '-', at most 249, and is not '.' or '..'.",
    36: "Delete it first, or use another name.",
    37: "A topic has at least one partition, and partitions are only ever added.",
    38: "replication.factor may be as large as the number of brokers, or -1 for the brokers' default.",
    39: "Leave the assignment of replicas to the brokers.",
    40: "See the names and values of topic settings at https://kafka.apache.org/documentation/#topicconfigs",
    44: "It is a rule of the brokers (create.topic.policy.class.name, alter.config.policy.class.name, or the largest "
    "number of partitions of a request): keep to it, or ask who runs the cluster.",
    60: "Wait for the end of the reassignment (kafka-reassign-partitions --list), and try again.",
    73: "The brokers have delete.topic.enable=false: whoever runs the cluster may delete the topic.",
    76: "Set compression.type to one that the brokers know: zstd needs Kafka 2.1.",
    # Groups and members.
    22: "The group has assigned its partitions anew: poll again.",
    23: "Members of another program are in this group: stop it, or give this one another application.id or group.id.",
    24: "Give a group.id that is not empty.",
    25: "The group went on without this member: it joins again by its next poll. Poll more often than "
    "max.poll.interval.ms.",
    26: "The limits of session.timeout.ms are group.min.session.timeout.ms and group.max.session.timeout.ms of the "
    "brokers.",
    27: "The group assigns its partitions anew: poll again.",
    68: "Stop its members first: penstock groups describe GROUP shows them.",
    69: "penstock groups list shows all groups.",
    81: "The limit is group.max.size of the brokers: run fewer members.",
    82: "Another member has this group.instance.id: each needs its own.",
    86: "Stop the members that read the topic first: penstock groups describe GROUP shows them.",
    111: "Another member has this group.instance.id: stop it, or wait for its session.timeout.ms.",
    112: "Members of this group use other assignors: set partition.assignment.strategy as theirs.",
    128: "The pattern of topics is for the broker's RE2: no look-around, no back-references.",
    # Transactions.
    50: "Set producer.transaction.timeout.ms to no more than the brokers' transaction.max.timeout.ms.",
    105: "The brokers forget transactional ids after transactional.id.expiration.ms: make a new producer.",
    # Versions.
    35: "The brokers are too old for this request (kafka-broker-api-versions lists what they know), or this is the "
    "port of a controller.",
    43: "The topic has the message format of an old Kafka: set log.message.format.version of the brokers to 0.11 or "
    "later.",
    # Identity.
    54: "The brokers have no authorizer: set authorizer.class.name, or leave ACLs out.",
    61: "Delegation tokens need delegation.token.secret.key on all brokers.",
    66: "Get a new delegation token.",
    # librdkafka's own.
    LocalCode.TIMED_OUT: "The broker did not answer in time: is it up, reachable and healthy?",
}
_BY_CATEGORY = {
    ErrorCategory.REJOIN: "The group has assigned its partitions anew: poll again.",
    ErrorCategory.DENIED: "See security.protocol, sasl.* and ssl.* in the settings, and the ACLs of this user.",
}
_OTHERWISE = "The broker's log may say why."
_OF_CLIENT = "See the settings of Kafka's clients; with --debug, or the debug setting, the client library says more."
_NAMES = {  # of codes that this librdkafka does not know
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    107: "INELIGIBLE_REPLICA",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
}


def remedy(code: int) -> str:
    """Return what to do after an error of this code."""
    category = CODES.get(code) or LOCAL_CODES.get(code)
    by_category = _BY_CATEGORY.get(category, "") if category is not None else ""
    return _REMEDIES.get(code) or by_category or (_OF_CLIENT if code < 0 else _OTHERWISE)


def name_of(error: KafkaError) -> str:
    """Return the name of an error's code, as Kafka's documentation has it where librdkafka does not."""
    return _NAMES.get(error.code()) or str(error.name())
