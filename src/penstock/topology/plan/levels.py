"""The assignment of sub-topologies to the stages of a batch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.errors import TopologyError

__all__ = ["is_acyclic", "levels_of"]

Flows = Mapping[int, Mapping[str, Collection[str]]]
Run = frozenset[tuple[int, str]]  # topics that a sub-topology reads together
Arrows = Mapping[Run, Collection[Run]]


def levels_of(flows: Flows) -> list[list[int]]:
    """Return sub-topologies by stage, so that each reads a topic after all that write it.

    A sub-topology runs once, unless a topic that it reads depends on its own output earlier in the same batch: the left
    side of a foreign-key join runs, then the right side, then the left side again with the answers.

    Args:
        flows: Sub-topology -> each topic that it reads -> the internal topics which records of that topic may reach.

    Raises:
        TopologyError: A topic depends on itself.

    Example:
        >>> levels_of({0: {"a": ["x"]}, 1: {"b": ["x"]}, 2: {"x": []}})
        [[0, 1], [2]]
        >>> levels_of({0: {"left": ["subscriptions"], "answers": []}, 1: {"subscriptions": ["answers"], "right": []}})
        [[0], [1], [0]]
    """
    if not is_acyclic(flows):
        raise TopologyError("internal topics of this topology feed each other in a circle")
    arrows = _arrows(flows)
    depth = _depths(arrows)
    runs = list(arrows)
    for one in sorted(runs, key=lambda run: (depth[run], *min(run))):
        for other in [run for run in arrows if _subtopology(run) == _subtopology(one) and run != one]:
            if other in arrows and one in arrows and not (_leads(arrows, one, other) or _leads(arrows, other, one)):
                merged = one | other
                arrows = _merged(arrows, {one: merged, other: merged})
                one = merged  # noqa: PLW2901 - goes on with the merged one
    stages: dict[int, list[int]] = {}
    for run, level in _depths(arrows).items():
        stages.setdefault(level, []).append(_subtopology(run))
    return [sorted(stages[level]) for level in sorted(stages)]


def is_acyclic(flows: Flows) -> bool:
    """Return whether no topic leads back to itself."""
    arrows = _arrows(flows)
    return not any(_leads(arrows, run, run) for run in arrows)


def _subtopology(run: Run) -> int:
    return next(iter(run))[0]


def _arrows(flows: Flows) -> Arrows:
    """Return every topic of every reader as a run of its own, and the runs that follow it."""
    readers: dict[str, list[Run]] = {}
    for sub, topics in flows.items():
        for topic in topics:
            readers.setdefault(topic, []).append(frozenset({(sub, topic)}))
    return {
        frozenset({(sub, topic)}): {run for written in reached for run in readers.get(written, ())}
        for sub, topics in flows.items()
        for topic, reached in topics.items()
    }


def _leads(arrows: Arrows, start: Run, end: Run) -> bool:
    """Return whether one run has to be over before the other can begin."""
    seen: set[Run] = set()
    todo = list(arrows[start])
    while todo:
        run = todo.pop()
        if run == end:
            return True
        if run not in seen:
            seen.add(run)
            todo += arrows[run]
    return False


def _merged(arrows: Arrows, names: Mapping[Run, Run]) -> dict[Run, set[Run]]:
    merged: dict[Run, set[Run]] = {}
    for run, following in arrows.items():
        merged.setdefault(names.get(run, run), set()).update(names.get(f, f) for f in following)
    return merged


def _depths(arrows: Arrows) -> dict[Run, int]:
    """Return the length of the longest way to each run."""
    depths = dict.fromkeys(arrows, 0)
    for _ in arrows:
        for run, following in arrows.items():
            for one in following:
                depths[one] = max(depths[one], depths[run] + 1)
    return depths
