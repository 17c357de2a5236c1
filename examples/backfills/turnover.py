"""The turnover by item and day, for schedulers: what is new, or some days once more.

    python examples/backfills/turnover.py logs.db                         # what is new since the last run
    python examples/backfills/turnover.py logs.db 2026-11-01 2026-11-03   # these days, counted anew

Both end when they have processed the records that were there when they began. Both can be repeated after a failure: the
application goes on where its last commit was, and nothing is counted twice. `airflow_dag.py` and `dagster_job.py` call
these functions.
"""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from penstock import (
    Consumed,
    KafkaStreams,
    Materialized,
    Produced,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
    agg,
)
from penstock.log import Consumer, TopicPartition, open_log

SALES, RESULTS = "sales", "turnover-by-day"
LATER = timedelta(days=1)  # how long a day takes records behind its end, by the time of the records


def topology_of(first: date | None = None, last: date | None = None) -> Topology:
    """Return the topology; with days, only their results are sent."""

    def is_wanted(key: Windowed[str], _: float) -> bool:
        day = day_of(key)
        return (first is None or day >= first) and (last is None or day <= last)

    builder = StreamsBuilder()
    (
        builder.stream(SALES, Consumed(key_serde="string", value_serde="json"))
        .group_by_key()
        .windowed_by(TimeWindows.of("1 day", grace=LATER))
        .aggregate(agg.sum("price"), materialized=Materialized("turnover"))
        .to_stream()
        .filter(is_wanted)
        .select_key(lambda key, _: f"{day_of(key)} {key.key}")
        .to(RESULTS, Produced(key_serde="string", value_serde="double"))
    )
    return builder.build()


def day_of(key: Windowed[str]) -> date:
    return datetime.fromtimestamp(key.window.start / 1000, UTC).date()


def settings(log: str, application: str) -> dict[str, object]:
    return {
        "application.id": application,
        "bootstrap.servers": log,
        "processing.mode": "micro_batch",  # Spark plans and shuffles; its cores are free when the run ends
        "spark.master": "local[2]",  # or that of a cluster; then set penstock.checkpoint.location, too
    }


def create_topics(log: str) -> None:
    """Create the topic of the results: readers need the last one of each key, so compaction removes those before."""
    with open_log(log) as opened:
        if all(topic.name != RESULTS for topic in opened.topics()):
            opened.create_topic(RESULTS, partitions=2, config={"cleanup.policy": "compact"})


def catch_up(log: str) -> None:
    """Process what has come since the last run."""
    create_topics(log)
    KafkaStreams(topology_of(), settings(log, "turnover")).run(until="latest")


def backfill(log: str, first: date, last: date) -> None:
    """Count some days anew, beside the application that does so live: it has a name and a state of its own.

    A day is sent under the same keys as before, so whoever reads the last value of a key has the new one.
    """
    create_topics(log)
    application = f"turnover-{first}-{last}"
    begin_at(log, application, datetime.combine(first, time(), UTC))
    KafkaStreams(topology_of(first, last), settings(log, application)).run(until="latest")
    # Without this, a second backfill of the same days would find that all is done.
    KafkaStreams(topology_of(first, last), settings(log, application)).reset()


def begin_at(log: str, application: str, start: datetime) -> None:
    """Commit the offsets of the first records from a time on, for an application that has not run yet."""
    with open_log(log) as opened:
        (partitions,) = [topic.partitions for topic in opened.topics() if topic.name == SALES]
        if application in opened.groups():
            return  # a run that failed: it goes on where it was
        with Consumer(opened, group=application) as consumer:
            places = [TopicPartition(SALES, number) for number in range(partitions)]
            consumer.assign(places)
            ends = consumer.end_offsets()
            found = consumer.offsets_for_times(dict.fromkeys(places, start))
            consumer.commit({place: ends[place] if at is None else at.offset for place, at in found.items()})


if __name__ == "__main__":
    if len(sys.argv) == 2:
        catch_up(sys.argv[1])
    elif len(sys.argv) == 4:
        backfill(sys.argv[1], date.fromisoformat(sys.argv[2]), date.fromisoformat(sys.argv[3]))
    else:
        sys.exit(f"usage: {Path(sys.argv[0]).name} LOG [FIRST-DAY LAST-DAY]")
