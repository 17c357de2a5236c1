"""Functions that the shared cases call and that ksqlDB has only in its test jars, written from what the cases show."""

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from penstock.sql.functions import udaf, udf, udtf
from penstock.sql.functions.patterns import Signature
from penstock.sql.types.texts import text_function

First = TypeVar("First")
Others = TypeVar("Others")
Whole = Annotated[int, "INTEGER"]


@udf("TEST_UDF(value STRUCT<A STRING>) STRING")
def of_struct(value: dict[str, str]) -> str:
    """A function with several signatures."""
    return value["A"]


@udf("TEST_UDF() STRUCT<A STRING>")
def to_struct() -> dict[str, str]:
    return {"A": "foo"}


@udf("TEST_UDF(one INTEGER, two STRING) STRING", nulls=True)
def of_int_and_text(one: int | None, two: str | None) -> str:
    return "doStuffIntString"


@udf("TEST_UDF(one BIGINT, two STRING) STRING", nulls=True)
def of_long_and_text(one: int | None, two: str | None) -> str:
    return "doStuffLongString"


@udf("TEST_UDF(one BIGINT, two BIGINT, three STRING) STRING", nulls=True)
def of_two_longs_and_text(one: int | None, two: int | None, three: str | None) -> str:
    return "doStuffLongLongString"


@udf(name="TEST_UDF")
def of_longs(*values: int) -> str:
    return "doStuffLongVarargs"


@udf("BAD_UDF(fails BOOLEAN) INTEGER")
def bad_boolean(fails: bool) -> int:
    """A function that raises."""
    if fails:
        raise RuntimeError("a failure that was asked for")
    return 0


@udf("BAD_UDF(value INTEGER) STRING")
def bad_number(value: int) -> str:
    raise RuntimeError("a failure that was asked for")


@udf(name="BAD_UDF")
def null_at_times(value: str) -> str:
    return None if value == "d1" else value


@udf("WHENCONDITION(result BOOLEAN, allowed BOOLEAN) BOOLEAN")
def when_condition(result: bool, allowed: bool) -> bool:
    """A condition of CASE that must not be evaluated."""
    if not allowed:
        raise AssertionError("evaluated, though a branch before it was chosen")
    return result


@udf("WHENRESULT(result INTEGER, allowed BOOLEAN) INTEGER")
def when_result(result: int, allowed: bool) -> int:
    return when_condition(result, allowed)


@udtf(
    "TEST_UDTF(a INTEGER, b BIGINT, c DOUBLE, d BOOLEAN, e STRING, f DECIMAL, g STRUCT<A STRING>) STRING",
)
def texts(*values: Any) -> Iterator[str]:
    """A table function with several signatures."""
    kinds = ("INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "STRING", "DECIMAL(20, 10)", "STRUCT<A STRING>")
    for value, kind in zip(values, kinds, strict=True):
        yield text_function(Signature.parse(f"F() {kind}").result)(value)


KINDS = ("INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "STRING", "DECIMAL", "STRUCT<A STRING>")


@udtf(f"TEST_UDTF({', '.join(f'p{at} ARRAY<{kind}>' for at, kind in enumerate(KINDS))}) STRING")
def texts_of_arrays(*values: list[Any]) -> Iterator[str]:
    yield from texts(*(value[0] for value in values))


@udtf(f"TEST_UDTF({', '.join(f'p{at} MAP<STRING, {kind}>' for at, kind in enumerate(KINDS))}) STRING")
def texts_of_maps(*values: dict[str, Any]) -> Iterator[str]:
    yield from texts(*(next(iter(value.values())) for value in values))


PLAIN = ("INTEGER", "BIGINT", "DOUBLE", "BOOLEAN", "STRING", "STRUCT<A STRING>")


@udtf(*(f"TEST_UDTF(value {kind}) {kind}" for kind in PLAIN), "TEST_UDTF(value DECIMAL) DECIMAL(30, 10)")
def itself(value: Any) -> list[Any]:
    return [value]


@udtf("THROWING_UDTF(fails BOOLEAN) BOOLEAN")
def fails_if_asked(fails: bool) -> list[bool]:
    """A table function that raises."""
    if fails:
        raise RuntimeError("a failure that was asked for")
    return [fails]


@udf("TOSTRUCT(value STRING) STRUCT<A STRING>")
def in_struct(value: str) -> dict[str, str]:
    """A text in a struct."""
    return {"A": value}


@udaf("TEST_UDAF(value STRUCT<A INTEGER, B INTEGER>) STRUCT<A INTEGER, B INTEGER>")
class SumOfStructs:
    """The sums of both fields."""

    def initialise(self) -> dict:
        return {"A": 0, "B": 0}

    def add(self, state, value):
        return {name: state[name] + value[name] for name in state}

    merge = undo = add


class _Sum:
    def initialise(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state + value

    merge = add

    def undo(self, state: int, value: int) -> int:
        return state - value


@udaf("TEST_UDAF(value BIGINT) BIGINT")
class SumOfLongs(_Sum):
    """The sum of whole numbers."""


@udaf("TEST_UDAF(value INTEGER) BIGINT")
class SumOfInts(_Sum):
    """The sum of whole numbers of 32 bits."""


@udaf("TEST_UDAF(value DOUBLE) DOUBLE")
class SumOfDoubles:
    """The sum of numbers, which cannot be undone."""

    def initialise(self) -> float:
        return 0.0

    def add(self, state: float, value: float) -> float:
        return state + value

    merge = add


class _Lengths:
    start = 0

    def initialise(self) -> int:
        return self.start

    def add(self, state: int, number: int | None, *texts: str | None) -> int:
        return state + (number or 0) + sum(len(text or "") for text in texts)

    def merge(self, one: int, two: int) -> int:
        return one + two

    def result(self, state: int) -> int:
        return state


@udaf(name="VAR_ARG")
class Lengths(_Lengths):
    """A number and the lengths of any number of texts."""


@udaf(name="MID_VAR_ARG")
class MiddleLengths(_Lengths):
    """The same, from the sum of two literals."""

    def __init__(self, one: Whole, two: Whole) -> None:
        self.start = one + two


@udaf(name="MULTI_ARG")
class LengthsFrom(_Lengths):
    """The number and the length of a text, from a literal and the lengths of any number of literals."""

    def __init__(self, start: Whole, *texts: str) -> None:
        self.start = start + sum(map(len, texts))

    def add(self, state: int, number: int | None, text: str | None) -> int:
        return super().add(state, number, text)


@udaf(name="FOUR_ARG")
class LengthsOfThree(_Lengths):
    """The number and the lengths of three texts, from a literal and the lengths of any number of literals."""

    def __init__(self, start: Whole, *texts: str) -> None:
        self.start = start + sum(map(len, texts))

    def add(self, state: int, number: int | None, one: str | None, two: str | None, three: str | None) -> int:
        return super().add(state, number, one, two, three)


@udaf(name="FIVE_ARG")
class LengthsOfThreeAndNumber(_Lengths):
    """The same with a second number."""

    def __init__(self, start: Whole, *texts: str) -> None:
        self.start = start + sum(map(len, texts))

    def add(
        self,
        state: int,
        number: int | None,
        one: str | None,
        two: str | None,
        three: str | None,
        last: Annotated[int, "INTEGER"] | None,
    ) -> int:
        return super().add(state, number, one, two, three) + (last or 0)


@udaf(name="GENERIC_VAR_ARG")
class Firsts:
    """The first arguments of the rows without null."""

    def initialise(self) -> list[First]:
        return []

    def add(self, state: list, first: First, number: Whole, *others: Others) -> list:
        return [*state, first]

    def merge(self, one: list, two: list) -> list:
        return one + two


@udaf("OBJ_COL_ARG(number INTEGER, others ANY...) ARRAY<INTEGER>")
class Numbers:
    """The numbers of the rows without null."""

    def initialise(self) -> list:
        return []

    def add(self, state: list, number: int, *others: Any) -> list:
        return [*state, number]

    def merge(self, one: list, two: list) -> list:
        return one + two
