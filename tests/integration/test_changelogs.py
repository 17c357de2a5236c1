"""State of micro-batches from changelog topics alone, of real applications, over the embedded log and over Kafka."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from penstock import Materialized, StreamsBuilder, TimeWindows
from penstock.config import StreamsConfig
from penstock.engines.micro_batches.recovery.lost_checkpoint import lost_checkpoint_of
from penstock.engines.micro_batches.recovery.rebuild import rebuilder_for
from penstock.errors import CheckpointMismatchError, FencedError, MissingSegmentError

from .conftest import BATCHES, Bench, long

WORDS, COUNTS, WINDOWS, APP = "logged-words", "logged-counts", "logged-windows", {"application.id": "logged", **BATCHES}


LOST = {"application.id": "lost", **BATCHES}


def counting(prefix: str = ""):
    builder = StreamsBuilder()
    words = builder.stream(f"{prefix}{WORDS}").group_by(lambda _, value: value)
    words.count(Materialized("word-counts")).to_stream().to(f"{prefix}{COUNTS}")
    seconds = words.windowed_by(TimeWindows.of(1000)).count(Materialized("per-second"))
    seconds.to_stream().map(lambda window, count: (window.key, str(count))).to(f"{prefix}{WINDOWS}")
    return builder.build()


def rebuild(bench: Bench, **options):
    with rebuilder_for(counting(), StreamsConfig(bench.config(**APP))) as rebuilder:
        return [rebuilder.rebuild(sub, partition, **options) for sub, partition in rebuilder.tasks()]


def lose_segments(bench: Bench) -> int:
    lost = [path for path in (bench.root / "state").rglob("*") if path.suffix in (".delta", ".snapshot")]
    for path in lost:
        path.unlink()
    return len(lost)


def loses_and_rebuilds(bench: Bench) -> None:
    for topic in (WORDS, COUNTS, WINDOWS):
        bench.log.create_topic(topic, 2, {"retention.ms": "-1"})
    wanted: Counter[str] = Counter()

    def write(run: int) -> None:
        for partition in range(2):
            rows = [("k", f"w{i % 7}", 100 * i) for i in range(90 + run)]
            wanted.update(value for _, value, _ in rows)
            bench.write(WORDS, rows, partition)

    write(0)
    bench.run(counting(), **APP)
    assert bench.log.topic("logged-word-counts-changelog").config["cleanup.policy"] == "compact"
    assert bench.log.topic("logged-per-second-changelog").config["cleanup.policy"] == "compact,delete"
    assert dict(bench.read("logged-word-counts-changelog", long)) == dict(wanted)
    assert {report.outcome for report in rebuild(bench)} == {"sound"}

    assert lose_segments(bench)
    write(1)
    with pytest.raises(MissingSegmentError, match="penstock state rebuild"):
        bench.run(counting(), **APP)
    planned = rebuild(bench, dry_run=True)
    assert "would be rebuilt" in {report.outcome for report in planned}
    made = rebuild(bench)
    assert {report.task for report in made if report.outcome == "rebuilt"} == {
        report.task for report in planned if report.outcome == "would be rebuilt"
    }
    assert sum(report.rows.get("word-counts", 0) for report in made) == 7
    bench.run(counting(), **APP)
    assert dict(bench.read(COUNTS, long)) == dict(wanted)
    assert dict(bench.read("logged-word-counts-changelog", long)) == dict(wanted)


def test_segments_that_are_lost_are_rebuilt(bench: Bench) -> None:
    loses_and_rebuilds(bench)
    app = bench.app(counting(), **APP)
    app.start()
    try:
        with pytest.raises(FencedError):
            rebuild(bench)
    finally:
        app.close()


def test_segments_that_are_lost_are_rebuilt_over_kafka(kafka_bench: Bench) -> None:
    loses_and_rebuilds(kafka_bench)


def loses_its_checkpoint_and_goes_on(bench: Bench) -> None:
    config = StreamsConfig(bench.config(**LOST))
    for topic in (WORDS, COUNTS, WINDOWS):
        bench.log.create_topic(f"lost-{topic}", 2, {"retention.ms": "-1"})
    wanted: Counter[str] = Counter()

    def run(number: int) -> None:
        for partition in range(2):
            rows = [("k", f"w{i % 7}", 100 * i) for i in range(90 + number)]
            wanted.update(value for _, value, _ in rows)
            bench.write(f"lost-{WORDS}", rows, partition)
        bench.run(counting("lost-"), **LOST)

    run(0)
    run(1)
    written = [len(bench.read(f"lost-{topic}")) for topic in (COUNTS, WINDOWS)]
    shutil.rmtree(bench.root / "state")
    with pytest.raises(CheckpointMismatchError, match=r"penstock state rebuild app\.py:topology --without-checkpoint"):
        bench.run(counting("lost-"), **LOST)
    shutil.rmtree(bench.root / "state")
    with lost_checkpoint_of(counting("lost-"), config) as lost:
        assert {report.outcome for report in lost.make(dry_run=True)} >= {"would be rebuilt"}
        assert sum(report.rows.get("word-counts", 0) for report in lost.make()) == 7
        with pytest.raises(CheckpointMismatchError, match="is there"):
            lost.make()
    bench.run(counting("lost-"), **LOST)  # nothing is new, so nothing is written
    assert [len(bench.read(f"lost-{topic}")) for topic in (COUNTS, WINDOWS)] == written
    run(2)
    assert dict(bench.read(f"lost-{COUNTS}", long)) == dict(wanted)
    assert dict(bench.read("lost-word-counts-changelog", long)) == dict(wanted)
    with rebuilder_for(counting("lost-"), config) as rebuilder:
        found = [rebuilder.rebuild(sub, partition) for sub, partition in rebuilder.tasks()]
    assert {report.outcome for report in found} == {"sound"}


def test_an_application_goes_on_without_its_checkpoint(bench: Bench) -> None:
    loses_its_checkpoint_and_goes_on(bench)


def test_an_application_goes_on_without_its_checkpoint_over_kafka(kafka_bench: Bench) -> None:
    loses_its_checkpoint_and_goes_on(kafka_bench)
