"""Errors in groups by class, node and line of code: bounded, whatever texts and classes records bring about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.console.app_view import Picture
from penstock.console.error_groups import EXAMPLES, MINUTES, MOST_GROUPS, ErrorGroup, ErrorGroups, GroupExample
from penstock.console.recorder import Recorder, Watched
from penstock.engines.spark.progress import BatchProgress
from penstock.errors import PenstockError, ProcessingError
from penstock.metrics.task_counts import OTHER_REASONS, Cause, Example
from penstock.runtime.error_reporting import line_of

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
PARSE = Cause("MAP", "ValueError", "parse", "app.py", 17)


def groups_of(*rows: tuple[Cause, int, int]) -> ErrorGroups:
    """Groups with so many records of a cause at a time."""
    found = ErrorGroups()
    for number, (cause, count, now_ms) in enumerate(rows):
        found.add("0_0", cause, count, [Example("in", 0, number, f"text {number}")], now_ms)
    return found


def test_ten_thousand_texts_of_one_line_are_one_group_with_the_newest_records() -> None:
    found = groups_of(*((PARSE, 1, number + 1) for number in range(10_000)))
    (group,) = found.rows(10_000)
    assert (group["records"], group["first_ms"], group["newest_ms"]) == (10_000, 1, 10_000)
    assert [each["offset"] for each in group["examples"]] == list(range(10_000 - EXAMPLES, 10_000))


def test_counts_by_minute_are_those_of_the_last_hour() -> None:
    found = groups_of(*((PARSE, 2, minute * MINUTE) for minute in range(1, 180, 2)))
    group = ErrorGroup.of_row(found.rows(180 * MINUTE)[0])
    now = 179 * MINUTE + 5
    assert group.by_minute(now) == [0, 2] * (MINUTES // 2)
    assert group.by_minute(now + 30 * MINUTE) == [0, 2] * (MINUTES // 4) + [0] * (MINUTES // 2)
    assert len(group.minutes) <= MINUTES
    assert group.records == 180


def test_a_group_for_each_class_node_and_line() -> None:
    others = [PARSE._replace(node="FILTER"), PARSE._replace(reason="KeyError"), PARSE._replace(line=18)]
    assert len(groups_of(*((each, 1, 1) for each in (PARSE, *others, PARSE))).rows(2)) == 4


def test_classes_without_end_go_into_other_reasons_and_a_new_line_is_still_seen() -> None:
    found = groups_of(*((PARSE._replace(reason=f"E{number}"), 1, number) for number in range(1_000)), (PARSE, 1, 1_000))
    rows = found.rows(1_001)
    assert len(rows) == MOST_GROUPS
    assert sum(row["records"] for row in rows) == 1_001
    assert rows[-1]["kind"] == "ValueError"
    (others,) = [row for row in rows if row["kind"] == OTHER_REASONS]
    assert (others["node"], others["records"], others["function"]) == ("MAP", 1_001 - (MOST_GROUPS - 1), "")


def test_more_operators_than_groups_stay_bounded() -> None:
    found = groups_of(*((PARSE._replace(node=f"N{n}", reason=f"E{r}"), 1, n) for n in range(300) for r in range(2)))
    assert len(found.rows(301)) == MOST_GROUPS


def test_texts_names_and_the_document_are_bounded() -> None:
    found = ErrorGroups()
    for number in range(1_000):
        cause = Cause("N" * 9_999, f"{number}" + "E" * 9_999, "f" * 9_999, "p" * 9_999, number)
        found.add("0_0", cause, 1, [Example("t" * 9_999, 0, n, "x" * 99_999) for n in range(9)], number)
    assert len(json.dumps(found.rows(1_000))) < 600_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"newest_ms": "soon"},
        {"node": ["MAP"]},
        {"minutes": [["x", 1]]},
        {"examples": [{"zz": 1}]},
        {"examples": [{"time_ms": "x", "task": "0_0"}]},
        {"more": 1},
    ],
)
def test_rows_that_another_hand_has_written_are_left_out(wrong: dict[str, Any]) -> None:
    (row,) = groups_of((PARSE, 1, 1)).rows(2)
    found = ErrorGroups()
    found.recall([{**row, **wrong}])
    found.recall(wrong)
    found.recall(None)
    assert found.rows(2) == []
    found.recall([row])
    assert found.rows(2) == [row]


def test_the_same_record_is_one_example() -> None:
    found = groups_of()
    for start in range(3):  # an application that is started again fails for the same record
        found.add("0_0", PARSE, 1, [Example("in", 0, 7, "x"), Example("in", 0, 8, "y")], start * MINUTE)
        found.add("0_0", PARSE, 1, [Example("", -1, -1, "of no record")], start * MINUTE)
    examples = found.rows(3 * MINUTE)[0]["examples"]
    assert [(each["offset"], each["said"]) for each in examples] == [(7, "x"), (8, "y"), (-1, "of no record")]
    assert {each["time_ms"] for each in examples} == {2 * MINUTE}


def test_groups_are_kept_over_restarts_for_a_day() -> None:
    before = groups_of((PARSE, 3, MINUTE), (PARSE._replace(line=18), 1, 2 * MINUTE))
    after = ErrorGroups()
    after.recall(json.loads(json.dumps(before.rows(3 * MINUTE))))
    after.add("0_0", PARSE, 1, [], DAY)
    assert [(row["line"], row["records"]) for row in after.rows(DAY + MINUTE)] == [(18, 1), (17, 4)]
    assert [(row["line"], row["records"]) for row in after.rows(DAY + 2 * MINUTE)] == [(17, 4)]


@pytest.mark.parametrize("rows", [3, [3], [{}], [{"node": "a"}], None, [{"node": "a", "minutes": 1, "examples": []}]])
def test_what_another_version_has_kept_is_left_out(rows: Any) -> None:
    found = ErrorGroups()
    found.recall(rows)
    assert found.rows(0) == []
    assert Picture({"errors": rows}).errors == [] if rows is not None else True


def batch(*causes: list[Any]) -> BatchProgress:
    return BatchProgress(0, 1, 0, len(causes), 0, tasks=({"task": "0_1", "counts": {"causes": list(causes)}},))


def failure() -> ProcessingError:
    return ProcessingError(
        "MAP: parse (app.py:3) raised ValueError: no number: 12x, for the record {'value': '12x'}", node="MAP",
        kind="ValueError", function="parse", file="app.py", line=3, raised=("number", "app.py", 17), task="0_1",
        topic="in", partition=1, offset=8, said="no number: 12x",
    )  # fmt: skip


def test_the_record_that_ends_an_application_is_in_its_group_and_each_end_is_counted(tmp_path: Path) -> None:
    for start in range(3):
        recorder = Recorder("shop", lambda: "ERROR")
        recorder.begin(Watched(str(tmp_path), tuple, dict, {}, dict))
        recorder.take(batch(["MAP", "ValueError", "number", "app.py", 17, 1, [["in", 1, 7, "x"]]]), batch_record(start))
        recorder.failure = failure()
        recorder.close()
    picture = Picture(recorder.document())
    (group,) = picture.errors
    assert (group.line, group.records, group.ended) == (17, 6, 3)
    assert group.newest == GroupExample(group.newest.time_ms, "0_1", "in", 1, 8, "no number: 12x")  # type: ignore[union-attr]
    assert picture.failure is not None
    found = {name: picture.failure[name] for name in ("kind", "node", "task", "function", "line", "defined", "record")}
    assert found == {
        "kind": "ValueError", "node": "MAP", "task": "0_1", "function": "number", "line": 17,
        "defined": "parse (app.py:3)", "record": ["in", 1, 8],
    }  # fmt: skip


def batch_record(number: int) -> Any:
    from penstock.engines.application_figures import batch_record as made

    return made(BatchProgress(number, 1, 0, 1, 0), 1_790_000_000_000 + number, ())


def through_json(text: str) -> Any:
    return json.loads(text)


def test_the_line_is_that_of_the_user_and_not_of_a_library() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        through_json("x")
    name, file, line = line_of(None, caught.value)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert (name, file) == ("through_json", __file__)
    assert lines[line - 1].strip() == "return json.loads(text)"


def test_an_error_raised_from_another_has_the_line_of_the_first_that_is_of_the_user() -> None:
    error = PenstockError("of a library")
    try:
        through_json("x")
    except ValueError as cause:
        error.__cause__ = cause
    assert line_of(None, error)[0] == "through_json"
    assert line_of(None, PenstockError("nothing of the user")) == ("", "", 0)
