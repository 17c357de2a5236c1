"""What a history of appends must look like; plain Python over plain lists.

Each append has a value that no other has. A partition's records are lists of (key, value) in the order of their offsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

__all__ = ["by_key", "check_chains", "check_deliveries", "check_state", "replayed"]

Pair = tuple[str, str | None]
SHOWN = 3


def by_key(records: Iterable[Pair]) -> dict[str, list[str]]:
    """The values of each key in the order of its records.

    >>> by_key([("a", "1"), ("b", "2"), ("a", "3")])
    {'a': ['1', '3'], 'b': ['2']}
    """
    found: dict[str, list[str]] = {}
    for key, value in records:
        found.setdefault(key, []).append(value or "")
    return found


def check_deliveries(sent: Mapping[str, Sequence[str]], seen: Mapping[str, Sequence[str]]) -> list[str]:
    """Find appends that are lost, double, unknown or in another order, by key.

    >>> check_deliveries({"a": ["1", "2"]}, {"a": ["1", "2"]})
    []
    >>> check_deliveries({"a": ["1", "2"]}, {"a": ["2"]})
    ["a: 1 appends are lost: ['1']"]
    """
    problems = []
    for key in sorted({*sent, *seen}):
        wanted, came = list(sent.get(key, ())), list(seen.get(key, ()))
        lost, more = Counter(wanted) - Counter(came), Counter(came) - Counter(wanted)
        double = sorted(value for value in more if value in wanted)
        unknown = sorted(value for value in more if value not in wanted)
        for found, what in ((sorted(lost), "lost"), (double, "double"), (unknown, "unknown")):
            if found:
                problems.append(f"{key}: {len(found)} appends are {what}: {found[:SHOWN]}")
        if not lost and not more and wanted != came:
            place = next(number for number, (one, other) in enumerate(zip(wanted, came, strict=True)) if one != other)
            problems.append(f"{key}: the order differs from append {place} on: {came[place]}, not {wanted[place]}")
    return problems


def check_chains(
    sent: Mapping[str, Sequence[str]],
    chains: Mapping[str, Sequence[str]],
    next_link: Callable[[str, str], str],
    empty: str,
    group_of: Callable[[str], str] = lambda key: key,
) -> list[str]:
    """Check that each aggregate follows the one before, and that the chains hold all appends in their order by key.

    Args:
        sent: The appends of each key.
        chains: The aggregates of each group in the order of their records; the newest append is behind the last "|".
        next_link: Computes an aggregate from the one before and an append.
        empty: The aggregate before the first.
        group_of: The group of a key.
    """
    problems, held = [], dict[str, list[str]]()
    key_of = {value: key for key, values in sent.items() for value in values}
    for group, links in sorted(chains.items()):
        for number, (before, link) in enumerate(pairwise([empty, *links])):
            value = link.rpartition("|")[2]
            key = key_of.get(value)
            if key is None or group_of(key) != group:
                problems.append(f"{group}: aggregate {number} holds {value!r}, which was never appended there")
                continue
            held.setdefault(key, []).append(value)
            if link != next_link(before, value):
                problems.append(f"{group}: aggregate {number}, {link!r}, does not follow {before!r}")
                break
    if problems:
        return problems
    return [f"in the aggregates, {problem}" for problem in check_deliveries(sent, held)]


def replayed(changelog: Iterable[Pair]) -> dict[str, str]:
    """The state that a changelog holds.

    >>> replayed([("a", "1"), ("b", "2"), ("a", "3"), ("b", None)])
    {'a': '3'}
    """
    state: dict[str, str] = {}
    for key, value in changelog:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def check_state(
    name: str, state: Mapping[str, str], changelog: Mapping[str, str], outputs: Mapping[str, Sequence[str]]
) -> list[str]:
    """Compare a store, the replay of its changelog, and the newest output of each key.

    >>> check_state("s", {"a": "2"}, {"a": "2"}, {"a": ["1", "2"]})
    []
    """
    problems = []
    newest = {key: values[-1] for key, values in outputs.items()}
    for what, other in (("its changelog", changelog), ("its newest outputs", newest)):
        different = [key for key in sorted({*state, *other}) if state.get(key) != other.get(key)]
        if different:
            key = different[0]
            problems.append(
                f"store {name}: {len(different)} keys differ from {what}, such as {key}: "
                f"{state.get(key)!r}, not {other.get(key)!r}"
            )
    return problems
