"""The assignment of tasks to the members of a streams group."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.log.streams_groups.assignor import AssignedMember, AssignmentRules, assign
from penstock.log.streams_groups.description import Assignment, GroupTask

MEMBERS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(7)]), st.sampled_from(["p", "q", "r"]), min_size=1
)


def tasks_of(sizes: list[int]) -> list[GroupTask]:
    return [GroupTask(str(sub), number) for sub, size in enumerate(sizes) for number in range(size)]


def after(members: dict[str, str], before: dict[str, Assignment]) -> dict[str, AssignedMember]:
    return {name: AssignedMember(process, before=before.get(name, Assignment())) for name, process in members.items()}


@given(MEMBERS, MEMBERS, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 2))
def test_every_task_has_one_owner_and_shares_are_equal(
    first: dict[str, str], second: dict[str, str], sizes: list[int], replicas: int
) -> None:
    tasks = tasks_of(sizes)
    rules = AssignmentRules(num_standby_replicas=replicas)
    stateful = frozenset({"0", "1"})
    before = assign(tasks, stateful, after(first, {}), rules)
    found = assign(tasks, stateful, after(second, before), rules)
    owners = [task for each in found.values() for task in each.active]
    assert sorted(owners) == sorted(tasks)
    sizes_of = [len(each.active) for each in found.values()]
    assert max(sizes_of) - min(sizes_of) <= 1
    processes = set(second.values())
    for task in tasks:
        holders = [name for name, each in found.items() if task in each.tasks]
        wanted = 1 + (min(replicas, len(processes) - 1) if task.subtopology in stateful else 0)
        assert len(holders) == wanted
        assert len({second[name] for name in holders}) == wanted


@given(MEMBERS, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 2))
def test_nothing_moves_without_a_reason(members: dict[str, str], sizes: list[int], replicas: int) -> None:
    tasks, rules, stateful = tasks_of(sizes), AssignmentRules(num_standby_replicas=replicas), frozenset({"0"})
    before = assign(tasks, stateful, after(members, {}), rules)
    assert assign(tasks, stateful, after(members, before), rules) == before


@given(st.integers(1, 6), st.integers(1, 40))
def test_a_member_that_comes_takes_no_more_than_its_share(count: int, size: int) -> None:
    tasks, rules = tasks_of([size]), AssignmentRules()
    members = {f"m{number}": f"p{number}" for number in range(count)}
    before = assign(tasks, frozenset(), after(members, {}), rules)
    found = assign(tasks, frozenset(), after({**members, "new": "q"}, before), rules)
    moved = sum(len(found[name].active - before[name].active) for name in members)
    assert moved == 0
    assert len(found["new"].active) in (size // (count + 1), -(-size // (count + 1)))


def test_each_member_gets_some_of_each_sub_topology() -> None:
    members = {name: AssignedMember(name) for name in ("a", "b")}
    found = assign(tasks_of([4, 4]), frozenset(), members, AssignmentRules())
    for each in found.values():
        assert {task.subtopology for task in each.active} == {"0", "1"}


def test_the_copies_of_an_instance_of_many_members_are_on_others() -> None:
    members = {f"a{number}": AssignedMember("a") for number in range(4)} | {"b": AssignedMember("b")}
    found = assign(tasks_of([5]), frozenset({"0"}), members, AssignmentRules(num_standby_replicas=1))
    on_a = {task for name, each in found.items() if name != "b" for task in each.active}
    assert on_a <= found["b"].standby


def test_a_task_whose_new_owner_lacks_its_state_stays_and_is_warmed_up() -> None:
    tasks = tasks_of([2])
    caught_up = dict.fromkeys(tasks, 0)
    old = AssignedMember("a", before=Assignment(frozenset(tasks)), lags=caught_up)
    found = assign(tasks, frozenset({"0"}), {"old": old, "new": AssignedMember("b")}, AssignmentRules())
    [warm] = found["new"].warmup
    assert found["old"].active == frozenset(tasks)
    far = AssignedMember("b", before=found["new"], lags={warm: 10_001})
    still = assign(tasks, frozenset({"0"}), {"old": replace(old, before=found["old"]), "new": far}, AssignmentRules())
    assert still == found
    near = replace(far, lags={warm: 10_000})
    moved = assign(tasks, frozenset({"0"}), {"old": replace(old, before=found["old"]), "new": near}, AssignmentRules())
    assert moved["new"].active == {warm}


def test_a_thousand_partitions_move_little() -> None:
    tasks, rules, stateful = tasks_of([500, 500]), AssignmentRules(num_standby_replicas=1), frozenset({"1"})
    members = {f"m{number}": f"p{number}" for number in range(3)}
    before = assign(tasks, stateful, after(members, {}), rules)
    del members["m0"]
    left = assign(tasks, stateful, after(members, before), rules)
    assert all(before[name].active <= left[name].active for name in members)
    back = assign(tasks, stateful, after({**members, "m3": "p3"}, left), rules)
    assert [len(each.active) for each in back.values()] == [334, 333, 333]
    assert all(back[name].active <= left[name].active for name in members)
