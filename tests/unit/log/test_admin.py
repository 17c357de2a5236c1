from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.application.locations import Locations
from penstock.engines.application.planning import plan_for
from penstock.engines.application.stored_plans import resumable_plan
from penstock.engines.reset import ApplicationReset
from penstock.errors import CheckpointMismatchError, ConfigError, FencedError, LogError, UnknownTopicError
from penstock.log import Consumer
from penstock.log.base import TopicPartition
from penstock.log.groups.group_admin import GroupAdmin
from penstock.log.groups.reset_targets import Target, choose, places_of, read_offsets_file
from penstock.log.open import open_log
from penstock.state.checkpoint import mark_removed, read_plan, write_document
from penstock.state.lmdb_replicas.lmdb_replica import replica_place

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
    with pytest.raises(ConfigError, match="one target"):
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


def ran(log, config, **stored):
    """Leaves behind what a run would: a checkpoint with a plan, a replica, topics, a ledger; gives the checkpoint."""
    places = Locations.of(config)
    checkpoint, application = Path(places.checkpoint), config["application.id"]
    plan = {"application": application, "stores": {"sums": {}}, "internal_topics": {"x-repartition": 1}, **stored}
    write_document(places.checkpoint, "plan.json", json.dumps({"plan": plan, "fingerprints": ["f"]}))
    for name in ("state/0_0/4.delta", "spark/commits/4", "spark/metadata", "instances/a.json"):
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text("")
    replica_place(places.replicas, application, places.checkpoint, "0_0")[1].mkdir(parents=True)
    with log.transaction(f"{application}-0", log.acquire_lease(application, "the app").epoch) as transaction:
        transaction.put_ledger(application, "0_0", 4)
    return checkpoint


def test_an_application_is_reset_as_a_whole(log, tmp_path):
    config = StreamsConfig({"application.id": "g", "bootstrap.servers": log.url, "state.dir": str(tmp_path / "state")})
    for topic in ("g-sums-changelog", "g-two-sums-changelog", "g-out", "g-x-repartition"):
        log.create_topic(topic)
    checkpoint = ran(log, config)
    other = Path(Locations.of(config).replicas) / "0_0-0123456789ab"  # of the same name over another log
    other.mkdir()
    tool = ApplicationReset(log, config)
    plan = tool.plan(Target.earliest())
    assert plan.topics == ("g-sums-changelog", "g-x-repartition")
    assert plan.kept == ("g-two-sums-changelog",)
    assert [move.after for move in plan.moves] == [0, 2]
    with pytest.raises(FencedError, match="runs already"):
        tool.run(plan)
    assert log.ledger("g") == {"0_0": 4}
    lease = log.lease("g")
    assert tool.run(plan, force=True) == (*plan.places[1:], *plan.topics, str(checkpoint))
    assert log.ledger("g") == {}
    assert log.committed_offsets("g") == {A: 0, B: 2}
    assert not checkpoint.exists()
    assert other.exists()
    assert {topic.name for topic in log.topics()} == {"t", "g-out", "g-two-sums-changelog"}
    with pytest.raises(FencedError):
        log.renew_lease(lease)
    assert tool.run(tool.plan(Target.latest())) == ()  # once more: nothing is there, nothing is called deleted
    with pytest.raises(UnknownTopicError, match="not an internal topic"):
        tool.plan(Target.earliest(), internal=["t"])


def test_a_reset_leaves_what_is_not_the_applications_own(log, tmp_path):
    own = {"application.id": "orders", "bootstrap.servers": log.url, "state.dir": str(tmp_path / "state")}
    folder = tmp_path / "project"
    config = StreamsConfig({**own, "penstock.checkpoint.location": str(folder)})
    ran(log, config)
    foreign = ["plan.json.bak", "notes.txt", "data/sales.csv", "spark/jobs/job.py", "state/of-the-union.txt"]
    for name in foreign:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("mine")
    log.create_topic("orders-sums-changelog")
    log.create_topic("orders-penstock-formats")
    log.create_topic("orders-enrichment-totals-changelog")  # of an application that this log does not know
    log.release_lease(log.lease("orders"))
    tool = ApplicationReset(log, config)
    plan = tool.plan(Target.earliest())
    wrong = StreamsConfig({**own, "penstock.checkpoint.location": str(tmp_path / "elsewhere")})
    with pytest.raises(CheckpointMismatchError, match=r"has run .*none at .*elsewhere"):
        ApplicationReset(log, wrong).plan(Target.earliest())
    assert tool.run(plan)[-3:] == ("orders-penstock-formats", "orders-sums-changelog", str(folder))
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()) == sorted(foreign)
    assert log.topic("orders-enrichment-totals-changelog")


def test_a_lost_checkpoint_is_reset_when_told_and_another_applications_never(log, tmp_path):
    config = StreamsConfig({"application.id": "g", "bootstrap.servers": log.url, "state.dir": str(tmp_path / "state")})
    checkpoint = ran(log, config)
    log.release_lease(log.lease("g"))
    log.create_topic("g-sums-changelog")
    shutil.rmtree(checkpoint)
    with pytest.raises(CheckpointMismatchError, match="--without-checkpoint"):
        ApplicationReset(log, config).plan(Target.earliest())
    builder = StreamsBuilder()
    builder.stream("t").group_by_key().count(Materialized("sums")).to_stream().to("g-out")
    told = ApplicationReset(log, config, builder.build(), without_checkpoint=True)
    plan = told.plan(Target.earliest())
    assert plan.topics == ("g-sums-changelog",)
    assert str(checkpoint) not in told.run(plan)
    assert log.ledger("g") == {}
    stolen = StreamsConfig({**config.given, "application.id": "h", "penstock.checkpoint.location": str(checkpoint)})
    ran(log, config)
    with pytest.raises(CheckpointMismatchError, match="is of application 'g'"):
        ApplicationReset(log, stolen).plan(Target.earliest())


def test_a_reset_that_was_cut_off_is_not_continued(log, tmp_path):
    config = StreamsConfig({"application.id": "g", "bootstrap.servers": log.url, "state.dir": str(tmp_path / "state")})
    checkpoint = str(ran(log, config))
    mark_removed(checkpoint, read_plan(checkpoint))
    builder = StreamsBuilder()
    builder.stream("t").to("g-out")
    topology = builder.build()
    with pytest.raises(CheckpointMismatchError, match="was interrupted"):
        resumable_plan(checkpoint, {}, plan_for(topology, config, log), log)
