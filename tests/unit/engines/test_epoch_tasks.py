"""The driver's side of an epoch: who gets which tasks, as threads come, catch up and go."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from epoch_support import EPOCH, Driver, plan_of_tasks

from penstock.engines.threads.assignment import StateHolders
from penstock.engines.threads.hosting.control_channel import Member
from penstock.engines.threads.hosting.crashes import is_passing
from penstock.engines.threads.hosting.epoch import Epoch
from penstock.engines.threads.hosting.epoch_checks import require_core_for_dataframes
from penstock.engines.threads.hosting.epoch_job import ContinuousJob
from penstock.engines.threads.hosting.task_sharing import PlacedTasks
from penstock.errors import ConfigError, FencedError
from penstock.log.open import open_log
from penstock.log.thread_clients import Writer
from penstock.topology.plan.plan import PhysicalPlan, TaskId


def test_a_thread_that_comes_back_gets_tasks_when_it_can_take_them() -> None:
    driver = Driver(2, 4)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "a", pid=2)
    for name in ("thread-0", "thread-1"):
        driver.done(name)
    driver.gone("thread-0")
    assert driver.epoch.lost() == []
    assert driver.epoch.lost(lambda state: state.pid == 1) == ["thread-0"]
    driver.epoch.fenced("thread-0")
    assert driver.tasks("thread-1")[0] == ["0_0", "0_1", "0_2", "0_3"]
    assert driver.epoch.take_crashes() == [("thread-0", frozenset({TaskId(0, 0), TaskId(0, 2)}))]
    assert driver.epoch.take_crashes() == []
    driver.done("thread-1")
    driver.hello("thread-0", "a", pid=3)
    assert driver.tasks("thread-0") == ([], [])
    assert len(driver.tasks("thread-1")[0]) == 4  # which it goes on with, as long as the other one starts
    driver.done("thread-0")
    assert len(driver.tasks("thread-1")[0]) == 2
    driver.done("thread-1")
    assert len(driver.tasks("thread-0")[0]) == 2


def test_a_thread_that_comes_back_too_late_is_asked_to_end_as_all_others() -> None:
    driver = Driver(3, 3)
    for number in range(3):
        driver.hello(f"thread-{number}", "a", pid=number)
    for number in range(3):
        driver.done(f"thread-{number}")
    driver.gone("thread-1")
    assert driver.epoch.lost(lambda state: state.pid == 1) == ["thread-1"]
    driver.hello("thread-1", "a", pid=1)  # its connection is made again, and its tasks are lost already
    driver.epoch.fenced("thread-1")
    assert driver.epoch.error is not None
    assert [{"stop": True} in driver.sent[f"thread-{number}"] for number in range(3)] == [True] * 3


@pytest.mark.parametrize("pid", [1, 3])  # Spark's workers may run the next attempt in the same process
def test_a_thread_that_comes_back_while_it_is_fenced_waits_until_it_is(tmp_path: Path, pid: int) -> None:
    driver = Driver(2, 4)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "a", pid=2)
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        log: Any = opened
        log.create_topic("out")
        lease = log.acquire_lease("app", "test")
        before = log.commit_producer(Writer("app", "thread-0", lease.epoch))
        for name in ("thread-0", "thread-1"):
            driver.done(name)
        driver.gone("thread-0")
        driver.look(1.0)
        assert driver.epoch.lost() == ["thread-0"]
        sent = len(driver.sent["thread-0"])
        driver.hello("thread-0", "a", pid, attempt=1)
        assert (
            len(driver.sent["thread-0"]) == sent
        )  # no tasks, and so no producer, before the driver has fenced the old
        log.fence_threads("app", ["thread-0"], lease.epoch)
        driver.epoch.fenced("thread-0")
        assert driver.epoch.error is None
        assert driver.tasks("thread-0") == ([], [])
        after = log.commit_producer(Writer("app", "thread-0", lease.epoch))
        driver.done("thread-0")
        driver.done("thread-1")
        assert len(driver.tasks("thread-0")[0]) == 2
        for producer, is_fenced in ((before, True), (after, False)):
            producer.send([("out", 0, pa.RecordBatch.from_pydict({"value": [b"x"]}))])
            with pytest.raises(FencedError) if is_fenced else nullcontext():
                producer.commit({})


def test_a_thread_that_comes_back_gets_no_tasks_while_another_lost_one_is_fenced_before_it() -> None:
    driver = Driver(3, 6)
    for number in range(3):
        driver.hello(f"thread-{number}", "a", pid=number)
    for number in range(3):
        driver.done(f"thread-{number}")
    driver.gone("thread-0")  # a machine has lost power, with two threads
    driver.gone("thread-1")
    driver.look(1.0)
    assert driver.epoch.lost() == ["thread-0", "thread-1"]
    driver.hello("thread-1", "a", pid=7, attempt=1)
    sent = len(driver.sent["thread-1"])
    driver.epoch.fenced("thread-0")
    assert len(driver.sent["thread-1"]) == sent  # its producer would be made before its name is fenced, or after
    driver.epoch.fenced("thread-1")
    assert driver.epoch.error is None
    driver.done("thread-1")
    driver.done("thread-2")
    assert [len(driver.tasks(f"thread-{number}")[0]) for number in (1, 2)] == [3, 3]


def test_an_epoch_fails_if_a_thread_that_was_fenced_has_only_lost_its_connection() -> None:
    driver = Driver(2, 4)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "a", pid=2)
    for name in ("thread-0", "thread-1"):
        driver.done(name)
    driver.gone("thread-0")
    driver.look(1.0)
    assert driver.epoch.lost() == ["thread-0"]
    driver.hello("thread-0", "a")
    driver.epoch.fenced("thread-0")
    assert driver.epoch.error is not None
    assert is_passing(driver.epoch.error)
    assert driver.sent["thread-1"][-1] == {"stop": True}


def test_a_thread_that_comes_back_before_it_is_taken_for_lost_goes_on() -> None:
    driver = Driver(2, 4)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "a", pid=2)
    for name in ("thread-0", "thread-1"):
        driver.done(name)
    driver.gone("thread-0")
    driver.hello("thread-0", "a")
    driver.look(1.0)
    assert driver.epoch.lost() == []
    assert driver.epoch.is_running


def test_tasks_are_assigned_when_all_threads_are_there() -> None:
    driver = Driver(2, 3)
    driver.hello("thread-0", "a")
    assert "thread-0" not in driver.sent
    driver.hello("thread-1", "a")
    assert (driver.tasks("thread-0"), driver.tasks("thread-1")) == ((["0_0", "0_2"], []), (["0_1"], []))
    assert not driver.epoch.is_running
    driver.done("thread-0")
    driver.done("thread-1")
    assert driver.epoch.is_running


def test_standbys_are_on_the_other_machine_and_take_over_once_the_lost_thread_is_fenced() -> None:
    driver = Driver(2, 2, standbys=1)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "b")
    assert (driver.tasks("thread-0"), driver.tasks("thread-1")) == ((["0_0"], ["0_1"]), (["0_1"], ["0_0"]))
    driver.done("thread-0")
    driver.done("thread-1")
    assert driver.epoch.standbys() == {"0_0": {"host-b": 0}, "0_1": {"host-a": 0}}
    driver.gone("thread-0")
    assert driver.epoch.lost() == []  # a broken connection may come back
    driver.look(1.0)
    assert driver.epoch.lost() == ["thread-0"]
    assert driver.tasks("thread-1") == (["0_1"], ["0_0"])  # not before it is fenced
    driver.epoch.fenced("thread-0")
    assert driver.tasks("thread-1") == (["0_0", "0_1"], [])
    driver.done("thread-1")
    assert driver.epoch.is_running


def test_a_thread_that_spark_starts_elsewhere_is_warmed_before_tasks_move_to_it() -> None:
    driver = Driver(2, 2, acceptable_lag=10, probing_s=5.0)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "b")
    driver.done("thread-0")
    driver.done("thread-1")
    driver.gone("thread-1")
    driver.look(1.0)
    driver.epoch.fenced("thread-1")
    driver.done("thread-0")
    assert driver.tasks("thread-0") == (["0_0", "0_1"], [])
    driver.hello("thread-1", "c", pid=2)
    assert driver.tasks("thread-0")[0] == ["0_0", "0_1"]  # it goes on meanwhile
    assert driver.tasks("thread-1") == ([], [])
    driver.done("thread-1")
    assert driver.tasks("thread-1") == ([], ["0_1"])
    driver.done("thread-1", lag=500)
    driver.look(6.0)
    assert driver.tasks("thread-1") == ([], ["0_1"])
    driver.done("thread-1", lag=3)
    driver.look(6.0)
    assert driver.tasks("thread-0") == (["0_0"], [])
    assert driver.tasks("thread-1") == ([], ["0_1"])  # not before the other has let go
    driver.done("thread-0")
    assert driver.tasks("thread-1") == (["0_1"], [])


def test_a_report_of_before_the_list_does_not_release_a_task() -> None:
    driver = Driver(2, 2, acceptable_lag=10, probing_s=5.0)
    held = {TaskId(0, 0): ["a"], TaskId(0, 1): ["a"]}
    placed = PlacedTasks(driver.epoch.job, StateHolders({}, held))
    driver.epoch = Epoch(driver.epoch.job, driver._send, placed, lambda: driver.now)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "b")
    assert driver.tasks("thread-0") == (["0_0", "0_1"], [])
    driver.done("thread-1")
    early = driver.wanted("thread-0")["revision"]
    driver.done("thread-0")
    driver.look(6.0)
    assert driver.tasks("thread-0") == (["0_0"], [])
    driver.done("thread-0", revision=early, owned=["0_0"])
    assert driver.tasks("thread-1")[0] == []
    driver.done("thread-0")
    assert driver.tasks("thread-1")[0] == ["0_1"]


def test_a_thread_that_comes_late_gets_a_share_without_a_new_epoch(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(2, 2)
    driver.hello("thread-0", "a")
    with caplog.at_level(logging.WARNING, "penstock"):
        driver.look(16.0)
    assert "1 of 2 stream threads" in caplog.text
    driver.done("thread-0")
    driver.hello("thread-1", "a")
    assert driver.tasks("thread-0")[0] == ["0_0", "0_1"]  # as long as the other one starts
    driver.done("thread-1")
    assert driver.tasks("thread-0")[0] == ["0_0"]
    driver.done("thread-0")
    assert driver.tasks("thread-1")[0] == ["0_1"]


def test_too_few_machines_for_standbys_are_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(2, 2, standbys=1)
    with caplog.at_level(logging.WARNING, "penstock"):
        driver.hello("thread-0", "a")
        driver.hello("thread-1", "a")
        driver.hello("thread-1", "a", pid=7)
    assert caplog.text.count("2 standby tasks have no place: num.standby.replicas is 1, and there is 1 machine") == 1


def test_the_tasks_of_a_larger_plan_come_to_the_threads_that_run() -> None:
    driver = Driver(2, 2)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "a")
    driver.done("thread-0")
    driver.done("thread-1")
    job = ContinuousJob(plan_of_tasks(4), b"", "", {}, "log", EPOCH, 2, "")
    driver.epoch.extend(job)
    assert (driver.tasks("thread-0")[0], driver.tasks("thread-1")[0]) == (["0_0", "0_2"], ["0_1", "0_3"])
    plans = [each["plan"] for each in driver.sent["thread-0"] if "plan" in each]
    assert [plan["partitions"] for plan in plans] == [{"in": 4}]
    assert not driver.epoch.is_running


def test_threads_with_the_same_tasks_follow_a_plan_with_more_topics_too() -> None:
    driver = Driver(2, 2)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "a")
    driver.done("thread-0")
    driver.done("thread-1")
    assert driver.epoch.is_running
    before = {name: driver.wanted(name) for name in ("thread-0", "thread-1")}
    sub = replace(plan_of_tasks(2).subtopologies[0], external_topics=("in", "more"))
    plan = PhysicalPlan("app", (sub,), {"in": 2, "more": 2}, ())
    driver.epoch.extend(ContinuousJob(plan, b"", "", {}, "log", EPOCH, 2, ""))
    for name, list_before in before.items():
        assert driver.wanted(name) == {**list_before, "revision": list_before["revision"] + 1}
        assert not driver.epoch.is_running  # not before each of them reads the new topic
        driver.done(name)
    assert driver.epoch.is_running


def test_an_epoch_that_gets_no_core_says_so(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(2, 4)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            driver.look(9.0)  # 36 s
    said = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in said] == [
        "Spark has started none of 2 stream threads in 18 s",
        "Spark has started none of 2 stream threads in 36 s",
    ]
    assert "num.stream.threads" in said[0]
    assert "processing.mode=micro_batch" in said[0]
    driver.hello("thread-0", "a")
    assert len(driver.tasks("thread-0")[0]) == 4


def test_dataframes_need_a_core_beside_the_threads() -> None:
    require_core_for_dataframes(2)
    with pytest.raises(ConfigError, match="has one core") as caught:
        require_core_for_dataframes(1)
    assert "processing.mode=micro_batch" in str(caught.value.hint)


def test_threads_that_spark_has_started_are_waited_for_on_a_busy_machine(caplog: pytest.LogCaptureFixture) -> None:
    driver = Driver(2, 4)
    driver.launched = 2
    driver.hello("thread-0", "a")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            driver.look(9.0)  # 45 s
        assert "thread-0" not in driver.sent
        assert not caplog.records
        driver.hello("thread-1", "a", pid=2)
    assert len(driver.tasks("thread-0")[0]) == len(driver.tasks("thread-1")[0]) == 2
    assert not caplog.records


def test_threads_get_the_fronts_of_the_others_once_all_have_reported() -> None:
    driver = Driver(2, 4)
    driver.hello("thread-0", "a")
    driver.hello("thread-1", "a", pid=2)
    for name in ("thread-0", "thread-1"):
        driver.done(name)

    def tell(name: str, **fronts: int) -> None:
        driver.epoch.on_message(Member(name, EPOCH), {"pace": {group[1:]: front for group, front in fronts.items()}})

    def told(name: str) -> list[Any]:
        return [each["pace"] for each in driver.sent[name] if "pace" in each]

    tell("thread-0", _0=100, _3=7)
    assert (told("thread-0"), told("thread-1")) == ([None], [])
    tell("thread-1")
    assert (told("thread-0"), told("thread-1")) == ([None, {}], [{0: 100, 3: 7}])
    tell("thread-0", _0=200)
    tell("thread-0", _0=200)
    assert (told("thread-0"), told("thread-1")) == ([None, {}], [{0: 100, 3: 7}, {0: 200}])
    driver.hello("thread-1", "a", pid=2)  # it was not connected: what was sent may be lost
    assert told("thread-1") == [{0: 100, 3: 7}, {0: 200}, {0: 200}]
    driver.gone("thread-0")
    assert driver.epoch.lost(lambda state: True) == ["thread-0"]
    driver.epoch.fenced("thread-0")
    assert told("thread-1")[-1] == {}
