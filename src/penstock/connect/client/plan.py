"""What has to change so that workers have the connectors of a folder, and nothing else if that is wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["Action", "PlannedChange", "Plan", "make_plan"]

SECRET = re.compile(r"password|secret|token|credential|authorization|\bkey\b|\.key$|jaas", re.IGNORECASE)
REFERENCE = re.compile(r"\$\{[^}]+\}")


class Action(Enum):
    """What happens to a connector."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """The change of one connector.

    Attributes:
        name: The connector.
        action: What happens to it.
        config: Its config afterwards; empty if it is deleted.
        lines: The settings that differ, ``+`` new, ``-`` old, secrets masked.
    """

    name: str
    action: Action
    config: Mapping[str, str]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, and the connectors that stay.

    Attributes:
        changes: The changes, in the order in which they are made.
        unchanged: Connectors whose config is what it should be.
        others: Connectors that no file names, and that stay.
    """

    changes: tuple[PlannedChange, ...]
    unchanged: tuple[str, ...]
    others: tuple[str, ...]


def make_plan(
    configs: Mapping[str, Mapping[str, str]], present: Mapping[str, Mapping[str, str]], *, prunes: bool = False
) -> Plan:
    """Compare configs.

    Args:
        configs: The configs that there should be, by name.
        present: Those that there are.
        prunes: Connectors that are not wanted are deleted.

    Example:
        >>> plan = make_plan({"a": {"topic": "x"}}, {"a": {"topic": "y", "name": "a"}, "b": {}})
        >>> [(change.action.value, change.lines) for change in plan.changes], plan.others
        ([('change', ('- topic=y', '+ topic=x'))], ('b',))
    """
    changes, unchanged = [], []
    for name in sorted(configs):
        config = {**configs[name], "name": name}
        old = {**present[name], "name": name} if name in present else None
        if old == config:
            unchanged.append(name)
        elif old is None:
            changes.append(PlannedChange(name, Action.CREATE, config, tuple(_difference({}, config))))
        else:
            changes.append(PlannedChange(name, Action.CHANGE, config, tuple(_difference(old, config))))
    others = sorted(present.keys() - configs.keys())
    if prunes:
        changes += [PlannedChange(name, Action.DELETE, {}, ()) for name in others]
    return Plan(tuple(changes), tuple(unchanged), () if prunes else tuple(others))


def _difference(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    lines = []
    for key in sorted(old.keys() | new.keys()):
        if key == "name" or old.get(key) == new.get(key):
            continue
        lines += [f"- {key}={_shown(key, old[key])}"] if key in old else []
        lines += [f"+ {key}={_shown(key, new[key])}"] if key in new else []
    return lines


def _shown(key: str, value: str) -> str:
    """Return the value for people: not of secrets, unless it only refers to one."""
    if SECRET.search(key) and not REFERENCE.fullmatch(value):
        return "[hidden]"
    return re.sub(r"//[^/@\s]*@", "//[hidden]@", value)
