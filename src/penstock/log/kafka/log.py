"""KafkaLog: the TopicLog of a Kafka cluster, whose broker coordinates streams groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from penstock.base.log_lines import own_logger
from penstock.errors import LogError, LogUnavailableError
from penstock.log.base import (
    Fetched,
    GroupMember,
    GroupMembership,
    GroupState,
    Isolation,
    Lease,
    OffsetAndMetadata,
    OffsetAndTime,
    Span,
    Stretch,
    TopicInfo,
    TopicPartition,
)
from penstock.log.client_counts import timed
from penstock.log.fenced_record import RecordName
from penstock.log.kafka.checkup.start import require_able
from penstock.log.kafka.clients.fetcher import KafkaFetcher
from penstock.log.kafka.cluster_topics import error_code
from penstock.log.kafka.error_codes import CODES, ErrorCategory
from penstock.log.kafka.failures import category_of, failure, membership_failure, persist
from penstock.log.kafka.reading import EMPTY, first_in_time, record_sizes, settled_ends, stretches, wait_for_data
from penstock.log.kafka.transactions.commit_producer import KafkaCommitProducer
from penstock.log.kafka.transactions.core import KafkaCore
from penstock.log.kafka.transactions.fenced_record import KafkaFencedRecord, KafkaLeases, KafkaRecords
from penstock.log.kafka.transactions.group_presence import Presence, expel
from penstock.log.kafka.transactions.hanging_transactions import settle_hanging
from penstock.log.kafka.transactions.ledger import NOTES, PLANNED, LedgerRecord, entry_part, ledger_topic, partition_of
from penstock.log.kafka.transactions.producer_fencing import PLANNER, RESET, fence
from penstock.log.kafka.transactions.transaction import KafkaTransaction, transaction
from penstock.log.kafka.wire.cluster import feature_level
from penstock.log.kafka.wire.groups import commit_as_streams_member
from penstock.log.kafka.wire.streams_groups import describe_streams_group, send_heartbeat, set_group_setting
from penstock.log.kafka.writing import checked
from penstock.log.streams_groups.description import group_state_of
from penstock.log.thread_clients import Writer

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from penstock.log.application_needs import ApplicationNeeds
    from penstock.log.base import StreamsMembership
    from penstock.log.kafka.cluster_topics import Topics
    from penstock.log.kafka.refused_access import ClusterAccess
    from penstock.log.kafka.wire.cluster import Cluster
    from penstock.log.streams_groups.description import HeartbeatAnswer, StreamsGroupDescription, StreamsHeartbeat

__all__ = ["KafkaLog", "KafkaStreamsCoordinator", "delete_offsets", "group_state"]

_T = TypeVar("_T")
_log = own_logger(__name__)
_FEATURE = "streams.version"
_PATIENCE_S = 10.0
_UNKNOWN_SETTING = "Unknown group config name"  # of an older broker


class KafkaStreamsCoordinator:
    """The brokers that keep streams groups (Kafka 4.2 and later).

    Args:
        cluster: Connections of its own, as a heartbeat waits behind requests in flight.
        access: Explains refusals.
    """

    def __init__(self, cluster: Cluster, access: ClusterAccess | None = None) -> None:
        self._cluster, self._access = cluster, access

    def is_supported(self) -> bool:
        """Return whether the cluster has finalised the feature.

        Raises:
            LogError: No broker answers.
        """

        def ask() -> bool:
            return feature_level(self._cluster.any_broker(), _FEATURE) > 0

        doing = "asking for the features of the cluster"
        return persist(ask, doing, _PATIENCE_S, self._access, self._cluster.forget)

    def heartbeat(self, heartbeat: StreamsHeartbeat) -> HeartbeatAnswer:
        """Send a member's heartbeat; there are no retries here, as the next heartbeat says everything again.

        Raises:
            LogError: The heartbeat may have been lost, or its answer.
        """
        group = heartbeat.group
        return self._tried(lambda: send_heartbeat(self._cluster, heartbeat), f"staying in group {group!r}")

    def describe(self, group: str) -> StreamsGroupDescription | None:
        """Return a group; None if there is none of that name, or the brokers know no streams groups.

        A new cluster has no coordinators for some seconds: that is waited for.

        Raises:
            LogError: The coordinator does not answer, or the user may not see the group.
        """
        act = partial(describe_streams_group, self._cluster, group)
        return persist(act, f"describing group {group!r}", _PATIENCE_S, self._access, self._cluster.forget)

    def commit(
        self,
        group: str,
        membership: StreamsMembership,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> None:
        """Commit offsets as a member.

        Raises:
            FencedError: The group goes on without this member, or has given its tasks to others.
            LogError: The coordinator does not answer.
        """

        def commit() -> None:
            try:
                commit_as_streams_member(self._cluster, group, offsets, membership)
            except KafkaException as error:
                if category_of(error) is ErrorCategory.REJOIN:
                    raise membership_failure(group, membership, error) from error
                raise

        self._tried(commit, f"committing offsets of group {group!r}")

    def set_group_settings(self, group: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Set settings of a group one by one; return those that were refused, each with the reason.

        Raises:
            LogUnavailableError: No broker answers.
        """
        refused: dict[str, str] = {}
        for name, value in settings.items():
            doing = f"setting {name} of group {group!r}"
            act = partial(set_group_setting, self._cluster, group, name, value)
            try:
                persist(act, doing, _PATIENCE_S, self._access, self._cluster.forget, operation="ALTER_CONFIGS")
            except LogUnavailableError:
                raise
            except LogError as error:
                if _UNKNOWN_SETTING in error.message:
                    _log.debug("%s: %s", doing, error.message)
                else:
                    refused[name] = error.message
        return refused

    def close(self) -> None:
        """Close its connections."""
        self._cluster.close()

    def _tried(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise failure(error, doing, self._access) from error


_MOST_EXPECTED = 16
_REQUEST_S = 10.0
_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Empty",
    "EMPTY": "Empty",
}
_NOBODY = GroupState("Empty", "", ())


class KafkaLog(KafkaCore):
    """The topics of a Kafka cluster; it connects on first use.

    Open it with :func:`penstock.log.open.open_log`.

    Args:
        servers: In the form of ``bootstrap.servers``.
        settings: Kafka's client settings by their Java names.
    """

    def __init__(self, servers: str, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(servers, settings)
        self._records = KafkaRecords(self)
        self._leases = KafkaLeases(self, self._records)

    @property
    def url(self) -> str:
        """The URL that opens this log again."""
        return self.clients.servers

    def identity(self) -> str:
        """Return the cluster's id."""
        return self._topics.cluster_id()

    def give_up_at_end(self, is_ending: Callable[[], bool], within_s: float) -> None:
        """Have requests that fail be tried again for no longer than this once their application is to end."""
        self.clients.access.give_up_at_end(is_ending, within_s)

    def require_able(self, needs: ApplicationNeeds) -> None:
        """Check that an application can run over these brokers, with this user's rights.

        Raises:
            LogError: The brokers have no transactions, or refuse compacted topics.
            AuthorizationError: Rights are missing.
        """
        require_able(self.clients, needs, ledger_topic(needs.application))

    # Topics

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; raises TopicExistsError if there is one of that name."""
        own = dict(config or {})
        replication = int(own.pop("replication.factor", self.replication))
        self._topics.create(name, partitions, own, replication)

    def create_partitions(self, name: str, total: int) -> None:
        """Add partitions until the topic has ``total``."""
        self._topics.add_partitions(name, total)

    def alter_config(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change some of a topic's settings; None resets one to its default."""
        self._topics.alter_config(name, changes)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self._topics.delete(name)

    def topics(self) -> list[TopicInfo]:
        """List all topics by name, without Kafka's own; `topic` also has their settings."""
        return [TopicInfo(name, count) for name, count in self._topics.counts().items()]

    def topic(self, name: str) -> TopicInfo:
        """Describe a topic; raises UnknownTopicError, which names similar topics, if there is none."""
        return self._topics.info(name)

    def partitions(self, topic: str) -> int:
        """Count a topic's partitions, which needs fewer rights than reading its settings."""
        return self._topics.partitions(topic)

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the ids of those topics that exist; none on a cluster before Kafka 2.8."""
        return self._topics.ids(names)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Remove all records below an offset and return the new first offset."""
        return self._topics.delete_records(self._place(topic, partition), before_offset)

    def purge(self, before: Mapping[TopicPartition, int]) -> None:
        """Remove the records below these offsets, which nobody needs, in one attempt."""
        self._topics.purge(before)

    # Records

    def append(self, topic: str, partition: int, records: pa.RecordBatch) -> int:
        """Append outside any transaction and return the first offset."""
        tp = self._place(topic, partition)
        if not records.num_rows:
            return self.end_offset(topic, partition)
        return self.write_plainly([(topic, partition, checked(topic, partition, records))])[tp]

    @contextmanager
    def transaction(self, transactional_id: str, epoch: int | None = None) -> Iterator[KafkaTransaction]:
        """Begin a transaction, which commits when the block ends and writes nothing if it raises.

        Args:
            transactional_id: The id of the writer; the newest writer of an id fences earlier ones. With an empty id
                the writes are idempotent, but not atomic.
            epoch: The epoch of the application's lease (see ``acquire_lease``).

        Raises:
            FencedError: A newer attempt or instance has taken over.
            ProductionError: Kafka refuses a record permanently.
            LogUnavailableError: It could not be written within ``task.timeout.ms``.
        """
        with transaction(self, transactional_id, epoch) as begun:
            yield begun

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = 50_000,
        isolation: Isolation = "read_committed",
    ) -> Fetched:
        """Read up to ``max_records`` from ``offset`` on."""
        self._place(topic, partition)
        reader = self._reader(isolation)
        batches = list(reader.read(topic, partition, offset, None, max_records))
        return Fetched(pa.concat_batches(batches) if batches else EMPTY, reader.position)

    def read_range(self, topic: str, partition: int, start: int, end: int) -> Sequence[pa.RecordBatch]:
        """Read all committed records with start <= offset < end."""
        return list(self._reader().read(topic, partition, start, end))

    # Stream threads

    def fetcher(self, application: str = "") -> KafkaFetcher:
        """Make a fetcher for a stream thread, with connections of its own."""
        clients = self.clients
        settle = partial(settle_hanging, application, self._topics, clients) if application else lambda: None
        return KafkaFetcher(clients.own_cluster(), clients.fetch_limits(), self.patience_s, clients.access, settle)

    def commit_producer(self, writer: Writer) -> KafkaCommitProducer:
        """Make the producer of a stream thread; it fences all earlier ones of its transactional id.

        Raises:
            FencedError: A newer instance of the application has taken over.
        """
        lease = writer.lease
        return KafkaCommitProducer(self, writer, lambda: None if lease is None else self._leases.check(*lease))

    def streams_coordinator(self) -> KafkaStreamsCoordinator:
        """Return the coordinator of streams groups, with connections of its own."""
        return KafkaStreamsCoordinator(self.clients.own_cluster(), self.clients.access)

    def settled_ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Wait until all that has been written to these partitions is committed or aborted; return their ends.

        Raises:
            LogUnavailableError: A transaction stays open for longer than ``task.timeout.ms``.
        """
        return settled_ends(self._topics, tuple(places), self.patience_s)

    def fence_threads(self, application: str, threads: Iterable[str], epoch: int | None = None) -> None:
        """Initialise the transactional ids of these threads, which fences their producers and ends their transactions.

        Before, those that hang in its topics are ended: a changelog would be restored without their records.

        Raises:
            FencedError: The application's lease has a newer epoch.
        """
        if epoch is not None:
            self._leases.check(application, epoch)
        own = [topic for topic in self._topics.counts() if topic.startswith(f"{application}-")]
        if own and self._topics.ends(own) != self._topics.ends(own, committed=False):
            settle_hanging(application, self._topics, self.clients)
        for thread in threads:
            fence(self.clients, Writer(application, thread, epoch))

    # Offsets

    def beginning_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the first offsets of all partitions of these topics."""
        return self._topics.beginnings(topics)

    def end_offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the last stable offsets of all partitions of these topics."""
        return self._topics.ends(topics)

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> OffsetAndTime | None:
        """Find the first record whose timestamp is at least this; None if there is none."""
        tp = self._place(topic, partition)
        return self.offsets_for_times({tp: timestamp})[tp]

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTime | None]:
        """Find the first record of each partition whose timestamp is at least this; None if there is none."""
        return first_in_time(self.clients.cluster(), self._topics, times, self._reader())

    def stretches(self, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, list[Stretch]]:
        """List stretches of records from the start of each span until they hold its ``most``."""
        return stretches(self._topics, spans)

    def record_sizes(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Estimate the size of the records of these ranges in bytes, as the brokers store them."""
        cluster = self.clients.cluster()
        ask = partial(record_sizes, cluster, ranges)
        return persist(ask, "asking for sizes", self.patience_s, self.clients.access, cluster.forget, operation="READ")

    def wait_for_data(self, known_ends: Mapping[TopicPartition, int], timeout_s: float) -> dict[TopicPartition, int]:
        """Wait until partitions end elsewhere than at ``known_ends`` or the timeout; return their end offsets."""
        return wait_for_data(self._topics, self.clients.waiter(), known_ends, timeout_s)

    # Groups

    def commit_with_metadata(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Set the next offsets of a group without members, each with a text of its own."""
        self._topics.commit_each(group, offsets)

    def commit_if_empty(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> bool:
        """Set the next offsets of a group without members; return False if it has some, without a commit."""
        try:
            self._topics.commit(group, offsets, metadata)
        except LogError as error:
            if CODES.get(error_code(error) or 0) is ErrorCategory.REJOIN:
                return False
            raise
        return True

    def committed_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Return the group's next offsets by partition."""
        return {tp: each.offset for tp, each in self._topics.committed(group).items()}

    @timed("consumer", "committed-ms")
    def group_offsets(
        self, group: str, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's next offsets with their metadata."""
        return self._topics.committed(group, places)

    def groups(self) -> list[str]:
        """List the names of all groups."""
        return self._topics.groups()

    def group_state(self, group: str) -> GroupState:
        """Return a group's state and members; it is Empty also if there is no such group."""
        return group_state(self._topics, self.clients.admin(), group)

    def delete_offsets(
        self,
        group: str,
        places: Iterable[TopicPartition],
        lease: Lease | None = None,  # noqa: ARG002 - the brokers know the group's members
    ) -> None:
        """Delete the group's offsets of these partitions; it must have no members."""
        delete_offsets(self._topics, group, places)

    def delete_group(self, group: str, lease: Lease | None = None) -> None:  # noqa: ARG002 - as above
        """Delete a group and its offsets."""
        self._topics.delete_group(group)

    # Applications

    def prepare_transactions(self, transactional_ids: Sequence[str], epoch: int | None) -> None:
        """Initialise the producers of these ids that this process does not have yet."""
        self.producers.initialise_all(transactional_ids[:_MOST_EXPECTED], epoch)

    def ledger(self, application: str) -> dict[str, int]:
        """Return the last batch that each task has written."""
        return {task: entry.batch for task, entry in self._entries(application).items()}

    def ledger_inputs(self, application: str) -> dict[str, str]:
        """Return the checksum of the inputs of each task's last batch; tasks without one are left out."""
        return {task: entry.inputs for task, entry in self._entries(application).items() if entry.inputs}

    def _entries(self, application: str) -> dict[str, LedgerRecord]:
        with self.ledger_of(application) as ledger:
            if not ledger.exists():
                return {}
            ledger.read_all()
            return ledger.entries()

    def clear_ledger(self, application: str) -> None:
        """Delete an application's ledger; part of a reset, after its checkpoint is deleted."""
        tasks = self.ledger(application)
        if not tasks and self.planned(application) is None:
            return
        with self.transaction(f"{application}-{RESET}") as transaction:
            notes = [f"{NOTES}{number}" for number in sorted({partition_of(task) for task in tasks})]
            for key in (*tasks, *notes, PLANNED):
                transaction.append(*entry_part(application, key, None))

    def note_planned(self, application: str, epoch: int, batch: str) -> None:
        """Store the newest planned batch; all in-sync replicas have it when this returns.

        Raises:
            FencedError: A newer instance has taken over.
        """
        name = RecordName(application, PLANNER, ledger_topic(application), PLANNED.encode())
        record = self.fenced_record(name, (application, epoch))
        record.replace(batch.encode(), record.held().version)

    def planned(self, application: str) -> str | None:
        """Return the newest planned batch, as it was stored; None if there is none."""
        with self.ledger_of(application) as ledger:
            if not ledger.exists():
                return None
            ledger.read([partition_of(PLANNED)])
            return ledger.planned()

    def fenced_record(self, name: RecordName, lease: tuple[str, int] | None = None) -> KafkaFencedRecord:
        """Return a record that only one writer at a time may change, always the same one for a lease.

        Args:
            name: Its name.
            lease: The application and the epoch of the lease that guards it: after it is lost, the record may not be
                changed.
        """
        return self._records.get(name, lease)

    def prepare_lease(self, application: str) -> None:
        """Create the topic of an application's lease, if it is not there."""
        self._leases.prepare(application)

    def acquire_lease(
        self,
        application: str,
        owner: str,
        ttl_ms: int = 30_000,
        *,
        force: bool = False,
        replacing: Lease | None = None,
    ) -> Lease:
        """Take the right to run an application, with a new epoch.

        Raises:
            FencedError: Another instance runs, or has run since ``replacing``; the message names it.
        """
        self._end_presence()
        lease = self._leases.acquire(application, owner, ttl_ms, force=force, replacing=replacing)
        expel(self.clients, application)
        return lease

    def show_as_member(
        self, lease: Lease, topics: Iterable[str], committed: Callable[[], Mapping[TopicPartition, int]] = dict
    ) -> None:
        """Show the application as the member of its group that reads these topics, until the lease is released.

        Args:
            lease: The lease.
            topics: The topics.
            committed: Returns the offsets that stream threads have committed, as far as they are known.
        """
        self._end_presence()
        cluster_counts = self._topics.counts()
        counts = {topic: cluster_counts.get(topic, 0) for topic in topics}
        holds = partial(self._leases.is_newest, lease)
        self._presence = Presence(self.clients, lease.application, counts, holds, committed)

    def membership(self, timeout_s: float = 0.0) -> GroupMembership | None:
        """Return the application's membership of its group; None if it is none, or could not join.

        Args:
            timeout_s: The longest wait while it joins.

        Raises:
            FencedError: A newer instance has taken over the group, or another program has removed the application.
        """
        presence = self._presence
        return None if presence is None else presence.membership(timeout_s)

    @timed("consumer", "heartbeat-ms")
    def renew_lease(self, lease: Lease) -> None:
        """Send a heartbeat; raises FencedError if a newer instance has taken over."""
        self._leases.renew(lease)

    def release_lease(self, lease: Lease) -> None:
        """Release the lease; does nothing if another instance has it."""
        self._end_presence()
        self._leases.release(lease)

    def lease(self, application: str) -> Lease | None:
        """Return the lease of the instance that runs, or last ran, an application."""
        return self._leases.read(application)

    def close(self) -> None:
        """Close its clients; safe to call twice."""
        self.clients.hurry = True
        self._end_presence()
        with self._lock:
            self._ledgers.clear()
        self._records.close()
        self.producers.close()
        self.clients.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return KafkaLog, (self.clients.servers, self.clients.settings)

    def __repr__(self) -> str:
        return f"KafkaLog({self.url!r})"


def group_state(topics: Topics, admin: AdminClient, group: str) -> GroupState:
    """Return the state and members of a group; it is Empty also if there is no such group."""

    def act() -> Any:
        return admin.describe_consumer_groups([group], request_timeout=_REQUEST_S)[group].result(_REQUEST_S)

    try:
        description = topics.ask(act, f"describing group {group!r}")
    except LogError as error:
        if error_code(error) == KafkaError.GROUP_ID_NOT_FOUND:
            return _streams_state(topics, group)
        raise
    if description.state.name == "DEAD":  # it is of another kind, or there is none of that name
        return _streams_state(topics, group)
    members = tuple(_member(each, description.partition_assignor or "") for each in description.members)
    return GroupState(
        _STATES.get(description.state.name, description.state.name), description.partition_assignor or "", members
    )


def _streams_state(topics: Topics, group: str) -> GroupState:
    description = topics.streams_group(group)
    return _NOBODY if description is None else group_state_of(description, topics.counts)


def _member(member: Any, assignor: str) -> GroupMember:
    entries = member.assignment.topic_partitions if member.assignment is not None else ()
    owned = tuple(sorted(TopicPartition(each.topic, each.partition) for each in entries))
    topics = tuple(sorted({tp.topic for tp in owned}))
    host = (member.host or "").removeprefix("/")
    return GroupMember(
        member.member_id, member.group_instance_id or "", member.client_id or "", host, 0, topics, (assignor,), owned
    )


def delete_offsets(topics: Topics, group: str, places: Iterable[TopicPartition]) -> None:
    """Delete some offsets of a group without members.

    The client library cannot delete single offsets: the group is deleted and the others are committed again.
    """
    unwanted = set(places)
    kept = {tp: each for tp, each in topics.committed(group).items() if tp not in unwanted}
    topics.delete_group(group)
    topics.commit_each(group, kept)
