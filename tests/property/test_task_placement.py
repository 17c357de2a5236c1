"""Placements of tasks, standbys and warm-ups, and the steps that lead from one to the next."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.engines.threads.assignment import Ownership, PlacementLimits, Spot, StateHolders, place_tasks
from penstock.topology.plan.plan import TaskId

TASKS = st.sets(st.builds(TaskId, st.integers(0, 3), st.integers(0, 8)), min_size=1)
SPOTS = [Spot(f"h{n // 2}", f"p{n}") for n in range(6)]
THREADS = st.dictionaries(st.sampled_from([f"thread-{i}" for i in range(7)]), st.sampled_from(SPOTS), min_size=1)
LIMITS = st.builds(PlacementLimits, st.integers(0, 3), st.integers(1, 4))


@st.composite
def situations(draw):
    tasks = draw(TASKS)
    threads = draw(THREADS)
    stateful = {task for task in tasks if task.subtopology != 2}
    places = st.sets(st.sampled_from([spot.place for spot in SPOTS]))
    caught_up = draw(st.dictionaries(st.sampled_from(sorted(tasks)), places))
    before = draw(st.dictionaries(st.sampled_from(sorted(tasks)), st.sampled_from([*sorted(threads), "gone"])))
    return tasks, stateful, threads, StateHolders(before, caught_up), draw(LIMITS)


@given(situations())
def test_every_task_runs_once_and_copies_lie_in_different_places(situation) -> None:
    tasks, stateful, threads, held, limits = situation
    found = place_tasks(tasks, stateful, threads, held, limits)
    assert sorted(task for each in found.active.values() for task in each) == sorted(tasks)
    assert set(found.active) == set(found.standby) == set(found.warmup) == set(threads)
    assert sum(map(len, found.warmup.values())) <= limits.warmups
    places = {spot.place for spot in threads.values()}
    standbys = 0
    for task in tasks:
        copies = [
            threads[name].place
            for part in (found.active, found.warmup, found.standby)
            for name, each in part.items()
            if task in each
        ]
        assert len(copies) == len(set(copies))
        own = sum(task in each for each in found.standby.values())
        warming = sum(task in each for each in found.warmup.values())
        assert own == (min(limits.standbys, len(places) - 1 - warming) if task in stateful else 0)
        standbys += own
    assert found.missing == limits.standbys * len(stateful) - standbys


@given(situations())
def test_a_task_runs_where_its_state_is_as_long_as_such_a_place_is_there(situation) -> None:
    tasks, stateful, threads, held, limits = situation
    found = place_tasks(tasks, stateful, threads, held, limits)
    here = {spot.place for spot in threads.values()}
    for task, thread in found.thread_of().items():
        ready = here & set(held.caught_up.get(task, ()))
        if task in stateful and ready:
            assert threads[thread].place in ready


@given(situations())
def test_once_warm_ups_have_caught_up_the_tasks_are_balanced_and_nothing_moves_again(situation) -> None:
    tasks, stateful, threads, held, limits = situation
    for _ in range(len(tasks) + 1):
        found = place_tasks(tasks, stateful, threads, held, limits)
        caught_up = {
            task: {*held.caught_up.get(task, ()), threads[name].place} for task, name in found.thread_of().items()
        }
        for name, each in [*found.warmup.items(), *found.standby.items()]:
            for task in each:
                caught_up[task].add(threads[name].place)
        held = StateHolders(found.thread_of(), caught_up)
        if not found.has_warmups:
            break
    assert not found.has_warmups
    counts = [len(each) for each in place_tasks(tasks, stateful, threads, held, limits).active.values()]
    assert max(counts) - min(counts) <= 1
    again = place_tasks(tasks, stateful, threads, held, limits)
    assert place_tasks(tasks, stateful, threads, StateHolders(again.thread_of(), held.caught_up), limits) == again


def test_standbys_lie_on_other_machines_first() -> None:
    threads = {"a": Spot("h1", "p1"), "b": Spot("h1", "p2"), "c": Spot("h2", "p3")}
    task = TaskId(0, 0)
    found = place_tasks([task], [task], threads, StateHolders({task: "a"}, {task: ["p1"]}), PlacementLimits(1))
    assert found.standby == {"a": (), "b": (), "c": (task,)}


def test_threads_of_one_folder_have_no_standbys() -> None:
    threads = {"a": Spot("h1", "p1"), "b": Spot("h1", "p1")}
    tasks = [TaskId(0, 0), TaskId(0, 1)]
    found = place_tasks(tasks, tasks, threads, limits=PlacementLimits(1))
    assert found.standby == {"a": (), "b": ()}
    assert found.missing == 2


def test_no_more_warm_ups_at_once_than_the_setting_says() -> None:
    tasks = [TaskId(0, n) for n in range(10)]
    held = StateHolders(dict.fromkeys(tasks, "a"), {task: ["p1"] for task in tasks})
    threads = {"a": Spot("h1", "p1"), "b": Spot("h2", "p2")}
    found = place_tasks(tasks, tasks, threads, held, PlacementLimits(0, 3))
    assert len(found.active["a"]) == 10
    assert len(found.warmup["b"]) == 3


@given(st.data(), st.lists(situations(), min_size=1, max_size=5))
def test_a_task_never_has_two_owners_whatever_the_threads_do(data, steps) -> None:
    """Threads that lag behind, as they do: what a thread runs is never run by another."""
    owners, running, done = Ownership(), {}, {}
    inbox: dict[str, list] = {}
    present: set[str] = set()

    def take(lists) -> None:
        for name, each in lists.items():
            inbox.setdefault(name, []).append(each)

    for tasks, stateful, threads, held, limits in steps:
        for name in present - set(threads):
            owners.fenced(name)
            running.pop(name, None)
            inbox.pop(name, None)
        present = set(threads)
        take(owners.aim(place_tasks(tasks, stateful, threads, held, limits), threads))
        for _ in range(data.draw(st.integers(0, 6))):
            waiting = sorted(name for name in present if inbox.get(name))
            if not waiting:
                break
            name = data.draw(st.sampled_from(waiting))
            each = inbox[name].pop(0)
            running[name], done[name] = set(each.active), each.revision
            held_by_all = [task for found in running.values() for task in found]
            assert len(held_by_all) == len(set(held_by_all))
            take(owners.reported(name, done[name], running[name]))
    while waiting := sorted(name for name in present if inbox.get(name)):
        each = inbox[waiting[0]].pop(0)
        running[waiting[0]] = set(each.active)
        held_by_all = [task for found in running.values() for task in found]
        assert len(held_by_all) == len(set(held_by_all))
        take(owners.reported(waiting[0], each.revision, running[waiting[0]]))
    assert owners.is_settled
    assert {task for found in running.values() for task in found} == steps[-1][0]
