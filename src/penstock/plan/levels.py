"""Which sub-topologies run in which stage of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["levels_of"]


def levels_of(feeds: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Sub-topologies by stage, so that each runs after all that feed it.

    The cycle of a foreign-key join (left, right, left again) is unrolled: a sub-topology then runs in two stages.

    Args:
        feeds: Sub-topology -> the sub-topologies that read what it writes to internal topics.

    Example:
        >>> levels_of({0: [2], 1: [2], 2: []})
        [[0, 1], [2]]
        >>> levels_of({0: [1], 1: [0, 2], 2: []})
        [[0], [1], [0], [2]]
    """
    components = _components(feeds)
    member = {sub: number for number, component in enumerate(components) for sub in component}
    start: dict[int, int] = {}
    levels: dict[int, list[int]] = {}
    for number, component in enumerate(components):  # feeders come first
        first = 0
        for sub, readers in feeds.items():
            if member[sub] != number and any(member[r] == number for r in readers):
                before = components[member[sub]]
                first = max(first, start[member[sub]] + _length(before))
        start[number] = first
        runs = component if len(component) == 1 else [*component, *component[:-1]]
        for offset, sub in enumerate(runs):
            levels.setdefault(first + offset, []).append(sub)
    return [sorted(levels[i]) for i in sorted(levels)]


def _length(component: Sequence[int]) -> int:
    return 1 if len(component) == 1 else 2 * len(component) - 1


def _components(feeds: Mapping[int, Sequence[int]]) -> list[list[int]]:
    """Strongly connected components, feeders before readers; inside one by number."""
    reach = {sub: _reachable(feeds, sub) for sub in feeds}
    components: list[list[int]] = []
    placed: set[int] = set()
    for sub in sorted(feeds):
        if sub not in placed:
            component = [sub, *sorted(o for o in feeds if o != sub and o in reach[sub] and sub in reach[o])]
            placed.update(component)
            components.append(component)
    ordered: list[list[int]] = []
    left = components
    while left:
        ready = [c for c in left if not any(o is not c and reach[o[0]] & set(c) for o in left)]
        ordered += ready
        left = [c for c in left if c not in ready]
    return ordered


def _reachable(feeds: Mapping[int, Sequence[int]], start: int) -> set[int]:
    seen: set[int] = set()
    todo = list(feeds[start])
    while todo:
        sub = todo.pop()
        if sub not in seen:
            seen.add(sub)
            todo += feeds[sub]
    return seen
