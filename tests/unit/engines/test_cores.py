from __future__ import annotations

from py4j.protocol import Py4JNetworkError

from penstock.engines.spark.task_slots import CoreWatch


def test_cores_that_come_and_stay_are_planned_with() -> None:
    now, there = [0.0], [2]
    cores = CoreWatch(lambda: there[0], lambda: now[0])
    assert cores.plan() == 2

    def have_come(seconds: int, useful: int = 100) -> list[int]:
        """When the answer is yes."""
        found = []
        for _ in range(seconds):
            now[0] += 1
            if cores.have_come(useful):
                found.append(int(now[0]))
        return found

    assert have_come(30) == []
    there[0] = 3
    assert have_come(9) == []
    there[0] = 8  # the others have come too
    assert len(have_come(20)) >= 1
    assert cores.plan() == 8
    there[0] = 2
    assert have_come(60) == []  # tasks run in turns
    there[0] = 16
    assert have_come(60, useful=8) == []  # there are not more tasks


def test_a_jvm_that_is_gone_is_for_the_query_to_tell() -> None:
    now, there = [0.0], [4]

    def look() -> int:
        if not there[0]:
            raise Py4JNetworkError("Answer from Java side is empty")
        return there[0]

    cores = CoreWatch(look, lambda: now[0])
    assert cores.plan() == 4
    there[0] = 0
    for _ in range(10):
        now[0] += 6
        assert not cores.have_come(100)
    assert cores.plan() == 4
    assert CoreWatch(look).plan() == 1
