"""Consumers of a group that come, go, fall silent and crash: nobody shares a partition, no record is lost or doubled.

Doubled means: processed twice although the first one's commit was accepted.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import FencedError
from penstock.log import Consumer, RebalanceListener
from penstock.log.base import TopicPartition
from penstock.log.open import open_log

NAMES = st.sampled_from("abcd")
FOREVER_MS = 10**9


class Forgets(RebalanceListener):
    """What was not committed of a partition that goes is for its next owner to process."""

    def __init__(self, pending, name):
        self.pending, self.name = pending, name

    def on_revoked(self, partitions):
        gone = {place.partition for place in partitions}
        self.pending[self.name] = [place for place in self.pending[self.name] if place[0] not in gone]

    def on_lost(self, partitions):
        self.on_revoked(partitions)


class GroupModel(RuleBasedStateMachine):
    @initialize(assignor=st.sampled_from(["range", "roundrobin", "sticky"]), static=st.booleans())
    def open(self, assignor, static):
        self.log = open_log("memory://")
        self.log.create_topic("t", 3)
        self.assignor, self.static = assignor, static
        self.consumers = {}
        self.pending = {}  # what a consumer has polled since its last commit
        self.done = {}  # (partition, offset) -> how often its processing was committed
        self.written = [0, 0, 0]

    def teardown(self):
        if hasattr(self, "log"):
            for consumer in self.consumers.values():
                consumer.close()
            self.log.close()

    @rule(partition=st.integers(0, 2), count=st.integers(1, 5))
    def produce(self, partition, count):
        self.log.append("t", partition, pa.RecordBatch.from_pydict({"value": [b"x"] * count}))
        self.written[partition] += count

    @rule(name=NAMES)
    def start(self, name):
        if name not in self.consumers:
            self.consumers[name] = Consumer(
                self.log, group="g", assignors=self.assignor, heartbeat_interval_ms=FOREVER_MS,
                group_instance_id=name if self.static else "",
            )  # fmt: skip
            self.consumers[name].subscribe("t", listener=Forgets(self.pending, name))
            self.pending[name] = []

    @rule(name=NAMES, count=st.integers(1, 4))
    def poll(self, name, count):
        if name not in self.consumers:
            return
        found = self.consumers[name].poll(max_records=count)
        self.pending[name] += [(record.partition, record.offset) for record in found]

    @rule(name=NAMES)
    def commit(self, name):
        if name not in self.consumers:
            return
        try:
            self.consumers[name].commit()
        except FencedError:
            self.pending[name] = []
            return
        for place in self.pending[name]:
            self.done[place] = self.done.get(place, 0) + 1
        self.pending[name] = []

    @rule(name=NAMES)
    def stop(self, name):
        if name in self.consumers:
            self.consumers.pop(name).close()

    @rule(name=NAMES)
    def fall_silent(self, name):
        """Its session ends, but it does not know yet."""
        if name in self.consumers:
            member = self.consumers[name].group_metadata().member
            with self.log.writing() as connection:
                connection.execute("UPDATE group_members SET heartbeat_ms = 0 WHERE member = ?", (member,))
            self.log.group_state("g")

    @rule()
    def all_sessions_end(self):
        """Also those of static members that stopped: they keep their partitions until then (KIP-345)."""
        with self.log.writing() as connection:
            connection.execute("UPDATE group_members SET heartbeat_ms = 0")
        self.log.group_state("g")

    @rule(name=NAMES)
    def crash(self, name):
        """It is gone without a word; others find out."""
        if name in self.consumers:
            self.fall_silent(name)
            self.consumers.pop(name)._client._stop.set()

    @invariant()
    def nobody_commits_twice_and_offsets_are_what_was_done(self):
        if not hasattr(self, "log"):
            return
        assert all(times == 1 for times in self.done.values())
        committed = self.log.committed_offsets("g")
        for partition in range(3):
            wanted = {(partition, offset) for offset in range(committed.get(TopicPartition("t", partition), 0))}
            assert wanted == {place for place in self.done if place[0] == partition}

    @invariant()
    def nobody_shares(self):
        if not hasattr(self, "log"):
            return
        owned = [place for each in self.log.group_state("g").members for place in each.owned]
        assert len(owned) == len(set(owned))

    @rule()
    def everything_is_read_in_the_end(self):
        for name in list(self.consumers):
            self.crash(name)
        self.all_sessions_end()
        self.start("a")
        for _ in range(60):
            self.poll("a", 4)
            self.commit("a")
        assert len(self.done) == sum(self.written)


TestGroups = GroupModel.TestCase
TestGroups.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
