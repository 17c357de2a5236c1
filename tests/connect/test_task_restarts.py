"""The restart policy: when failed tasks start again."""

import pytest

from penstock.connect.data import SettingError
from penstock.connect.worker.restarts import RestartPolicy, TaskRestarts

TASK = ("reader", 0)
CONFIG = {"restart.policy": "on-failure", "restart.delay.ms": "1000", "restart.delay.max.ms": "4000"}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_waits_double_up_to_their_limit_and_begin_anew_after_a_good_run():
    clock = Clock()
    restarts = TaskRestarts(clock)
    waits = []
    for _ in range(4):
        restarts.note(TASK, "FAILED", CONFIG)
        began = clock.now
        while not restarts.due([TASK]):
            clock.now += 0.5
        waits.append(clock.now - began)
        restarts.note(TASK, "RUNNING", CONFIG)
        clock.now += 1
    assert waits == [1, 2, 4, 4]
    clock.now += 10
    restarts.note(TASK, "FAILED", CONFIG)
    clock.now += 1
    assert restarts.due([TASK]) == [TASK]
    assert restarts.due([TASK]) == []


def test_attempts_are_counted_and_tasks_of_other_workers_forgotten():
    clock = Clock()
    restarts = TaskRestarts(clock)
    limited = {**CONFIG, "restart.max.attempts": "1"}
    for expected in ([TASK], []):
        restarts.note(TASK, "FAILED", limited)
        clock.now += 10
        assert restarts.due([TASK]) == expected
    other = ("writer", 1)
    restarts.note(other, "FAILED", CONFIG)
    assert restarts.due([]) == []
    clock.now += 10
    assert restarts.due([other]) == []


def test_without_a_policy_failed_tasks_stay_and_wrong_settings_are_refused():
    restarts = TaskRestarts(Clock())
    restarts.note(TASK, "FAILED", {})
    assert restarts.due([TASK]) == []
    for name, value in (("restart.policy", "always"), ("restart.delay.ms", "x"), ("restart.max.attempts", "-2")):
        with pytest.raises(SettingError, match=name):
            RestartPolicy.of({"restart.policy": "on-failure", name: value})
