"""Runs recorded cases of the Java library through Penstock and counts how many agree.

    python tests/conformance/run.py DIR [--splits SEED] [--engine driver|spark|continuous] [--cached] [--family F] [-k TEXT]
                                        [--describe] [--json FILE] [-v]

A case passes when its outputs, stores and dropped records are those of Kafka Streams 4.3.1; with ``--describe``, when
the text of ``Topology.describe()`` is. ``--splits`` feeds the inputs in batches of random length instead of one by one,
for cases inside one sub-topology; between sub-topologies the Java driver's own interleaving is part of the record, so
the others run one by one (but by column, not depth first), and the summary says how many. In batches of several records
what is noted of single ones is not compared: changelogs, and the positions of stores. Outputs are compared topic by topic, in order; ``peek`` and
``foreach`` are topics of their own. ``--cached`` runs every case with the default cache and with jumps in time (`derived`).
The last line is ``N passed, M failed``.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from batches import cut, is_split_invariant
from case_queries import answer_to, query_difference
from compare import LeftOut, by_topic, first_difference, sorted_store
from inputs import header_rows, input_bytes, input_headers
from internal_topics import InternalTopics
from interpreter import Interpreted, NotBuilt, check_describe, interpret
from java_errors import CLASSES, ERROR, same_error, seen_rows
from penstock.errors import PenstockError
from things import plain

Case = dict[str, Any]
BYTE_LEVEL = {"headers_store_bytes", "partitioner", "serdes", "windowed_serde"}


def load(source: Path) -> Iterator[Case]:
    """The cases of a folder or of a vendored archive, which all readers of a process share: none changes them."""
    if source.is_file():
        yield from _archived(source)
        return
    if not source.is_dir():
        sys.exit(f"{source} is neither a folder nor an archive of cases")
    for path in sorted(source.glob("*.json")):
        if path.stem not in BYTE_LEVEL:
            yield _named(json.loads(path.read_text()), path.name)


@cache
def _archived(source: Path) -> list[Case]:
    with tarfile.open(source) as archive:
        members = sorted(archive.getmembers(), key=lambda m: m.name)
        texts = [(member.name, extracted.read()) for member in members if (extracted := archive.extractfile(member))]
    return [_named(json.loads(text), name) for name, text in texts]


def _named(case: Case, file: str) -> Case:
    case["file"] = file.removesuffix(".json")
    return case


def expected_rows(case: Case, batch: list[int]) -> list[Any]:
    """What the inputs of this batch caused; errors left out."""
    return [row for i in batch if i < len(case["outputs"]) for row in case["outputs"][i] if "error" not in row]


def expected_error(case: Case) -> dict[str, Any]:
    """The error of the input that made the Java application fail."""
    return next(row for row in case["outputs"][-1] if "error" in row)


def fails_at(case: Case) -> int | None:
    """The input that made the Java application fail."""
    last = len(case["outputs"]) - 1
    return last if last >= 0 and any("error" in row for row in case["outputs"][last]) else None


def run_driver(case: Case, splits: int | None) -> tuple[str | None, bool]:
    """The first difference (None: agrees), and whether the inputs were really split."""
    try:
        run = interpret(case)
    except PenstockError as error:
        if "build_error" in case:
            return same_error(case["build_error"], error), False
        raise
    cached = int(case["config"].get("statestore.cache.max.bytes", 0)) > 0  # then a batch gives one change per key
    one_task = len(run.topology.subtopologies()) == 1 and not run.topology.internal_topics
    split = splits is not None and one_task and not cached and is_split_invariant(case)
    batches = cut(case["inputs"], splits if split else None)
    return _drive(case, run, batches, by_column=splits is not None), split


def _drive(case: Case, run: Interpreted, batches: list[list[int]], *, by_column: bool) -> str | None:
    from penstock.testing import TopologyTestDriver

    deadly = fails_at(case)
    batches = [[i for i in batch if i < len(case["outputs"])] for batch in batches]
    if deadly is not None:  # a batch that fails gives nothing, so the failing input stands alone
        batches = [
            part for b in batches for part in ([i for i in b if i != deadly], [deadly] if deadly in b else []) if part
        ]
    config = {"application.id": "app", **run.config}
    is_split = any(len(batch) > 1 for batch in batches)
    internal = InternalTopics(case) if "internal_topics" in case and not is_split else None
    try:
        driver = run.running["driver"] = TopologyTestDriver(
            run.topology, config, batch_size=1_000_000, by_column=by_column, changelogs=internal is not None
        )
    except PenstockError as error:
        if "build_error" in case:
            return same_error(case["build_error"], error)
        raise
    if "build_error" in case:
        return f"the topology should be refused: {case['build_error']['message']}"
    if run.refused is not None:
        driver.refuse(run.refusal)
    try:
        for batch in batches:
            run.side.clear()
            if "query" in case["inputs"][batch[0]]:
                answer = answer_to(driver, case["inputs"][batch[0]]["query"])
                recorded = case["outputs"][batch[0]][0]
                found = query_difference(f"query {batch[0]}", recorded, answer, has_position=not is_split)
                if found:
                    return found
                continue
            failed = False
            try:
                for i in batch:
                    feed(driver, run, case["inputs"][i])
                driver.flush()
            except (Exception, CLASSES[ERROR]) as error:  # noqa: BLE001 - a failure is a result here
                if batch != [deadly]:
                    return f"input {batch}: {type(error).__name__}: {error}"
                failed = True
                if found := same_error(expected_error(case), error) or _same_sent(case, driver, run):
                    return found
            if batch == [deadly] and not failed:
                return f"input {deadly}: should have failed with {case['outputs'][deadly][0]['error']}"
            expected = by_topic(expected_rows(case, batch))
            actual = seen_rows(expected, by_topic(written(driver, run)), driver.wall_clock_ms)
            found = first_difference(f"outputs of inputs {batch[0]}..{batch[-1]}", expected, actual)
            if internal is not None and not found:
                found = internal.difference(batch, driver)
            if found:
                return found
        if deadly is None:
            for store, rows in case["stores"].items():
                found = first_difference(f"store {store}", rows, sorted_store(run.dump_store(driver, store)))
                if found:
                    return found
        if "wrapped" in case and (found := first_difference("wrapped", case["wrapped"], run.wrapped)):
            return found
        return first_difference("dropped records", case["dropped_records"], driver.dropped_records)
    finally:
        driver.close()


def feed(driver: Any, run: Interpreted, record: dict[str, Any]) -> None:
    if "advance_wall_clock_ms" in record:
        driver.advance_wall_clock_time(record["advance_wall_clock_ms"])
        return
    topic = record["topic"]
    key, value = input_bytes(record, run.serdes[topic])
    driver.pipe_raw(topic, key, value, record["timestamp"], input_headers(record))


def written(driver: Any, run: Interpreted) -> list[dict[str, Any]]:
    rows = list(run.side)
    produced = driver.produced_topic_names()
    for topic in sorted(run.serdes):
        if topic not in produced:
            continue
        key_serde, value_serde = run.serdes[topic]
        while (record := driver.read_raw(topic)) is not None:
            key, value = key_serde.deserialize(record.key), value_serde.deserialize(record.value)
            row = {"topic": topic, "key": plain(key), "value": plain(value), "timestamp": record.timestamp}
            if record.headers:
                row["headers"] = header_rows(record.headers)
            rows.append(row)
    return rows


def _same_sent(case: Case, driver: Any, run: Interpreted) -> str | None:
    """What the failing input had sent by then to the topics of the case, which its error does not take back."""
    sent = expected_error(case).get("sent")
    if sent is None:
        return None
    expected = by_topic([row for row in sent if row["topic"] in run.serdes])
    actual = []
    for record in driver.sent_before_failure():
        if record.topic in run.serdes:
            row = {"topic": record.topic, "key": plain(record.key), "value": plain(record.value)}
            row["timestamp"] = record.timestamp
            actual.append({**row, "headers": header_rows(record.headers)} if record.headers else row)
    return first_difference("sent", expected, seen_rows(expected, by_topic(actual), driver.wall_clock_ms))


def run_case(case: Case, args: argparse.Namespace) -> tuple[str | None, bool]:
    """The first difference, and whether inputs were split."""
    try:
        if args.describe:
            return (check_describe(case) if "describe" in case else None), False
        if args.engine == "spark":
            from spark_engine import run_case as on_spark

            return on_spark(case), False
        if args.engine == "continuous":
            from continuous_engine import run_case as in_a_thread

            return in_a_thread(case, args.splits)
        return run_driver(case, args.splits)
    except LeftOut:
        raise
    except NotBuilt as error:
        return f"not built: {error}", False
    except Exception as error:
        if args.verbose > 1:
            raise
        return f"{type(error).__name__}: {error}", False


def outcome_of(case: Case, args: argparse.Namespace) -> tuple[str | None, bool] | LeftOut | None:
    """The first difference and whether inputs were split; why the case is left out; None if it has no cached form."""
    if args.cached:
        from derived import derived

        changed = derived(case)
        if changed is None:
            return None
        case = changed
    try:
        return run_case(case, args)
    except LeftOut as reason:
        return reason


def _outcomes(cases: list[Case], args: argparse.Namespace) -> Iterator[tuple[str | None, bool] | LeftOut | None]:
    """The outcomes in order: on Spark a few cases at a time, as they wait for its planning more than they compute."""
    if args.engine != "spark":
        yield from (outcome_of(case, args) for case in cases)
        return
    from spark_engine import in_parallel

    yield from in_parallel(lambda case: outcome_of(case, args), cases)


def report(results: dict[str, Counter[str]]) -> None:
    """A line a family, then the closing line."""
    width = max((len(f) for f in results), default=0)
    for family, counts in sorted(results.items()):
        print(f"{family:{width}}  {counts['passed']:4d} passed  {counts['failed']:4d} failed")
    passed = sum(c["passed"] for c in results.values())
    failed = sum(c["failed"] for c in results.values())
    print(f"{passed} passed, {failed} failed")


def main(argv: list[str] | None = None, on_result: Callable[[Case, str | None], None] | None = None) -> int:
    """Runs the cases; 0 when all pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, metavar="DIR", help="a folder of cases, or an archive of them")
    parser.add_argument("--splits", type=int, metavar="SEED", help="feed the inputs in random batches")
    parser.add_argument("--engine", choices=["driver", "spark", "continuous"], default="driver")
    parser.add_argument("--cached", action="store_true", help="with the default cache, and with jumps in time")
    parser.add_argument("--family", help="only this family")
    parser.add_argument("-k", metavar="TEXT", help="only cases whose file name contains this")
    parser.add_argument("--describe", action="store_true", help="compare the description text instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every case's result there")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="print the first difference; -vv raises")
    args = parser.parse_args(argv)
    logging.getLogger("penstock").setLevel(logging.ERROR)  # the cases drop records on purpose
    results: dict[str, Counter[str]] = defaultdict(Counter)
    details: dict[str, dict[str, Any]] = {}
    left_out: list[str] = []
    splits = 0
    cases = [
        case
        for case in load(args.source)
        if (not args.family or case["family"] == args.family) and (not args.k or args.k in case["file"])
    ]
    for case, outcome in zip(cases, _outcomes(cases, args), strict=True):
        if outcome is None:
            continue
        if isinstance(outcome, LeftOut):
            left_out.append(f"{case['file']}: {outcome}")
            continue
        difference, split = outcome
        splits += split
        results[case["family"]]["failed" if difference else "passed"] += 1
        details[case["file"]] = {"family": case["family"], "passed": difference is None, "difference": difference}
        if difference and args.verbose:
            print(f"FAILED {case['file']}: {difference}")
        if on_result:
            on_result(case, difference)
    if args.splits is not None:
        print(f"{splits} of {len(details)} cases ran in random batches, the others one by one")
    if left_out:
        print(f"{len(left_out)} left out", *left_out, sep="\n  ")
    if args.json:
        args.json.write_text(json.dumps(details, indent=1) + "\n")
    report(results)
    return 1 if any(c["failed"] for c in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
