"""What may be compared when the same records come in other batches.

Inside one sub-topology everything: the same records in the same order, whatever the batches. A repartition topic keeps
the order of what one stream writes to it, so what comes after it alone is still exact; but how two topics mingle depends
on the batches, as in Kafka Streams it depends on the threads. Then the values that tables end with are still the same, as
long as only tables were joined; and with caching, a table's changes are fewer, and its final values the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

__all__ = ["Agreement", "agreements"]

Spec = dict[str, Any]
NUMBERS = ("count", "sum_measure", "sum", "diff")


class Agreement(IntEnum):
    """How much of a stream, a table or a store is the same in all batches."""

    NONE = 0
    FINAL_OR_ZERO = 1  # the last value of each key; nothing and 0 are the same: a group that came and went
    FINAL = 2  # the last value of each key; nothing and null are the same
    AT_LEAST = 3  # every row and maybe more: a cache shows windows that have expired in the store below it
    EXACT = 4  # every record


@dataclass(frozen=True)
class Known:
    """What is known of one id. ``order``: who decides the order; equal ones do not mingle differently."""

    level: Agreement
    order: str
    is_table: bool
    rekeyed: bool = False
    shows_start: bool = False  # an aggregate's first change shows the initializer's value as the old one
    windowed: bool = False


def agreements(
    case: Spec, *, cached: bool = False, tasks: int = 0
) -> tuple[dict[str, Agreement], dict[str, Agreement]]:
    """How far outputs (topics and ``@peek:id``) and stores agree.

    Args:
        case: The case.
        cached: One of the runs has caching on.
        tasks: One of the runs is divided into so many tasks, as Spark has them: each has a stream time of its own.
    """
    return _Analysis(case, cached=cached, tasks=tasks).run()


class _Analysis:
    def __init__(self, case: Spec, *, cached: bool, tasks: int) -> None:
        self.case, self.cached, self.tasks = case, cached, tasks
        self.known: dict[str, Known] = {}
        self.outputs: dict[str, Agreement] = {}
        self.stores: dict[str, Agreement] = {}

    def run(self) -> tuple[dict[str, Agreement], dict[str, Agreement]]:
        for n in self.case["topology"]:
            method = getattr(self, f"op_{n['op']}", None) or self._one_input
            inputs = [self.known[i] for i in _ids(n)]
            found = method(n, *inputs)
            if found is None:
                continue
            if found.is_table:
                self.stores[n.get("store", "")] = found.level
                if self.cached:
                    if found.windowed and found.level == Agreement.EXACT:
                        self.stores[n.get("store", "")] = Agreement.AT_LEAST
                    found = replace(found, level=min(found.level, Agreement.FINAL))
            self.known[n["id"]] = found
        self.stores.pop("", None)
        return self.outputs, self.stores

    def _one_input(self, n: Spec, x: Known) -> Known:
        """Filters, maps and the like; what depends on single records of a stream needs all of them."""
        keeps = x.is_table or x.level == Agreement.EXACT or n["op"] in ("mapValues", "toStream", "peek")
        rekeyed = x.rekeyed or n["op"] in ("map", "flatMap", "selectKey", "groupBy", "process")
        level = x.level if keeps and x.level != Agreement.FINAL_OR_ZERO else _only_exact(x.level)
        return replace(x, level=level, rekeyed=rekeyed)

    def op_stream(self, n: Spec) -> Known:
        return Known(Agreement.EXACT, "input", is_table=False)

    def op_table(self, n: Spec) -> Known:
        return Known(Agreement.EXACT, "input", is_table=True)

    def op_globalTable(self, n: Spec) -> Known:  # noqa: N802
        level = Agreement.NONE if self.tasks else Agreement.EXACT  # no task has it as its own
        return Known(level, "input", is_table=True)

    def op_addStateStore(self, n: Spec) -> None:  # noqa: N802
        """Its processor decides."""

    def op_peek(self, n: Spec, x: Known) -> Known:
        self.outputs[f"@peek:{n['id']}"] = _only_exact(x.level)
        return x

    def op_to(self, n: Spec, x: Known) -> None:
        self.outputs[n["topic"]] = x.level

    def op_toStream(self, n: Spec, x: Known) -> Known:  # noqa: N802
        return replace(x, is_table=False, rekeyed=False)

    def op_merge(self, n: Spec, x: Known, y: Known) -> Known:
        level = _both(x, y)
        return Known(level, x.order, is_table=False, rekeyed=x.rekeyed or y.rekeyed)

    def op_split(self, n: Spec, x: Known) -> None:
        for branch in [*n["branches"], *([n["default"]] if "default" in n else [])]:
            self.known[branch["id"]] = replace(x, level=_only_exact(x.level))

    def op_repartition(self, n: Spec, x: Known) -> Known:
        return _sent(n, replace(x, rekeyed=True))

    def op_toTable(self, n: Spec, x: Known) -> Known:  # noqa: N802
        level = x.level if not x.rekeyed or x.level == Agreement.EXACT else Agreement.NONE
        return replace(_sent(n, x), level=level, is_table=True)

    def op_cogroup(self, n: Spec, x: Known, y: Known) -> Known:
        x, y = _sent(n, x, "left"), _sent(n, y, "right")
        return replace(x, level=_both(x, y), rekeyed=False)

    def op_windowedBy(self, n: Spec, x: Known) -> Known:  # noqa: N802
        # A cache shows windows that have expired below it: what sends results when windows close sends more of them, and
        # late records find sessions and sliding windows to go into.
        looks_back = "emit" in n or n["window"]["type"] in ("session", "sliding")
        level = Agreement.NONE if self.cached and looks_back else x.level
        return replace(x, windowed=True, level=level)

    def op_count(self, n: Spec, x: Known) -> Known:
        shows_start = n["op"] != "reduce"
        if x.level == Agreement.EXACT:
            return replace(_sent(n, x), is_table=True, shows_start=shows_start)
        functions = [n[f]["name"] for f in ("adder", "subtractor") if f in n]
        of_numbers = n["op"] == "count" or (bool(functions) and all(f in NUMBERS for f in functions))
        settles = x.is_table and of_numbers and x.level == Agreement.FINAL and not (self.cached and x.shows_start)
        level = Agreement.FINAL_OR_ZERO if settles else Agreement.NONE
        return replace(_sent(n, x), level=level, is_table=True)

    op_reduce = op_aggregate = op_count

    def op_join(self, n: Spec, x: Known, y: Known) -> Known:
        if x.is_table:
            x = replace(x, shows_start=True)  # nor are old values right when a table is joined with what comes of it
            level = min(x.level, y.level) if _both(x, y) != Agreement.EXACT else Agreement.EXACT
            return replace(x, level=_tabular(level, mingled=_both(x, y) != Agreement.EXACT))
        if "key_fn" in n:  # a global table is as new as it happens to be
            return replace(x, level=Agreement.NONE)
        x = _sent(n, x, "left")
        if not y.is_table:
            y = _sent(n, y, "right")
        level = _both(x, y)
        return replace(x, level=Agreement.NONE if y.is_table and self.cached else level)

    def op_fkJoin(self, n: Spec, x: Known, y: Known) -> Known:  # noqa: N802
        return Known(_tabular(min(x.level, y.level), mingled=True), n["id"], is_table=True)

    def op_suppress(self, n: Spec, x: Known) -> Known:
        return replace(x, level=_only_exact(x.level))

    def op_process(self, n: Spec, x: Known) -> Known:
        f = n["processor"]
        level = _only_exact(x.level)
        if "interval_ms" in f and x.order != "input":  # the test driver has one stream time for all sub-topologies
            level = Agreement.NONE
        if self.tasks > 1 and "interval_ms" in f:
            level = Agreement.NONE
        if "store" in f:
            self.stores[f["store"]] = level
        return replace(x, level=level, rekeyed=x.rekeyed or n["op"] == "process")

    op_processValues = op_process  # noqa: N815


def _ids(n: Spec) -> list[str]:
    found = n.get("in", [])
    return found if isinstance(found, list) else [found]


def _only_exact(level: Agreement) -> Agreement:
    return Agreement.EXACT if level == Agreement.EXACT else Agreement.NONE


def _tabular(level: Agreement, *, mingled: bool) -> Agreement:
    """Of tables that are joined."""
    if level == Agreement.EXACT and mingled:
        return Agreement.FINAL
    return level if level >= Agreement.FINAL else Agreement.NONE


def _both(x: Known, y: Known) -> Agreement:
    same = x.order == y.order and x.level == y.level == Agreement.EXACT
    return Agreement.EXACT if same else Agreement.NONE


def _sent(n: Spec, x: Known, side: str = "") -> Known:
    """Behind the repartition topic that a changed key makes necessary."""
    return replace(x, order=f"{n['id']}{side}", rekeyed=False) if x.rekeyed else x
