from __future__ import annotations

import sqlite3

import pytest

from eventually import eventually
from penstock.errors import FencedError, InvalidStateError, LogError
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.embedded import membership
from penstock.log.embedded.membership import JoinRequest
from penstock.log.leases import is_fresh
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer

T = [TopicPartition("t", n) for n in range(4)]


def join(log, **more):
    return log.join_group("g", JoinRequest(["t"], **more))


def settle(log, *members):
    """Lets every member look until nothing changes; gives what each holds."""
    held = {each.member: frozenset() for each in members}
    for _ in range(4):
        for me in members:
            share = log.sync_group(me, held[me.member], ["t"])
            held[me.member] = log.sync_group(me, held[me.member] & share.target, ["t"]).owned
    return [set(held[me.member]) for me in members]


@pytest.fixture
def topic(log):
    log.create_topic("t", 4)
    return log


def test_members_share_what_there_is_and_never_own_a_partition_twice(topic):
    first = join(topic)
    assert topic.sync_group(first, [], ["t"]).owned == set(T)
    second = join(topic)
    assert topic.group_state("g").state == "PreparingRebalance"
    assert topic.sync_group(second, [], ["t"]).owned == frozenset()  # nothing is free yet
    share = topic.sync_group(first, T, ["t"])
    assert len(share.target) == 2
    going = max(set(T) - share.target)
    topic.commit_as(first, {going: 5})  # what is to go may still be committed
    before = topic.group_generation("g")
    topic.sync_group(first, share.target, ["t"])
    assert topic.group_generation("g") > before  # the second one has to look again
    assert topic.sync_group(second, [], ["t"]).owned == set(T) - share.target
    assert topic.group_state("g").state == "Stable"
    with pytest.raises(FencedError, match="another member"):
        topic.commit_as(first, {going: 6})
    topic.leave_group(first)
    assert topic.sync_group(second, set(T) - share.target, ["t"]).owned == set(T)
    assert topic.committed_offsets("g") == {going: 5}


def test_silent_members_are_put_out(topic):
    silent = join(topic, session_ms=1_000)
    other = join(topic, session_ms=60_000)
    assert len(settle(topic, silent, other)[0]) == 2
    later = membership_time(topic, silent) + 1_001
    with topic.writing() as connection:
        membership.expire(connection, "g", later)
    assert topic.sync_group(other, [], ["t"]).owned == set(T)
    with pytest.raises(InvalidStateError, match="removed this consumer"):
        topic.heartbeat(silent, ["t"])
    with pytest.raises(FencedError):
        topic.commit_as(silent, {T[0]: 1})


def membership_time(log, me):
    with log.writing() as connection:
        return connection.execute("SELECT heartbeat_ms FROM group_members WHERE member = ?", (me.member,)).fetchone()[0]


def test_members_of_dead_processes_are_out_at_once(topic):
    dead = join(topic)
    with topic.writing() as connection:
        connection.execute("UPDATE group_members SET process_start = 'another' WHERE member = ?", (dead.member,))
    assert topic.group_state("g").members == ()


def test_a_static_member_comes_back_to_its_partitions(topic):
    one, two = join(topic, instance="one"), join(topic, instance="two")
    mine, _ = settle(topic, one, two)
    with topic.writing() as connection:  # its process has died, but its session goes on
        connection.execute("UPDATE group_members SET process_start = 'another' WHERE member = ?", (one.member,))
    generation = topic.group_generation("g")
    back = join(topic, instance="one")
    assert topic.sync_group(back, [], ["t"]).owned == mine
    assert topic.group_generation("g") == generation  # nobody else has to look
    with pytest.raises(FencedError, match="'one'"):
        topic.heartbeat(one, ["t"])


def test_readers_outside_the_group_and_the_end_of_a_group(topic):
    outsider = membership.ConsumerIdentity("g", "")
    topic.commit_as(outsider, {T[0]: 3})
    inside = join(topic)
    with pytest.raises(FencedError, match="1 member"):
        topic.commit_as(outsider, {T[0]: 4})
    with pytest.raises(LogError, match="stop its consumers"):
        topic.delete_group("g")
    with pytest.raises(LogError, match="in common"):
        join(topic, assignors=["sticky"])
    topic.leave_group(inside)
    assert topic.group_state("g").state == "Empty"
    topic.delete_offsets("g", [T[0]])
    assert topic.committed_offsets("g") == {}
    topic.delete_group("g")
    assert topic.groups() == []


def as_metadata(topic, offsets):
    with topic.transaction("") as transaction:
        transaction.commit_with_metadata("g", {tp: OffsetAndMetadata(at) for tp, at in offsets.items()})


def in_transaction(topic, offsets):
    with topic.transaction("") as transaction:
        transaction.commit_as(membership.ConsumerIdentity("g", ""), offsets)


@pytest.mark.parametrize(
    "change",
    [
        lambda topic: topic.commit_offsets("g", {T[0]: 9}),
        lambda topic: topic.commit_offsets("g", {T[0]: 9}, "stream-thread thread-0 epoch 1"),
        lambda topic: topic.commit_as(membership.ConsumerIdentity("g", ""), {T[0]: 9}),
        lambda topic: as_metadata(topic, {T[0]: 9}),
        lambda topic: in_transaction(topic, {T[0]: 9}),
        lambda topic: topic.delete_offsets("g", [T[0]]),
        lambda topic: topic.delete_group("g"),
        join,
    ],
)
def test_only_the_application_changes_the_offsets_of_its_group_while_it_runs(topic, change):
    lease = topic.acquire_lease("g", "here")
    topic.commit_offsets("g", {T[0]: 3}, "mine", lease)
    with pytest.raises(FencedError, match="'g' is the group of an application that runs: here "):
        change(topic)
    assert topic.group_offsets("g") == {T[0]: OffsetAndMetadata(3, "mine")}
    assert topic.group_state("g").members == ()
    topic.release_lease(lease)
    change(topic)
    assert topic.group_offsets("g") != {T[0]: OffsetAndMetadata(3, "mine")} or topic.group_state("g").members


def test_an_application_that_died_may_have_its_offsets_set(topic):
    topic.acquire_lease("g", "here", ttl_ms=0)
    eventually(lambda: not is_fresh(topic.lease("g")))
    topic.commit_offsets("g", {T[0]: 9})
    assert topic.committed_offsets("g") == {T[0]: 9}


def test_the_lease_of_another_application_does_not_help(topic):
    topic.acquire_lease("g", "here")
    with pytest.raises(FencedError, match="the group of an application that runs"):
        topic.commit_offsets("g", {T[0]: 9}, "", topic.acquire_lease("other", "there"))


def test_offsets_of_a_group_with_members_are_set_by_members_alone(topic):
    """Brokers answer UNKNOWN_MEMBER_ID to others."""
    me = join(topic)
    settle(topic, me)
    with pytest.raises(FencedError, match="1 member: only they may commit"):
        topic.commit_offsets("g", {T[0]: 9})
    with pytest.raises(FencedError, match="1 member: only they may commit"):
        as_metadata(topic, {T[0]: 9})
    topic.commit_as(me, {T[0]: 1})
    topic.leave_group(me)
    topic.commit_offsets("g", {T[0]: 9})
    assert topic.committed_offsets("g") == {T[0]: 9}


def test_a_producer_that_commits_no_offsets_writes_beside_the_members_of_a_group(topic, batch):
    """As the tasks of Connect's workers do: the workers are members of the group, and offsets are records."""
    settle(topic, join(topic))
    producer = topic.commit_producer(Writer("g", "task-0", None))
    producer.send([("t", 0, batch(["a"]))])
    assert producer.commit({}) == {T[0]: 1}


def test_partitions_that_are_added_are_shared_out(topic):
    me = join(topic)
    topic.sync_group(me, [], ["t"])
    topic.create_partitions("t", 5)
    assert len(topic.sync_group(me, T, ["t"]).owned) == 5


def test_offsets_in_a_transaction_are_checked_for_their_owner(topic, batch):
    me = join(topic)
    topic.sync_group(me, [], ["t"])
    other = join(topic)
    share = topic.sync_group(me, T, ["t"])
    topic.sync_group(me, share.target, ["t"])
    with pytest.raises(FencedError), topic.transaction("tx") as transaction:  # noqa: PT012 - it is the end that raises
        transaction.append("t", 0, batch([b"x"]))
        transaction.commit_as(me, dict.fromkeys(T, 1))
    assert topic.end_offset("t", 0) == 0
    topic.sync_group(other, [], ["t"])
    with topic.transaction("tx") as transaction:
        transaction.append("t", 0, batch([b"x"]))
        transaction.commit_as(other, dict.fromkeys(set(T) - share.target, 1))
    assert len(topic.committed_offsets("g")) == 2


def test_files_of_earlier_versions_get_the_tables(tmp_path):
    path = tmp_path / "log.db"
    with open_log(str(path)) as log:
        log.create_topic("t", 4)
    connection = sqlite3.connect(path)
    for table in ("group_notes", "groups", "group_members", "group_targets", "group_owners"):
        connection.execute(f"DROP TABLE {table}")
    connection.commit()
    connection.close()
    with open_log(str(path)) as log:
        assert log.sync_group(join(log), [], ["t"]).owned == set(T)
