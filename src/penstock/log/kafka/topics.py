"""Topics, offsets and groups of a cluster, through the admin client."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from penstock.errors import LogUnavailableError, TopicExistsError, UnknownTopicError
from penstock.log.base import OffsetAndMetadata, OffsetAndTime, TopicInfo, TopicPartition
from penstock.log.kafka.clients import Clients
from penstock.log.kafka.failures import error_of, failure, persist
from penstock.log.kafka.wire.errors import TIMED_OUT, failed
from penstock.log.kafka.wire.groups import commit_offsets, committed_offsets

__all__ = ["Topics", "error_code"]

_REQUEST_S = 10.0
_METADATA_S = 2.0  # how long a partition count may be out of date
_SETTLE_S = 15.0
Offsets = dict[TopicPartition, int]


class Topics:
    """What the admin client does for a `KafkaLog`."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._counts: dict[str, tuple[float, int]] = {}

    def ask(self, action: Callable[[], Any], doing: str, operation: str = "DESCRIBE", **facts: Any) -> Any:
        """An answer of the cluster, asked for again while it fails for reasons that may pass.

        Args:
            action: Asks.
            doing: What is done, for messages.
            operation: As ACLs call it.
            facts: What it is done to: ``topic`` or ``group``.
        """

        def act() -> Any:
            try:
                return action()
            except TimeoutError as error:  # of a future: the client has not kept the limit that it was given
                raise failed(TIMED_OUT, f"{doing}: no answer") from error
            except KafkaException:
                self._clients.admin().poll(0)  # hears why
                raise

        clients = self._clients
        return persist(act, doing, clients.patience_s, clients.access, operation=operation, **facts)

    def counts(self) -> dict[str, int]:
        """Partition counts of all topics, Kafka's own left out."""
        admin = self._clients.admin()
        found = self.ask(lambda: admin.list_topics(timeout=_REQUEST_S), "listing the topics").topics
        return {
            name: len(topic.partitions)
            for name, topic in sorted(found.items())
            if topic.error is None and not name.startswith("__")
        }

    def partitions(self, topic: str) -> int:
        """The partition count of a topic; not asked for each time.

        Raises:
            UnknownTopicError: With the nearest names.
        """
        now = time.monotonic()
        known = self._counts.get(topic)
        if known is None or now - known[0] > _METADATA_S:
            counts = self.counts()
            self._counts = {name: (now, count) for name, count in counts.items()}
            if topic not in counts:
                self._require_visible(topic)
                near = difflib.get_close_matches(topic, counts, 3, 0.6)
                hint = f"did you mean {', '.join(near)}?" if near else f"create it: penstock topics create {topic}"
                raise UnknownTopicError(
                    f"there is no topic {topic!r} at {self._clients.servers}", hint=hint, topic=topic
                )
            known = self._counts[topic]
        return known[1]

    def _require_visible(self, topic: str) -> None:
        """Raises AuthorizationError if a topic is only hidden from this user: a list has what one may DESCRIBE."""
        admin = self._clients.admin()
        try:
            admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_S)[topic].result(_REQUEST_S)
        except TimeoutError:
            return
        except KafkaException as error:
            if error_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                doing, access = f"looking for topic {topic!r}", self._clients.access
                raise failure(error, doing, access, topic=topic, operation="DESCRIBE") from error

    def places(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All partitions of these topics, in order."""
        return [TopicPartition(t, p) for t in sorted(set(topics)) for p in range(self.partitions(t))]

    def create(self, name: str, partitions: int, config: Mapping[str, str], replication: int = -1) -> None:
        """Creates a topic, and waits until all brokers know it."""
        admin = self._clients.admin()

        def act() -> None:
            new = NewTopic(name, partitions, replication, config=dict(config))
            admin.create_topics([new], operation_timeout=_REQUEST_S)[name].result(_REQUEST_S + 1)

        try:
            self.ask(act, f"creating topic {name!r}", "CREATE", topic=name)
        except Exception as error:
            if error_code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicExistsError(
                    f"there is a topic {name!r} already", hint="delete it first, or use another name", topic=name
                ) from error
            raise
        self._settle(lambda: self.counts().get(name) == partitions, f"topic {name!r} to appear")

    def delete(self, name: str) -> None:
        """Deletes a topic, and waits until it is gone."""
        self._counts.pop(name, None)
        self.partitions(name)
        admin = self._clients.admin()
        act = lambda: admin.delete_topics([name], operation_timeout=_REQUEST_S)[name].result(_REQUEST_S + 1)  # noqa: E731
        self.ask(act, f"deleting topic {name!r}", "DELETE", topic=name)
        self._counts.pop(name, None)
        self._settle(lambda: name not in self.counts(), f"topic {name!r} to be gone")

    def add_partitions(self, name: str, total: int) -> None:
        """Adds partitions until the topic has ``total``."""
        admin = self._clients.admin()
        act = lambda: admin.create_partitions([NewPartitions(name, total)])[name].result(_REQUEST_S)  # noqa: E731
        self.ask(act, f"adding partitions to {name!r}", "ALTER", topic=name)
        self._counts.pop(name, None)
        self._settle(lambda: self.counts().get(name) == total, f"topic {name!r} to have {total} partitions")

    def _settle(self, done: Callable[[], bool], what: str) -> None:
        """Waits for the brokers' metadata to follow what their controller has done."""
        deadline = time.monotonic() + _SETTLE_S
        while not done():
            if time.monotonic() > deadline:
                raise LogUnavailableError(f"waited {_SETTLE_S:.0f} s for {what}", hint="Is the cluster healthy?")
            time.sleep(0.01)

    def config(self, name: str, *, everything: bool = False) -> dict[str, str]:
        """The settings of a topic that are not the broker's defaults, or all."""
        admin = self._clients.admin()
        resource = ConfigResource(ResourceType.TOPIC, name)
        act = lambda: admin.describe_configs([resource])[resource].result(_REQUEST_S)  # noqa: E731
        found = self.ask(act, f"describing topic {name!r}", "DESCRIBE_CONFIGS", topic=name).values()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name: entry.value for entry in found if everything or entry.source == own}

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Sets some of a topic's settings; None returns one to its default."""
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
        """One topic."""
        count = self.partitions(name)
        return TopicInfo(name, count, self.config(name))

    def offsets(
        self, places: Sequence[TopicPartition], spec: Any, *, committed: bool = True
    ) -> dict[TopicPartition, OffsetAndTime]:
        """Offsets of many partitions in one request; ``spec`` is an OffsetSpec."""
        if not places:
            return {}
        admin = self._clients.admin()
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {KafkaTopicPartition(place.topic, place.partition): spec for place in places}

        def act() -> dict[TopicPartition, OffsetAndTime]:
            answers = admin.list_offsets(wanted, isolation_level=level, request_timeout=_REQUEST_S)
            found = {}
            try:
                for place, future in answers.items():
                    info = future.result(_REQUEST_S + 1)
                    found[TopicPartition(place.topic, place.partition)] = _known(place, info.offset, info.timestamp)
            except KafkaException:
                admin.list_topics(timeout=_REQUEST_S)  # the client may know leaders of before
                raise
            return found

        answers: dict[TopicPartition, OffsetAndTime] = self.ask(act, "asking for offsets")
        return answers

    def beginnings(self, topics: Iterable[str]) -> Offsets:
        """The first offsets."""
        found = self.offsets(self.places(topics), OffsetSpec.earliest())
        return {place: each.offset for place, each in sorted(found.items())}

    def ends(self, topics: Iterable[str], *, committed: bool = True) -> Offsets:
        """The last stable offsets; the high watermarks if not ``committed``."""
        found = self.offsets(self.places(topics), OffsetSpec.latest(), committed=committed)
        return {place: each.offset for place, each in sorted(found.items())}

    def for_time(self, place: TopicPartition, timestamp: int) -> OffsetAndTime | None:
        """The first record whose timestamp is at least this."""
        found = self.offsets([place], OffsetSpec.for_timestamp(max(0, timestamp)))[place]
        return None if found.offset < 0 else found

    def newest_time(self, place: TopicPartition) -> int | None:
        """The largest timestamp of a partition; None if it is empty."""
        found = self.offsets([place], OffsetSpec.max_timestamp())[place]
        return None if found.offset < 0 else found.timestamp

    def delete_records(self, place: TopicPartition, before: int) -> int:
        """Removes all records below an offset; gives the new first offset."""
        admin = self._clients.admin()
        wanted = KafkaTopicPartition(place.topic, place.partition, before)
        act = lambda: admin.delete_records([wanted])[wanted].result(_REQUEST_S).low_watermark  # noqa: E731
        first: int = self.ask(act, f"deleting records of {place.topic}-{place.partition}", "DELETE", topic=place.topic)
        return first

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """Sets a group's next offsets."""
        if offsets:
            cluster = self._clients.cluster()
            doing = f"committing offsets of group {group!r}"
            self.ask(lambda: commit_offsets(cluster, group, offsets, metadata), doing, "READ", group=group)

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """A group's next offsets, with what was noted beside them."""
        cluster = self._clients.cluster()
        doing = f"asking for the offsets of group {group!r}"
        found: dict[TopicPartition, OffsetAndMetadata] = self.ask(
            lambda: committed_offsets(cluster, group), doing, group=group
        )
        return found

    def groups(self) -> list[str]:
        """The names of all consumer groups."""
        admin = self._clients.admin()
        act = lambda: admin.list_consumer_groups(request_timeout=_REQUEST_S).result(_REQUEST_S).valid  # noqa: E731
        return sorted(each.group_id for each in self.ask(act, "listing the groups"))

    def delete_group(self, group: str) -> None:
        """Forgets a group; nothing happens if there is none."""
        admin = self._clients.admin()
        act = lambda: admin.delete_consumer_groups([group])[group].result(_REQUEST_S)  # noqa: E731
        try:
            self.ask(act, f"deleting group {group!r}", "DELETE", group=group)
        except Exception as error:
            if error_code(error) != KafkaError.GROUP_ID_NOT_FOUND:
                raise


def error_code(error: BaseException) -> int | None:
    """Kafka's code behind an error of ours."""
    cause = error.__cause__
    return int(error_of(cause).code()) if isinstance(cause, KafkaException) else None


def _known(place: KafkaTopicPartition, offset: int, timestamp: int) -> OffsetAndTime:
    """An answer; one that is none, as while a broker goes down, counts as no known leader: it is asked again."""
    if offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._NOENT, f"no offset of {place.topic}-{place.partition}"))  # noqa: SLF001
    return OffsetAndTime(offset, timestamp)
