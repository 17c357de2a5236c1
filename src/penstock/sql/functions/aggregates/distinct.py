"""COUNT_DISTINCT: an estimate by HyperLogLog, whose state stays small however many values there are."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from penstock.sql.functions.aggregates.definition import AggregateFunction, AggregateSteps
from penstock.sql.functions.aggregates.states import to_state
from penstock.sql.functions.patterns import Signature
from penstock.sql.types import BIGINT, SqlType

__all__ = ["COUNT_DISTINCT"]

BITS = 12  # 4096 registers: a standard error of 1.6 percent
REGISTERS = 1 << BITS


def _place(value: Any) -> tuple[str, int]:
    """Return the register of a value, and the position of the first bit that is set in the rest of its hash."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    number = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    rest = number >> BITS
    return str(number & (REGISTERS - 1)), (64 - BITS) - rest.bit_length() + 1


def _estimate(state: dict[str, int]) -> int:
    empty = REGISTERS - len(state)
    inverse = empty + sum(2.0**-rank for rank in state.values())
    raw = 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS / inverse
    if raw <= 2.5 * REGISTERS and empty:
        return round(REGISTERS * math.log(REGISTERS / empty))
    return round(raw)


def _count_distinct(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    keep = to_state(kinds[0])

    def add(state: dict[str, int], value: Any) -> dict[str, int]:
        if value is None:
            return state
        register, rank = _place(keep(value))
        return {**state, register: rank} if rank > state.get(register, 0) else state

    def merge(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
        return {register: max(one.get(register, 0), two.get(register, 0)) for register in one | two}

    return AggregateSteps(dict, add, merge, _estimate, BIGINT)


COUNT_DISTINCT = AggregateFunction(
    "COUNT_DISTINCT",
    "The number of distinct values that are not null, estimated within about 2 percent.",
    (Signature.parse("COUNT_DISTINCT(value ANY) BIGINT"),),
    (0,),
    _count_distinct,
    can_undo=False,
    example=(((1,), (2,), (1,), (None,)), 2),
)
