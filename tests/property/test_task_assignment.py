from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.threads.assignment import Holders, assign_tasks
from penstock.topology.plan.plan import TaskId

TASKS = st.sets(st.builds(TaskId, st.integers(0, 4), st.integers(0, 20)))
THREADS = st.dictionaries(
    st.sampled_from([f"thread-{i}" for i in range(8)]), st.sampled_from(["h1", "h2", "h3"]), min_size=1
)


def counts(found):
    return [len(tasks) for tasks in found.values()]


def holders(found, threads):
    on = {task: thread for thread, tasks in found.items() for task in tasks}
    return Holders(on, {task: [threads[thread]] for task, thread in on.items()})


@given(TASKS, THREADS, THREADS, TASKS)
def test_each_task_has_one_thread_and_the_threads_have_the_same_number(tasks, threads, others, earlier) -> None:
    before = holders(assign_tasks(earlier, others), others)
    found = assign_tasks(tasks, threads, before)
    assert sorted(task for held in found.values() for task in held) == sorted(tasks)
    assert set(found) == set(threads)
    assert max(counts(found)) - min(counts(found)) <= 1


@given(TASKS, THREADS)
def test_nothing_moves_when_nothing_changes(tasks, threads) -> None:
    found = assign_tasks(tasks, threads)
    assert assign_tasks(tasks, threads, holders(found, threads)) == found


@given(TASKS, TASKS, THREADS)
def test_no_task_moves_when_tasks_are_added(tasks, more, threads) -> None:
    before = assign_tasks(tasks, threads)
    after = assign_tasks(tasks | more, threads, holders(before, threads))
    for thread, held in before.items():
        room = len(after[thread])
        assert len(set(held) - set(after[thread])) <= max(0, len(held) - room)


@given(TASKS, THREADS)
def test_a_new_thread_takes_only_its_share(tasks, threads) -> None:
    before = assign_tasks(tasks, threads)
    after = assign_tasks(tasks, {**threads, "thread-new": "h9"}, holders(before, threads))
    moved = sum(task not in before.get(thread, ()) for thread, held in after.items() for task in held)
    assert moved <= len(after["thread-new"]) + len(threads)


def test_tasks_follow_their_replicas_when_threads_start_elsewhere() -> None:
    tasks = [TaskId(0, 0), TaskId(0, 1)]
    before = Holders({tasks[0]: "thread-0", tasks[1]: "thread-1"}, {tasks[0]: ["h1"], tasks[1]: ["h2"]})
    found = assign_tasks(tasks, {"thread-0": "h2", "thread-1": "h1"}, before)
    assert found == {"thread-0": (tasks[1],), "thread-1": (tasks[0],)}


def test_the_partitions_of_a_subtopology_are_spread() -> None:
    found = assign_tasks([TaskId(s, p) for s in range(2) for p in range(2)], {"a": "h", "b": "h"})
    assert {thread: [str(t) for t in held] for thread, held in found.items()} == {
        "a": ["0_0", "1_0"],
        "b": ["0_1", "1_1"],
    }
