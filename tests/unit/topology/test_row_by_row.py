"""Expressions that look at other rows are refused when the topology is built, whatever Polars has."""

from __future__ import annotations

import warnings
from datetime import date

import polars as pl
import pytest

from penstock import KTable, StreamsBuilder, agg
from penstock.errors import TopologyError
from penstock.topology.operations.functions import looks_at_other_rows

V = pl.col("value")
REFUSED = {
    "cum_sum": V.cum_sum(), "shift": V.shift(1), "rank": V.rank(), "sum": V.sum(), "over": V.mean().over("key"), "mean": V.mean(),
    "first": V.first(), "unique": V.unique(), "sort": V.sort(), "head": V.head(2), "rolling_mean": V.rolling_mean(2),
    "map_batches": V.map_batches(lambda s: s), "implode": V.implode(), "len": pl.len(), "diff": V.diff(), "n_unique": V.n_unique(),
    "rolling": V.sum().rolling("timestamp", period="2i"), "is_duplicated": V.is_duplicated(), "ewm_mean": V.ewm_mean(com=1),
    "shuffle": V.shuffle(), "sample": V.sample(1), "explode": V.explode(), "filter": V.filter(V > 1), "gather": V.gather(0),
    "max": V.clip(0, V.max()), "min": pl.when(V.min() < V).then(1), "std": (V - 1) / V.std(), "str.join": V.str.join(","),
    "forward": V.fill_null(strategy="forward"), "int_range": pl.int_range(pl.len()), "cumulative_eval": V.cumulative_eval(pl.element().sum()),
    "count": pl.struct(pl.col("a"), V.count()).struct.field("a"), "quantile": V.quantile(0.5), "top_k": V.top_k(2),
    "sort_by": V.sort_by("timestamp"), "reverse": V.reverse(), "is_first_distinct": V.is_first_distinct(),
    "interpolate": V.interpolate(), "value_counts": V.value_counts(), "format": V.str.to_datetime(), "last": V.last().alias("x"),
    "lit of a Series": V + pl.lit(pl.Series([1, 2])), "median": V.struct.with_fields(pl.field("a").median()),
}  # fmt: skip
TAKEN = {
    "map_elements": V.map_elements(lambda x: x), "list.sum": V.list.sum(), "list.eval": V.list.eval(pl.element().rank()),
    "elementwise": V.map_batches(lambda s: s, is_elementwise=True), "is_in": V.is_in([1, 2]), "replace": V.replace({1: 2}),
    "horizontal": pl.max_horizontal("aggregate", "value"), "coalesce": pl.coalesce("a", "b"), "fold": pl.fold(0, lambda a, b: a + b, [V, V]),
    "when": pl.when(V > 1).then(V).otherwise(None), "struct": pl.struct(a=V, b=V * 2), "to_datetime": V.str.to_datetime("%Y-%m-%d"),
    "format": pl.format("{}-{}", V, V), "fill_null": V.fill_null(0), "zero": V.fill_null(strategy="zero"), "clip": V.clip(0, 1),
    "json": V.str.json_decode(pl.Struct({"a": pl.Int64})), "all": pl.all(), "cast": V.cast(pl.Float64), "list.filter": V.list.eval(pl.element().filter(pl.element() > 1)),
}  # fmt: skip
VERBS = {
    "filter": lambda s, e: s.filter(e),
    "filter_not": lambda s, e: s.filter_not(e),
    "map_values": lambda s, e: s.map_values(e),
    "flat_map_values": lambda s, e: s.flat_map_values(e),
    "select_key": lambda s, e: s.select_key(e),
    "group_by": lambda s, e: s.group_by(e),
    "reduce": lambda s, e: s.group_by_key().reduce(e),
    "aggregate": lambda s, e: s.group_by_key().aggregate(lambda: 0, e),
    "join": lambda s, e: s.join(s.to_table(), e),
    "table filter": lambda s, e: s.to_table().filter(e),
    "table map_values": lambda s, e: s.to_table().map_values(e),
}


def stream():
    return StreamsBuilder().stream("in")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    with pytest.raises(TopologyError) as caught:
        stream().map_values(REFUSED[name])
    assert name in str(caught.value)
    assert "row by row" in str(caught.value)
    assert "test_row_by_row.py" in str(caught.value)


@pytest.mark.parametrize("name", TAKEN)
def test_taken(name):
    assert looks_at_other_rows(TAKEN[name]) is None
    stream().map_values(TAKEN[name])


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_takes_expressions_refuses(verb):
    with pytest.raises(TopologyError, match="cum_sum"):
        VERBS[verb](stream(), V.cum_sum())


def test_a_when_without_then():
    with pytest.raises(TopologyError, match=r"pl.when\(\) without its then\(\)"):
        stream().map_values(pl.when(V > 1))


def test_built_in_aggregations_are_the_way_to_sum():
    assert isinstance(stream().group_by_key().aggregate(agg.sum("price")), KTable)


# Everything that the installed Polars has, by what it does: what is taken must give the same for a batch and row by row.

COLUMNS = {
    "int": pl.Series("x", [3, 1, 2, 2, 5, 4]),
    "float": pl.Series("x", [3.5, 1.25, 2.0, 2.0, 0.5, 4.0]),
    "bool": pl.Series("x", [True, False, True, True, False, False]),
    "text": pl.Series("x", ["b", "a,c", "b", "", "dd", "E"]),
    "bytes": pl.Series("x", [b"b", b"a", b"b", b"", b"dd", b"E"]),
    "list": pl.Series("x", [[1, 2], [3], [1, 2], [4, 4], [2, 1], [5]]),
    "struct": pl.Series("x", [{"a": n % 3, "b": n} for n in range(6)]),
    "date": pl.Series("x", [date(2020 + n % 4, 1 + n, 3) for n in range(6)]),
    "category": pl.Series("x", ["b", "a,c", "b", "", "dd", "E"], pl.Categorical),
    "array": pl.Series("x", [[1, 2], [3, 0], [1, 2], [4, 4], [2, 1], [5, 6]], pl.Array(pl.Int64, 2)),
}
X = pl.col("x")
ARGUMENTS = [
    (), (2,), (1, 2), ("b",), ("a", "b"), (0.5,), (X,), (X, 2), ([1, 2],), ("1d",), ({1: 2},), (pl.Int64,), (pl.Float64,), (pl.element() + 1,),
    (pl.element().sum(),), (X, X), ("mean",), (True,),
]  # fmt: skip
NOT_COMPARED = {
    "deserialize", "from_json", "inspect", "meta", "map", "pipe", "pipe_with_dtype", "register_plugin", "shuffle", "sample",
    "rolling_map", "hash",
}  # fmt: skip
FAMILIES = ("", "str", "list", "arr", "struct", "dt", "bin", "cat")


def methods(family):
    owner = getattr(X, family) if family else X
    return [name for name in dir(type(owner)) if not name.startswith("_") and name not in NOT_COMPARED]


def evaluated(expression, column):
    try:
        result = column.to_frame().select(expression)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return None
    return result.to_series() if result.width == 1 else None


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_what_is_taken_does_not_look_at_other_rows(family):
    compared = set()
    for name in methods(family):
        for arguments in ARGUMENTS:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expression = getattr(getattr(X, family) if family else X, name)(*arguments)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                continue
            if not isinstance(expression, pl.Expr) or looks_at_other_rows(expression) is not None:
                continue
            for kind, column in COLUMNS.items():
                whole = evaluated(expression, column)
                if whole is None or len(whole) != len(column):
                    continue  # that one fails, and says so
                rows = [evaluated(expression, column[n : n + 1]) for n in range(len(column))]
                single = [None if row is None else row.to_list() for row in rows]
                assert repr(single) == repr([[one] for one in whole.to_list()]), (family, name, arguments, kind)
                compared.add(name)
    assert len(compared) >= {"": 60, "str": 20, "list": 15, "dt": 10}.get(family, 1)
