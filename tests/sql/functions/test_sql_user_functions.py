"""Functions of users: types, overloads, nulls, structs, lambdas, settings, and what happens when they raise."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, TypedDict, TypeVar

import cloudpickle
import pytest

from penstock.api.builder import StreamsBuilder
from penstock.errors import PenstockError, SqlError, SqlFunctionError
from penstock.sql.analyse import apply_script
from penstock.sql.catalog import Catalog
from penstock.sql.compile import compile_query
from penstock.sql.functions import EvaluationErrors, UserFunctions, load_functions, udaf, udf, udtf
from penstock.testing import TopologyTestDriver

T = TypeVar("T")
R = TypeVar("R")
Whole = Annotated[int, "INTEGER"]


@dataclass
class Point:
    x: int
    y: float | None


class Address(TypedDict):
    STREET: str
    NUMBERS: list[int]


@udf
def shifted(point: Point, by: int = 1) -> Point:
    """Move a point.

    This paragraph is not shown.
    """
    return Point(point.x + by, point.y)


@udf
def first_number(address: Address) -> int:
    return address["NUMBERS"][0]


@udf
def or_else(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value


@udf
def joined(separator: str, *parts: str) -> str:
    return separator.join(parts)


@udf(name="SIZE_OF")
def size_of_number(value: int) -> str:
    return f"number {value}"


@udf(name="SIZE_OF")
def size_of_text(value: str) -> str:
    return f"text {len(value)}"


@udf("size_of(value DOUBLE) VARCHAR", "size_of(value ARRAY<T>) VARCHAR")
def size_of_others(value: Any) -> str:
    return type(value).__name__


@udf
def each(values: list[T], step: Callable[[T], R]) -> list[R]:
    return [step(value) for value in values]


@udf
def next_day(moment: datetime) -> datetime:
    return moment.replace(day=moment.day + 1)


@udf
def year_of(day: date) -> Whole:
    return day.year


@udf("HALF(value DECIMAL) DECIMAL(10, 3)")
def half(value: Decimal) -> Decimal:
    return value / 2


@udf
def surrounded(text: str, *, settings: dict) -> str:
    return settings.get("before", "<") + text + settings.get("after", ">")


@udf
def fails(text: str) -> int:
    return {"a": 1}[text]


@udf
def liar(text: str) -> int:
    return text  # type: ignore[return-value]


@udf
def liar_in_a_list(value: int) -> list[Whole]:
    return [value, 2**40]


@udf(returns=lambda kinds: kinds[0])
def same_type(value: Any) -> Any:
    return value


@udtf
def letters(text: str) -> Iterator[str]:
    for letter in text:
        if letter == "!":
            raise ValueError("a bad letter")
        yield letter


@udaf
class Spread:
    """The greatest less the least."""

    def initialise(self) -> list[Annotated[Decimal, "DECIMAL(12, 1)"]]:
        return []

    def add(self, state: list, value: int) -> list:
        if value == 13:
            raise ValueError("13")
        return [*state, Decimal(value)]

    def merge(self, one: list, two: list) -> list:
        return one + two

    def result(self, state: list) -> int:
        return int(max(state) - min(state)) if state else 0


@udaf(name="SUM_FROM")
class SumFrom:
    def __init__(self, start: Whole, factor: Whole = 1) -> None:
        self.start, self.factor = start, factor

    def initialise(self) -> int:
        return self.start

    def add(self, state: int, value: int | None) -> int:
        return state + self.factor * (100 if value is None else value)

    def undo(self, state: int, value: int | None) -> int:
        return state - self.factor * (100 if value is None else value)

    def merge(self, one: int, two: int) -> int:
        return one + two - self.start


ALL = (
    shifted,
    first_number,
    or_else,
    joined,
    size_of_number,
    size_of_text,
    size_of_others,
    each,
    next_day,
    year_of,
    half,
    surrounded,
    fails,
    liar,
    liar_in_a_list,
    same_type,
    letters,
    Spread,
    SumFrom,
)
COLUMNS = (
    "K INT KEY, T STRING, I INT, B BIGINT, D DOUBLE, E DECIMAL(6, 2), P STRUCT<X BIGINT, Y DOUBLE>, L ARRAY<INT>, "
    "W STRUCT<STREET STRING, NUMBERS ARRAY<BIGINT>>, A TIMESTAMP, DAY DATE"
)
ROW = {
    "T": "abc",
    "I": 5,
    "B": 7,
    "D": 1.5,
    "E": 2.25,
    "P": {"X": 1, "Y": None},
    "L": [1, 2],
    "W": {"STREET": "s", "NUMBERS": [4]},
    "A": 86_400_000,
    "DAY": 365,
}


def catalog(*objects: Any, **settings: str) -> Catalog:
    functions = UserFunctions()
    functions.add(*(objects or ALL))
    return Catalog(functions=functions, settings={key.replace("__", "."): value for key, value in settings.items()})


def run(query: str, rows: list[Any], start: Catalog | None = None, kind: str = "STREAM") -> tuple[list[Any], Any]:
    """The values that a query writes, and its errors."""
    columns = COLUMNS.replace(" KEY", " PRIMARY KEY") if kind == "TABLE" else COLUMNS
    script = f"CREATE {kind} S ({columns}) WITH (kafka_topic='s', value_format='JSON');\n{query}"
    _, effects = apply_script(script, start or catalog())
    plan = effects[-1].query
    assert plan is not None
    errors = EvaluationErrors(plan.id)
    builder = StreamsBuilder()
    compile_query(plan, builder, errors)
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": 0}) as driver:
        for at, row in enumerate(rows):
            key = (1 if kind == "STREAM" else at + 1).to_bytes(4, "big")
            driver.pipe_raw("s", key, json.dumps(row).encode(), at)
        found = []
        while (record := driver.read_raw(plan.target.topic)) is not None:
            found.append(None if record.value is None else json.loads(record.value))
    return found, errors


def value_of(call: str, row: dict | None = None, start: Catalog | None = None) -> Any:
    (found,), _ = run(f"CREATE STREAM OUTPUT AS SELECT K, {call} AS X FROM S;", [ROW if row is None else row], start)
    return found["X"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("SHIFTED(P)", {"X": 2, "Y": None}),
        ("shifted(P, I)", {"X": 6, "Y": None}),
        ("FIRST_NUMBER(W)", 4),
        ("FIRST_NUMBER(W) + 1", 5),
        ("OR_ELSE(CAST(NULL AS INT), I)", 5),
        ("OR_ELSE(T, 'x')", "abc"),
        ("OR_ELSE(T, CAST(NULL AS STRING))", None),
        ("JOINED('-')", ""),
        ("JOINED('-', T, 'd', UCASE(T))", "abc-d-ABC"),
        ("SIZE_OF(B)", "number 7"),
        ("SIZE_OF(I)", "number 5"),
        ("SIZE_OF(T)", "text 3"),
        ("SIZE_OF(D)", "float"),
        ("SIZE_OF(L)", "list"),
        ("EACH(L, x => x * 10)", [10, 20]),
        ("EACH(L, x => CAST(x AS STRING))", ["1", "2"]),
        ("NEXT_DAY(A)", 2 * 86_400_000),
        ("YEAR_OF(DAY)", 1971),
        ("HALF(E)", 1.125),
        ("SURROUNDED(T)", "<abc>"),
        ("SAME_TYPE(L)[1]", 1),
        ("FAILS('a')", 1),
        ("FAILS(T)", None),
        ("IFNULL(FAILS(T), 9)", 9),
        ("LIAR(T)", None),
        ("LIAR_IN_A_LIST(B)", None),
    ],
)
def test_calls(call, expected):
    assert value_of(call) == expected


@pytest.mark.parametrize("call", ["SHIFTED(P)", "JOINED('-', T, 'd')", "SIZE_OF(T)", "HALF(E)", "NEXT_DAY(A)"])
def test_null_arguments_give_null_without_a_call(call):
    (found,), errors = run(f"CREATE STREAM OUTPUT AS SELECT K, {call} AS X FROM S;", [{}])
    assert found["X"] is None
    assert errors.counts == {}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("SIZE_OF(P)", "Function 'SIZE_OF' has no signature for the parameters (STRUCT<`X` BIGINT, `Y` DOUBLE>)"),
        ("SHIFTED(W)", "Function 'SHIFTED' has no signature"),
        ("JOINED()", "Function 'JOINED' has no signature for the parameters ()"),
        ("OR_ELSE(I, T)", "Function 'OR_ELSE' has no signature"),
        ("SURROUND(T)", "No function has the name 'SURROUND'"),
        ("SUM_FROM(I, I)", "must be a literal"),
        ("SUM_FROM(I, B)", "has no signature"),
    ],
)
def test_calls_that_fit_no_signature_are_refused_at_their_place(call, reason):
    ending = " GROUP BY K" if "SUM" in call else ""
    kind = "TABLE" if ending else "STREAM"
    with pytest.raises(SqlError) as caught:
        run(f"CREATE {kind} OUTPUT AS SELECT K, {call} AS X FROM S{ending};", [])
    assert reason in str(caught.value)
    assert (caught.value.line, caught.value.column) == (2, len(f"CREATE {kind} OUTPUT AS SELECT K, ") + 1)


def test_an_exception_is_logged_with_query_function_arguments_and_place(caplog):
    with caplog.at_level(logging.WARNING, "penstock.sql"):
        (found,), errors = run("CREATE STREAM OUTPUT AS SELECT K, FAILS(T) AS X FROM S;", [ROW])
    assert found["X"] is None
    assert sum(errors.counts.values()) == 1
    (message,) = [record.getMessage() for record in caplog.records]
    assert "CSAS_OUTPUT_0" in message
    assert "FAILS('abc') raised KeyError: 'abc'" in message
    assert "test_sql_user_functions.py:" in message


def test_arguments_stay_out_of_the_log_where_a_setting_says_so(caplog):
    hidden = catalog(ksql__logging__processing__rows__include="false")
    with caplog.at_level(logging.WARNING, "penstock.sql"):
        run("CREATE STREAM OUTPUT AS SELECT K, FAILS(UCASE(T)) AS X FROM S;", [{**ROW, "T": "secret"}], hidden)
    assert "FAILS(...) raised KeyError" in caplog.text


def test_a_condition_that_raises_drops_the_row():
    found, errors = run("CREATE STREAM OUTPUT AS SELECT K, T FROM S WHERE FAILS(T) = 1;", [ROW, {**ROW, "T": "a"}])
    assert [row["T"] for row in found] == ["a"]
    assert sum(errors.counts.values()) == 1


def test_settings_reach_the_function_that_asks():
    given = catalog(ksql__functions__surrounded__before="[")
    given.settings["ksql.functions._global_.after"] = "]"
    assert value_of("SURROUNDED(T)", start=given) == "[abc]"


def test_rows_of_a_table_function():
    query = "CREATE STREAM OUTPUT AS SELECT K, LETTERS(T) AS X FROM S;"
    found, _ = run(query, [ROW, {**ROW, "T": None}, {**ROW, "T": ""}])
    assert [row["X"] for row in found] == ["a", "b", "c"]


def test_a_table_function_that_raises_makes_no_rows_of_its_record():
    query = "CREATE STREAM OUTPUT AS SELECT K, LETTERS(T) AS X FROM S;"
    found, errors = run(query, [{**ROW, "T": "a!"}, {**ROW, "T": "z"}])
    assert [row["X"] for row in found] == ["z"]
    assert errors.counts == {"LETTERS": 1}


def test_an_aggregate_leaves_out_nulls_and_rows_that_it_fails_for():
    query = "CREATE TABLE OUTPUT AS SELECT K, SPREAD(I) AS X FROM S GROUP BY K;"
    found, errors = run(query, [{"I": 5}, {"I": None}, {"I": 13}, {"I": 9}])
    assert [row["X"] for row in found] == [0, 0, 0, 4]
    assert errors.counts == {"SPREAD": 1}


def test_the_literals_of_an_aggregate_reach_its_init():
    query = "CREATE TABLE OUTPUT AS SELECT K, SUM_FROM(I, 1000) AS X, SUM_FROM(B, 0, 2) AS Y FROM S GROUP BY K;"
    found, _ = run(query, [{"I": 5, "B": 1}, {"I": None, "B": 2}])
    assert [(row["X"], row["Y"]) for row in found] == [(1005, 2), (1105, 6)]


def test_an_aggregate_over_a_table_undoes_the_old_row():
    query = "CREATE TABLE OUTPUT AS SELECT T, SUM_FROM(I, 0) AS X FROM S GROUP BY T;"
    found, _ = run(query, [{"T": "a", "I": 5}, {"T": "a", "I": 7}], kind="TABLE")
    assert [row["X"] for row in found] == [5, 12]
    with pytest.raises(SqlError, match="SPREAD cannot undo a row"):
        run("CREATE TABLE OUTPUT AS SELECT T, SPREAD(I) AS X FROM S GROUP BY T;", [], kind="TABLE")


def test_sessions_are_merged():
    query = "CREATE TABLE OUTPUT AS SELECT K, SPREAD(I) AS X FROM S WINDOW SESSION (1 SECOND) GROUP BY K;"
    found, _ = run(query, [{"I": 5}, {"I": 8}])
    assert [row and row["X"] for row in found] == [0, None, 3]


def test_functions_travel_to_workers():
    functions = UserFunctions()
    functions.add(*ALL)
    there = cloudpickle.loads(cloudpickle.dumps(functions))
    assert value_of("SHIFTED(P)", start=Catalog(functions=there)) == {"X": 2, "Y": None}


FILE = """
from penstock.sql.functions import udf

@udf(description="Doubles.", author="ann", version="2")
def doubled(value: int) -> int:
    return value * {factor}
"""


def test_a_file_is_loaded_and_loaded_again(tmp_path):
    path = tmp_path / "shop_functions.py"
    path.write_text(FILE.format(factor=2))
    functions = load_functions(str(path))
    assert value_of("DOUBLED(B)", start=Catalog(functions=functions)) == 14
    (note,) = functions.declared["DOUBLED"]
    assert (note.about.description, note.about.author, note.about.version) == ("Doubles.", "ann", "2")
    path.write_text(FILE.format(factor=3) + "# longer, so that the cached bytes are not taken\n")
    again = load_functions(str(path))
    functions.add(*(note.target for note in again.declared["DOUBLED"]))
    assert value_of("DOUBLED(B)", start=Catalog(functions=functions)) == 21


def test_what_is_installed_is_found_by_entry_points(tmp_path, monkeypatch):
    (tmp_path / "warehouse_functions.py").write_text(FILE.format(factor=5))
    info = tmp_path / "warehouse-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: warehouse\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[penstock.sql.functions]\nwarehouse = warehouse_functions\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert list(load_functions(installed=True).declared) == ["DOUBLED"]


def test_files_that_cannot_be_loaded(tmp_path):
    with pytest.raises(PenstockError, match="there is no file"):
        load_functions(str(tmp_path / "none.py"))
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(PenstockError, match=r"ZeroDivisionError.*broken.py:1"):
        load_functions(str(tmp_path / "broken.py"))


def no_annotation(value):
    return value


def complex_number(value: complex) -> int:
    return 1


def open_result(value: int) -> Decimal:
    return Decimal(value)


def by_name(value: int, *, more: int) -> int:
    return value


class NoMerge:
    def initialise(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state


@pytest.mark.parametrize(
    ("decorator", "target", "reason"),
    [
        (udf, no_annotation, "the parameter value has no annotation"),
        (udf, complex_number, "complex is not an SQL type"),
        (udf, open_result, "nothing decides DECIMAL of its result DECIMAL"),
        (udf, by_name, "the parameter more can only be given by name"),
        (udf, NoMerge, "it is not a function"),
        (udf("F(a INTEGER) NOTHING"), no_annotation, "NOTHING is not a type"),
        (udf("F(a INT) INT", "G(a INT) INT"), no_annotation, "several names: F, G"),
        (udf("F(a DECIMAL(1, 2)) INT"), no_annotation, "precision"),
        (udtf, by_name, "the parameter more"),
        (udtf, complex_number, "a table function returns rows"),
        (udaf, NoMerge, "it has no merge"),
        (udaf, no_annotation, "an aggregate is a class"),
    ],
)
def test_declarations_that_cannot_be(decorator, target, reason):
    with pytest.raises(SqlFunctionError) as caught:
        decorator(target)
    assert reason in str(caught.value)
    assert "test_sql_user_functions.py:" in str(caught.value)


def test_names_that_are_taken():
    @udf
    def ucase(text: str) -> str:
        return text

    @udtf(name="SHIFTED")
    def rows(text: str) -> list[str]:
        return [text]

    functions = UserFunctions()
    with pytest.raises(SqlFunctionError, match="has the name of a built-in function"):
        functions.add(ucase)
    functions.add(shifted)
    with pytest.raises(SqlFunctionError, match="declared as table function"):
        functions.add(rows)
    with pytest.raises(SqlFunctionError, match="declares no function of SQL"):
        functions.add(no_annotation)
    assert list(functions.declared) == ["SHIFTED"]


def test_a_decorated_function_is_still_itself():
    assert shifted(Point(1, None), 2) == Point(3, None)
    assert next_day(datetime(2020, 1, 1, tzinfo=UTC)).day == 2
