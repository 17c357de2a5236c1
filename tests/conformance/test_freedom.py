"""What the comparison of micro-batches with recorded cases may leave free: no more than what comes late and meets something."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from freedom import free_names
from interpreter import interpret
from run import load

CASES = {case["file"]: case for case in load(Path(__file__).with_name("cases.tar.xz"))}
STREAM = {"id": "s", "op": "stream", "topic": "in"}
BY_CHARACTER = {"id": "g", "op": "groupBy", "in": "s", "fn": {"name": "first_char"}}
COUNT = {"id": "c", "op": "count", "in": "g", "store": "counts"}
CHANGES = {"id": "t", "op": "toStream", "in": "c"}


def free(name: str, *, cached: bool = False) -> set[str]:
    return free_names(interpret(CASES[name]).topology, cached=cached)


def free_in(*operators: dict[str, Any], cached: bool = False) -> set[str]:
    topics = {name: {"key": "string", "value": "string"} for name in ("in", "out")}
    case = {"topics": topics, "config": {}, "inputs": [], "topology": list(operators)}
    return free_names(interpret(case).topology, cached=cached)


def to_out(stream: str) -> dict[str, Any]:
    return {"id": f"to-{stream}", "op": "to", "in": stream, "topic": "out"}


@pytest.mark.parametrize("cached", [False, True])
def test_the_counts_behind_a_repartition_are_not_free(cached: bool) -> None:
    assert free_in(STREAM, BY_CHARACTER, COUNT, CHANGES, to_out("t"), cached=cached) == set()


def test_without_a_cache_only_tasks_that_feed_themselves_leave_anything_free() -> None:
    families = {case["family"] for name, case in CASES.items() if free(name)}
    assert families == {"fuzz"}


def test_records_that_come_back_beside_others_are_free_where_they_meet_them() -> None:
    assert free("fuzz__s140") == {"out4"}  # merged; the sessions of what came back are not
    assert free("fuzz__s15") == {"COGROUPKSTREAM-AGGREGATE-STATE-STORE-0000000006", "out2"}


def test_changes_that_a_cache_merges_are_free_where_each_one_is_folded() -> None:
    assert free("07-tables__table-cached__s2", cached=True) == {"c", "out"}  # neither the tables nor their join
    by_value = {"id": "h", "op": "groupBy", "in": "t", "fn": {"name": "value"}}
    again = {"id": "d", "op": "count", "in": "h", "store": "counts-of-counts"}
    more = {"id": "u", "op": "toStream", "in": "d"}
    operators = (STREAM, BY_CHARACTER, COUNT, CHANGES, by_value, again, more, to_out("u"))
    assert free_in(*operators, cached=True) == {"counts-of-counts-repartition", "counts-of-counts", "out"}
    assert free_in(*operators) == set()


def test_changes_that_a_cache_holds_back_are_free_where_they_meet_prompt_records() -> None:
    merged = {"id": "m", "op": "merge", "in": ["t", "s"]}
    operators = (STREAM, {**BY_CHARACTER, "op": "groupByKey"}, COUNT, CHANGES)
    assert free_in(*operators, merged, to_out("m"), cached=True) == {"out"}
    assert free_in(*operators, to_out("t"), to_out("s"), cached=True) == {"out"}
    assert free_in(*operators, to_out("t"), cached=True) == set()
    assert free_in(*operators, merged, to_out("m")) == set()


@pytest.mark.parametrize(
    ("op", "more"),
    [
        ("filter", {"fn": {"name": "value_not_null"}}),
        ("mapValues", {"fn": {"name": "to_string"}}),
        ("selectKey", {"fn": {"name": "value"}}),
    ],
)
def test_what_a_stream_makes_of_single_changes_is_free_behind_a_cache(op: str, more: dict[str, Any]) -> None:
    operators = (STREAM, BY_CHARACTER, COUNT, CHANGES, {"id": "x", "op": op, "in": "t", **more}, to_out("x"))
    assert free_in(*operators, cached=True) == {"out"}
    assert free_in(*operators) == set()


def test_joins_of_tables_are_never_free() -> None:
    for name in ("06-table-joins__fk-inner__s1", "06-table-joins__fk-with-key__s1", "07-tables__table-cached__s1"):
        assert free(name) == set()
    assert free("06-table-joins__fk-inner__s1", cached=True) == set()
