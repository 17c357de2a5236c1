"""Topics, offsets, groups and access control lists of a cluster, through the admin client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from penstock.base.nearest_name import did_you_mean
from penstock.errors import LogError, LogUnavailableError, TopicExistsError, UnknownTopicError
from penstock.log.acls import TopicAcl
from penstock.log.base import OffsetAndMetadata, OffsetAndTime, TopicInfo, TopicPartition
from penstock.log.client_counts import timed
from penstock.log.kafka.clients.connections import Clients
from penstock.log.kafka.failures import error_of, failure, persist
from penstock.log.kafka.wire.cluster import delete_records
from penstock.log.kafka.wire.connection import TIMED_OUT, failed
from penstock.log.kafka.wire.groups import (
    EARLIEST,
    LATEST,
    NEWEST_TIME,
    commit_offsets,
    committed_offsets,
    list_offsets,
)
from penstock.log.kafka.wire.streams_groups import describe_streams_group, list_streams_groups

if TYPE_CHECKING:
    from penstock.log.base import Isolation
    from penstock.log.kafka.wire.groups import JoinedMember
    from penstock.log.streams_groups.description import StreamsGroupDescription

__all__ = ["Topics", "add_topic_acls", "error_code", "topic_acls"]

_REQUEST_S = 10.0
_METADATA_S = 2.0  # the longest age of a cached partition count
_SETTLE_S = 15.0
Offsets = dict[TopicPartition, int]


class Topics:
    """The operations of the admin client for a `KafkaLog`."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._counts: dict[str, tuple[float, int]] = {}

    def ask(self, action: Callable[[], Any], doing: str, operation: str = "DESCRIBE", **facts: Any) -> Any:
        """Send a request to the cluster, with retries after temporary failures.

        Args:
            action: Sends the request.
            doing: Its description for messages.
            operation: Its name in ACLs.
            facts: Its object: ``topic`` or ``group``.
        """

        def act() -> Any:
            try:
                return action()
            except TimeoutError as error:  # of a future: the client has not kept the limit that it was given
                raise failed(TIMED_OUT, f"{doing}: no answer") from error
            except KafkaException:
                self._clients.admin().poll(0)  # calls error_cb with the reason
                raise

        clients = self._clients
        forget = clients.cluster().forget
        return persist(act, doing, clients.patience_s, clients.access, forget, operation=operation, **facts)

    def counts(self) -> dict[str, int]:
        """Return the partition counts of all topics, without Kafka's own."""
        cluster = self._clients.cluster()
        counts = self.ask(cluster.partition_counts, "listing the topics")
        return {name: count for name, count in sorted(counts.items()) if not name.startswith("__")}

    def exists(self, topic: str) -> bool:
        """Return whether there is a topic; asks for this one alone, as a cluster may have thousands."""
        cluster = self._clients.cluster()
        counts: dict[str, int] = self.ask(lambda: cluster.partition_counts([topic]), f"looking for topic {topic!r}")
        if topic in counts:
            self._counts[topic] = (time.monotonic(), counts[topic])
        return topic in counts

    def partitions(self, topic: str) -> int:
        """Return the partition count of a topic, cached for a short time.

        Raises:
            UnknownTopicError: There is no such topic; the message names similar ones.
        """
        now = time.monotonic()
        time_and_count = self._counts.get(topic)
        if time_and_count is None or now - time_and_count[0] > _METADATA_S:
            counts = self.counts()
            self._counts = {name: (now, count) for name, count in counts.items()}
            if topic not in counts:
                self._require_visible(topic)
                hint = did_you_mean(topic, counts, 3) or f"create it: penstock topics create {topic}"
                raise UnknownTopicError(
                    f"there is no topic {topic!r} at {self._clients.servers}", hint=hint, topic=topic
                )
            time_and_count = self._counts[topic]
        return time_and_count[1]

    def _require_visible(self, topic: str) -> None:
        """Raise AuthorizationError if a topic is only hidden from this user, who may not DESCRIBE it."""
        admin = self._clients.admin()
        try:
            admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_S)[topic].result(_REQUEST_S)
        except TimeoutError:
            return
        except KafkaException as error:
            if error_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                doing, access = f"looking for topic {topic!r}", self._clients.access
                raise failure(error, doing, access, topic=topic, operation="DESCRIBE") from error

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        cluster = self._clients.cluster()
        return str(self.ask(lambda: cluster.identities([])[0], "asking for the cluster's id"))

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of those topics that exist, if the brokers support ids."""
        cluster, names = self._clients.cluster(), sorted(set(topics))
        ids: dict[str, str] = self.ask(lambda: cluster.identities(names)[1], "asking for the ids of topics")
        return ids

    def places(self, topics: Iterable[str]) -> list[TopicPartition]:
        """List all partitions of these topics, in order."""
        return [TopicPartition(t, p) for t in sorted(set(topics)) for p in range(self.partitions(t))]

    def create(self, name: str, partitions: int, config: Mapping[str, str], replication: int = -1) -> None:
        """Create a topic, and wait until all brokers know it."""
        admin = self._clients.admin()
        is_unsure = False  # whether the brokers may have created it without an answer that came

        def act() -> None:
            nonlocal is_unsure
            new = NewTopic(name, partitions, replication, config=dict(config))
            try:
                admin.create_topics([new], operation_timeout=_REQUEST_S)[name].result(_REQUEST_S + 1)
            except TimeoutError:
                is_unsure = True
                raise
            except KafkaException as error:
                code = error_of(error).code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS and is_unsure:
                    return
                is_unsure = is_unsure or code < 0 or code == KafkaError.REQUEST_TIMED_OUT
                raise

        try:
            self.ask(act, f"creating topic {name!r}", "CREATE", topic=name)
        except Exception as error:
            if error_code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                if not name.startswith("__"):  # another process creates it at this moment: the caller goes on with it
                    self._settle(lambda: name in self.counts(), f"topic {name!r} to appear")
                raise TopicExistsError(
                    f"there is a topic {name!r} already", hint="delete it first, or use another name", topic=name
                ) from error
            raise
        self._settle(lambda: self.counts().get(name) == partitions, f"topic {name!r} to appear")

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self._counts.pop(name, None)
        self.partitions(name)
        admin = self._clients.admin()

        def act() -> None:
            try:
                admin.delete_topics([name], operation_timeout=_REQUEST_S)[name].result(_REQUEST_S + 1)
            except KafkaException as error:  # it was there a moment ago: perhaps the brokers' answer has not come
                is_unknown = error_of(error).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                if not is_unknown or name in self._clients.cluster().partition_counts():
                    raise

        self.ask(act, f"deleting topic {name!r}", "DELETE", topic=name)
        self._counts.pop(name, None)
        self._settle(lambda: name not in self.counts(), f"topic {name!r} to be gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Add partitions until the topic has ``total``."""
        admin = self._clients.admin()
        before = self.counts().get(name, total)
        act = lambda: admin.create_partitions([NewPartitions(name, total)])[name].result(_REQUEST_S)  # noqa: E731
        try:
            self.ask(act, f"adding partitions to {name!r}", "ALTER", topic=name)
        except LogError as error:
            was_added = before < total == self.counts().get(name)  # by a request whose answer has not come
            if not was_added or error_code(error) != KafkaError.INVALID_PARTITIONS:
                raise
        self._counts.pop(name, None)
        self._settle(lambda: self.counts().get(name) == total, f"topic {name!r} to have {total} partitions")

    def _settle(self, done: Callable[[], bool], event: str) -> None:
        """Wait until the brokers' metadata show a change by the controller."""
        deadline = time.monotonic() + _SETTLE_S
        while not done():
            if time.monotonic() > deadline:
                raise LogUnavailableError(f"waited {_SETTLE_S:.0f} s for {event}", hint="Is the cluster healthy?")
            time.sleep(0.01)

    def config(self, name: str, *, everything: bool = False) -> dict[str, str]:
        """Return the settings of a topic that differ from the broker's defaults, or all."""
        admin = self._clients.admin()
        resource = ConfigResource(ResourceType.TOPIC, name)
        act = lambda: admin.describe_configs([resource])[resource].result(_REQUEST_S)  # noqa: E731
        entries = self.ask(act, f"describing topic {name!r}", "DESCRIBE_CONFIGS", topic=name).values()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name: entry.value for entry in entries if everything or entry.source == own}

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None resets one to its default."""
        self.partitions(name)
        admin = self._clients.admin()
        operations = AlterConfigOpType
        entries = [
            ConfigEntry(key, value, incremental_operation=operations.DELETE if value is None else operations.SET)
            for key, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        act = lambda: admin.incremental_alter_configs([resource])[resource].result(_REQUEST_S)  # noqa: E731
        self.ask(act, f"changing topic {name!r}", "ALTER_CONFIGS", topic=name)

    def info(self, name: str) -> TopicInfo:
        """Describe a topic."""
        count = self.partitions(name)
        return TopicInfo(name, count, self.config(name))

    def offsets(
        self, places: Iterable[TopicPartition], time: int, *, committed: bool = True
    ) -> dict[TopicPartition, OffsetAndTime]:
        """Return the offsets of many partitions for one timestamp, or a constant such as LATEST; see `list_offsets`."""
        return self.offsets_by(dict.fromkeys(places, time), committed=committed)

    def offsets_by(
        self, times: Mapping[TopicPartition, int], *, committed: bool = True
    ) -> dict[TopicPartition, OffsetAndTime]:
        """Return the offsets of many partitions, each for its own timestamp, with one request to each broker."""
        if not times:
            return {}
        cluster = self._clients.cluster()
        level: Isolation = "read_committed" if committed else "read_uncommitted"
        offsets: dict[TopicPartition, OffsetAndTime] = self.ask(
            lambda: list_offsets(cluster, times, level), "asking for offsets"
        )
        return offsets

    def beginnings(self, topics: Iterable[str]) -> Offsets:
        """Return the first offsets."""
        offsets = self.offsets(self.places(topics), EARLIEST)
        return {tp: each.offset for tp, each in sorted(offsets.items())}

    def ends(self, topics: Iterable[str], *, committed: bool = True) -> Offsets:
        """Return the last stable offsets; the high watermarks if not ``committed``."""
        offsets = self.offsets(self.places(topics), LATEST, committed=committed)
        return {tp: each.offset for tp, each in sorted(offsets.items())}

    def for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        """Find the first records whose timestamps are at least these."""
        offsets = self.offsets_by({tp: max(0, time) for tp, time in times.items()})
        return {tp: None if each.offset < 0 else each for tp, each in offsets.items()}

    def newest_times(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return the largest timestamp of each partition; None if it is empty."""
        offsets = self.offsets(places, NEWEST_TIME)
        return {tp: None if each.offset < 0 else each.timestamp for tp, each in offsets.items()}

    def delete_records(self, tp: TopicPartition, before: int) -> int:
        """Remove all records below an offset and return the new first offset."""
        cluster = self._clients.cluster()
        doing = f"deleting records of {tp.topic}-{tp.partition}"
        firsts: dict[TopicPartition, int] = self.ask(
            lambda: delete_records(cluster, {tp: before}), doing, "DELETE", topic=tp.topic
        )
        return firsts[tp]

    def purge(self, before: Mapping[TopicPartition, int]) -> None:
        """Remove the records below these offsets in one attempt, over connections of its own."""
        with closing(self._clients.own_cluster()) as cluster:
            try:
                delete_records(cluster, before)
            except KafkaException as error:
                raise failure(error, "deleting records", self._clients.access, operation="DELETE") from error

    @timed("consumer", "commit-ms")
    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], metadata: str, me: JoinedMember | None = None
    ) -> None:
        """Set a group's next offsets; as its member ``me``, if it has members."""
        self.commit_each(group, {tp: OffsetAndMetadata(offset, metadata) for tp, offset in offsets.items()}, me)

    def commit_each(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], me: JoinedMember | None = None
    ) -> None:
        """Like `commit`, with a text for each offset."""
        if offsets:
            cluster = self._clients.cluster()
            doing = f"committing offsets of group {group!r}"
            self.ask(lambda: commit_offsets(cluster, group, offsets, me), doing, "READ", group=group)

    def committed(
        self, group: str, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's next offsets with their metadata; of these partitions, also first ones that are due."""
        cluster = self._clients.cluster()
        doing, partitions = f"asking for the offsets of group {group!r}", None if places is None else list(places)
        offsets: dict[TopicPartition, OffsetAndMetadata] = self.ask(
            lambda: committed_offsets(cluster, group, partitions), doing, group=group
        )
        return offsets

    def groups(self) -> list[str]:
        """List the names of all consumer groups and streams groups."""
        admin, cluster = self._clients.admin(), self._clients.cluster()
        act = lambda: admin.list_consumer_groups(request_timeout=_REQUEST_S).result(_REQUEST_S).valid  # noqa: E731
        consumers = [each.group_id for each in self.ask(act, "listing the groups")]
        streams = self.ask(lambda: list_streams_groups(cluster), "listing the streams groups")
        return sorted({*consumers, *streams})

    def streams_group(self, group: str) -> StreamsGroupDescription | None:
        """Return a streams group; None if there is none of that name."""
        cluster = self._clients.cluster()
        description: StreamsGroupDescription | None = self.ask(
            lambda: describe_streams_group(cluster, group), f"describing group {group!r}", group=group
        )
        return description

    def delete_group(self, group: str) -> None:
        """Delete a group; does nothing if there is none."""
        admin = self._clients.admin()
        act = lambda: admin.delete_consumer_groups([group])[group].result(_REQUEST_S)  # noqa: E731
        try:
            self.ask(act, f"deleting group {group!r}", "DELETE", group=group)
        except Exception as error:
            if error_code(error) != KafkaError.GROUP_ID_NOT_FOUND:
                raise


def error_code(error: BaseException) -> int | None:
    """Return Kafka's error code behind a Penstock error."""
    cause = error.__cause__
    return int(error_of(cause).code()) if isinstance(cause, KafkaException) else None


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
