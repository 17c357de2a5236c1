"""Nexmark's queries over a broker, Penstock beside Kafka Streams in Java and Flink's SQL, each answer compared with Polars'.

python bench/nexmark/run.py [--n 1000000] [--rate 10000] [--queries q0 q5] [--peers penstock kstreams flink] [--merge] [--conf KEY=VALUE]

A backlog of events (persons, auctions, bids; JSON) is read from topics of four partitions by two threads, exactly once, all else
at its default. Rates are events of the query's topics; suite_run.py says how they are measured, report.py shows the ratios. With --merge
and --queries a run goes on where another one has ended: the results are written after each query.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import suite_run
from nexmark import answers, events, queries, report


class Nexmark:
    """Events in their topics, and the queries over them."""

    name = "nexmark"
    not_in: Mapping[str, Sequence[str]] = {"flink": ("q6",)}
    made_anew: Mapping[str, Sequence[str]] = {}

    def __init__(self, count: int, rate: int) -> None:
        self._events = events.Events(count, rate=rate)
        self._frames = self._events.frames()

    def load(self, bootstrap: str) -> None:
        for topic, frame in self._frames.items():
            rows = events.records(topic, frame).iter_rows()
            suite_run.write(
                bootstrap, f"nexmark-{topic}", ((key.encode(), value.encode(), -1, at) for key, value, at in rows)
            )

    def records(self, workload: str) -> int:
        return sum(self._frames[topic].height for topic in queries.TOPICS[workload] if topic != "side")

    def environment(self, workload: str) -> dict[str, str]:  # noqa: ARG002 - the same for all
        longest = {"LONGEST_AUCTION_MS": str(self._events.longest_auction_ms)}
        return longest | {f"TOPIC_{name.upper()}": f"nexmark-{name}" for name in self._frames}

    def check(self, workload: str, written: suite_run.Written) -> tuple[int, str]:
        found = written.text
        if written.application.startswith("nexmark-flink-"):
            found = answers.listed(workload, found)
        return answers.compared(workload, answers.ANSWERS[workload](self._frames), found)


def main() -> None:
    parser = suite_run.parser(
        __doc__, list(queries.QUERIES), n=1_000_000, one="query", peers=("penstock", "kstreams", "flink")
    )
    parser.add_argument("--rate", type=int, default=10_000, help="events in a second of event time")
    given = suite_run.arguments(parser)
    results = suite_run.main(Nexmark(given.n, given.rate), given, rate=given.rate)
    print(report.markdown(results))


if __name__ == "__main__":
    main()
