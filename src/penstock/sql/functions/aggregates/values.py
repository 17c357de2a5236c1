"""Aggregates that keep values: least, greatest, top K, lists and sets, histograms, the one common value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.sql.functions.aggregates.definition import AggregateFunction, AggregateSteps
from penstock.sql.functions.aggregates.states import from_state, to_state
from penstock.sql.functions.patterns import Signature
from penstock.sql.types import BIGINT, STRING, ArrayType, MapType, SqlType, SqlTypeError, StructType

__all__ = ["HISTOGRAM_LIMIT", "VALUE_AGGREGATES", "collections"]

HISTOGRAM_LIMIT = 1000  # distinct values; further ones are left out
ORDERED = ("INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")
Choose = Callable[[Any, Any], Any]


def _extreme(choose: Choose) -> Callable[..., AggregateSteps]:
    def factory(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
        keep, read = to_state(kinds[0]), from_state(kinds[0])

        def add(state: Any, value: Any) -> Any:
            if value is None:
                return state
            return keep(value if state is None else choose(read(state), value))

        def merge(one: Any, two: Any) -> Any:
            return add(one, read(two))

        return AggregateSteps(_none, add, merge, read, kinds[0])

    return factory


def _count_of(function: str, constants: Sequence[Any]) -> int:
    count = constants[0]
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise SqlTypeError(f"the K of {function} must be a positive whole number, not {count}")
    return count


def _top(*, distinct: bool) -> Callable[..., AggregateSteps]:
    name = "TOPKDISTINCT" if distinct else "TOPK"

    def factory(kinds: Sequence[SqlType], constants: Sequence[Any]) -> AggregateSteps:
        size = _count_of(name, constants)
        fields = [("sort_col", kinds[0]), *((f"col{at}", kind) for at, kind in enumerate(kinds[1:]))]
        single = len(kinds) == 1
        row_type = kinds[0] if single else StructType.of(fields)
        keep, read = to_state(row_type), from_state(row_type)

        def rank(row: Any) -> Any:
            return row if single else row["sort_col"]

        def best(rows: list[Any]) -> list[Any]:
            if distinct:
                rows = list(dict.fromkeys(rows))
            return [keep(row) for row in sorted(rows, key=rank, reverse=True)[:size]]

        def add(state: list[Any], value: Any, *others: Any) -> list[Any]:
            if value is None:
                return state
            row = value if single else dict(zip((field for field, _ in fields), (value, *others), strict=True))
            return best([*map(read, state), row])

        def merge(one: list[Any], two: list[Any]) -> list[Any]:
            return best([*map(read, one), *map(read, two)])

        return AggregateSteps(list, add, merge, lambda state: list(map(read, state)), ArrayType(row_type))

    return factory


def collections(list_limit: int | None = None, set_limit: int | None = None) -> tuple[AggregateFunction, ...]:
    """COLLECT_LIST and COLLECT_SET with limits of their size: ksqlDB's ``ksql.functions.collect_list.limit``."""

    def collect_list(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
        keep, read = to_state(kinds[0]), from_state(kinds[0])

        def add(state: list[Any], value: Any) -> list[Any]:
            return state if list_limit is not None and len(state) >= list_limit else [*state, keep(value)]

        def undo(state: list[Any], value: Any) -> list[Any]:
            stored = keep(value)
            at = next((at for at in reversed(range(len(state))) if state[at] == stored), None)
            return state if at is None else state[:at] + state[at + 1 :]

        def merge(one: list[Any], two: list[Any]) -> list[Any]:
            return [*one, *two][:list_limit]

        return AggregateSteps(list, add, merge, lambda state: list(map(read, state)), ArrayType(kinds[0]), undo)

    def collect_set(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
        keep, read = to_state(kinds[0]), from_state(kinds[0])

        def merge(one: list[Any], two: list[Any]) -> list[Any]:
            return [*one, *(item for item in two if item not in one)][:set_limit]

        def add(state: list[Any], value: Any) -> list[Any]:
            return merge(state, [keep(value)])

        return AggregateSteps(list, add, merge, lambda state: list(map(read, state)), ArrayType(kinds[0]))

    listed, distinct = (
        Signature.parse("COLLECT_LIST(value T) ARRAY<T>"),
        Signature.parse("COLLECT_SET(value T) ARRAY<T>"),
    )
    rows = ((1,), (2,), (1,))
    return (
        AggregateFunction(
            "COLLECT_LIST",
            "All values in their order, nulls too.",
            (listed,),
            (0,),
            collect_list,
            can_undo=True,
            example=(rows, [1, 2, 1]),
        ),
        AggregateFunction(
            "COLLECT_SET",
            "The distinct values, a null too.",
            (distinct,),
            (0,),
            collect_set,
            can_undo=False,
            example=(rows, [1, 2]),
        ),
    )


def _histogram(_kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    def counted(state: dict[str, int], value: str, by: int) -> dict[str, int]:
        count = state.get(value, 0) + by
        if value not in state and len(state) >= HISTOGRAM_LIMIT:
            return state
        rest = {**state, value: count}
        if count <= 0:
            del rest[value]
        return rest

    def add(state: dict[str, int], value: str | None) -> dict[str, int]:
        return counted(state, "null" if value is None else value, 1)

    def undo(state: dict[str, int], value: str | None) -> dict[str, int]:
        return counted(state, "null" if value is None else value, -1)

    def merge(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
        for value, number in two.items():
            one = counted(one, value, number)
        return one

    return AggregateSteps(dict, add, merge, dict, MapType(STRING, BIGINT), undo)


def _attribute(kinds: Sequence[SqlType], _: Sequence[Any]) -> AggregateSteps:
    """States are pairs of a value and how often it was seen."""
    keep, read = to_state(kinds[0]), from_state(kinds[0])

    def counted(state: list[Any], value: Any, by: int) -> list[Any]:
        for at, (seen, number) in enumerate(state):
            if seen == value:
                changed = [[seen, number + by]] if number + by > 0 else []
                return [*state[:at], *changed, *state[at + 1 :]]
        return [*state, [value, by]] if by > 0 else state

    def merge(one: list[Any], two: list[Any]) -> list[Any]:
        for value, number in two:
            one = counted(one, value, number)
        return one

    def result(state: list[Any]) -> Any:
        return read(state[0][0]) if len(state) == 1 else None

    def add(state: list[Any], value: Any) -> list[Any]:
        return counted(state, keep(value), 1)

    def undo(state: list[Any], value: Any) -> list[Any]:
        return counted(state, keep(value), -1)

    return AggregateSteps(list, add, merge, result, kinds[0], undo)


def _none() -> Any:
    return None


def _plain(
    name: str,
    meaning: str,
    texts: Sequence[str],
    factory: Callable[..., AggregateSteps],
    example: tuple[tuple[Any, ...], Any],
) -> AggregateFunction:
    signatures = tuple(Signature.parse(text) for text in texts)
    constants = (1 if name.startswith("TOPK") else 0,) * len(texts)
    undoes = name in ("HISTOGRAM", "ATTR")
    return AggregateFunction(name, meaning, signatures, constants, factory, undoes, example)


VALUE_AGGREGATES = (
    _plain(
        "MIN",
        "The least value that is not null.",
        [f"MIN(value {kind}) {kind}" for kind in ORDERED],
        _extreme(min),
        (((3,), (None,), (1,)), 1),
    ),
    _plain(
        "MAX",
        "The greatest value that is not null.",
        [f"MAX(value {kind}) {kind}" for kind in ORDERED],
        _extreme(max),
        (((3,), (None,), (1,)), 3),
    ),
    _plain(
        "TOPK",
        "The K greatest values in falling order; with further columns, structs of the value and those.",
        [
            *(f"TOPK(value {kind}, k INTEGER) ARRAY<{kind}>" for kind in ORDERED),
            *(f"TOPK(value {kind}, others ANY..., k INTEGER) ARRAY<{kind}>" for kind in ORDERED),
        ],
        _top(distinct=False),
        (((1,), (3,), (3,)), [3, 3]),
    ),
    _plain(
        "TOPKDISTINCT",
        "The K greatest distinct values in falling order.",
        [f"TOPKDISTINCT(value {kind}, k INTEGER) ARRAY<{kind}>" for kind in ORDERED],
        _top(distinct=True),
        (((1,), (3,), (3,)), [3, 1]),
    ),
    _plain(
        "HISTOGRAM",
        "How often each text occurs, of at most 1000 texts.",
        ["HISTOGRAM(value STRING) MAP<STRING, BIGINT>"],
        _histogram,
        ((("a",), ("b",), ("a",)), {"a": 2, "b": 1}),
    ),
    _plain(
        "ATTR",
        "The value that all rows have, null if they differ.",
        ["ATTR(value T) T"],
        _attribute,
        (((7,), (7,)), 7),
    ),
)
