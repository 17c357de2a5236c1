from __future__ import annotations

import pytest

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, FencedError, LogError, UnknownTopicError
from penstock.groups.admin import GroupAdmin
from penstock.groups.application import ApplicationReset
from penstock.groups.resets import Target, choose, places_of, read_offsets_file
from penstock.log import Consumer
from penstock.log.base import TopicPartition
from penstock.log.open import open_log

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def log(tmp_path):
    import pyarrow as pa

    with open_log(str(tmp_path / "log.db")) as opened:
        opened.create_topic("t", 2)
        for partition in range(2):
            columns = {"timestamp": list(range(0, 1000, 100)), "value": [b"x"] * 10}
            opened.append("t", partition, pa.RecordBatch.from_pydict(columns))
        opened.delete_records("t", 1, 2)
        opened.commit_offsets("g", {A: 5, B: 6})
        yield opened


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (Target.earliest(), [0, 2]),
        (Target.latest(), [10, 10]),
        (Target.current(), [5, 6]),
        (Target.offset(1), [1, 2]),
        (Target.offset(99), [10, 10]),
        (Target.shifted(-5), [0, 2]),
        (Target.shifted(3), [8, 9]),
        (Target.at(450), [5, 5]),
        (Target.at(5000), [10, 10]),
        (Target.ago("300ms", now_ms=1000), [7, 7]),
    ],
)
def test_where_offsets_go(log, target, wanted):
    admin = GroupAdmin(log)
    moves = admin.plan_reset("g", target)
    assert [move.after for move in moves] == wanted
    assert log.committed_offsets("g") == {A: 5, B: 6}
    admin.reset("g", moves)
    assert list(log.committed_offsets("g").values()) == wanted
    assert [move.lag for move in moves] == [10 - after for after in wanted]


def test_topics_and_files_say_which(log, tmp_path):
    admin = GroupAdmin(log)
    assert [(m.partition, m.before) for m in admin.plan_reset("new", Target.latest(), ["t:1"])] == [(1, None)]
    with pytest.raises(ConfigError, match="no partition 7"):
        places_of(log, ["t:7"])
    with pytest.raises(ConfigError, match="orders:0,2"):
        places_of(log, ["t:x"])
    with pytest.raises(UnknownTopicError):
        places_of(log, ["none"])
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,3\n")
    assert read_offsets_file(file) == {A: 3}
    assert [(m.partition, m.after) for m in admin.plan_reset("g", Target.of_file(file))] == [(0, 3)]
    file.write_text("t,0\n")
    with pytest.raises(ConfigError, match="topic,partition,offset"):
        Target.of_file(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        Target.of_file(tmp_path / "none")
    with pytest.raises(ConfigError, match="once"):
        choose([Target.earliest(), Target.latest()])
    with pytest.raises(LogError, match="there is no group"):
        admin.plan_reset("none", Target.earliest())


def test_live_members_and_running_applications_are_left_alone(log):
    admin = GroupAdmin(log)
    moves = admin.plan_reset("g", Target.earliest())
    with Consumer(log, group="g", client_id="reader") as consumer:
        consumer.subscribe("t")
        consumer.poll()
        found = admin.describe("g")
        assert (found.state, found.owner("t", 0).client) == ("Stable", "reader")
        for act in (
            lambda: admin.reset("g", moves),
            lambda: admin.delete("g"),
            lambda: admin.delete_offsets("g", ["t"]),
        ):
            with pytest.raises(FencedError, match="1 member"):
                act()
    lease = log.acquire_lease("g", "the app")
    assert [(each.state, each.members, each.application) for each in admin.groups()] == [("Stable", 1, True)]
    assert admin.describe("g").members[0].member == "the app"
    with pytest.raises(FencedError, match="runs already"):
        admin.reset("g", moves)
    log.release_lease(lease)
    admin.reset("g", moves)
    assert admin.describe("g").state == "Empty"
    assert admin.delete_offsets("g", ["t:1"]) == [B]
    assert log.committed_offsets("g") == {A: 0}
    admin.delete("g")
    assert admin.groups() == []
    with pytest.raises(LogError):
        admin.describe("g")


def test_an_application_is_reset_as_a_whole(log, tmp_path):
    config = StreamsConfig({"application.id": "g", "bootstrap.servers": log.url, "state.dir": str(tmp_path / "state")})
    for topic in ("g-sums-changelog", "g-two-sums-changelog", "g-out", "g-x-repartition"):
        log.create_topic(topic)
    log.commit_offsets("g-two", {A: 1})
    (tmp_path / "state" / "g" / "checkpoint").mkdir(parents=True)
    lease = log.acquire_lease("g", "the app")
    with log.transaction("g-0", lease.epoch) as transaction:
        transaction.put_ledger("g", "0_0", 4)
    tool = ApplicationReset(log, config)
    plan = tool.plan(Target.earliest())
    assert plan.topics == ("g-sums-changelog", "g-x-repartition")
    assert [move.after for move in plan.moves] == [0, 2]
    with pytest.raises(FencedError, match="runs already"):
        tool.run(plan)
    assert log.ledger("g") == {"0_0": 4}
    tool.run(plan, force=True)
    assert log.ledger("g") == {}
    assert log.committed_offsets("g") == {A: 0, B: 2}
    assert not (tmp_path / "state" / "g" / "checkpoint").exists()
    assert {topic.name for topic in log.topics()} == {"t", "g-out", "g-two-sums-changelog"}
    with pytest.raises(FencedError):
        log.renew_lease(lease)
    with pytest.raises(UnknownTopicError, match="not an internal topic"):
        tool.plan(Target.earliest(), internal=["t"])
