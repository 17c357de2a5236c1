"""Wrong uses of the DSL end in the sentence that helps."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from penstock import Grouped, Materialized, Processor, Produced, Serdes, StreamsBuilder, TimeWindows, agg
from penstock.errors import ConfigError, PenstockError
from penstock.log import open_log
from penstock.testing import TopologyTestDriver

CONFIG = {"default.key.serde": "string", "default.value.serde": "json"}


def stream(b: StreamsBuilder) -> Any:
    return b.stream("in")


def grouped(b: StreamsBuilder) -> Any:
    return stream(b).group_by_key()


def windowed(b: StreamsBuilder) -> Any:
    return grouped(b).windowed_by(TimeWindows.of("1 minute"))


async def shout(value: str) -> str:
    return value


class Series:
    """Stands for that of pandas, which is not installed everywhere."""


class Later:
    async def __call__(self, value: Any) -> Any:
        return value


class AsyncProcessor(Processor[Any, Any]):
    async def process(self, record: Any) -> None:  # type: ignore[override]
        """Never awaited."""


AT_BUILD: dict[str, Callable[[StreamsBuilder], Any]] = {
    "windowed aggregate with Materialized": lambda b: windowed(b).aggregate(agg.sum("a"), Materialized("x")),
    "aggregate with Materialized": lambda b: grouped(b).aggregate(agg.sum("a"), Materialized("x")),
    "reduce with Materialized": lambda b: grouped(b).reduce(Materialized("x")),
    "group_by with Grouped": lambda b: stream(b).group_by(Grouped("x")),
    "map_values with Produced": lambda b: stream(b).map_values(Produced(value_serde="string")),
    "a Polars series": lambda b: stream(b).filter(pl.Series([True])),
    "a series of pandas": lambda b: stream(b).map_values(Series()),
    "a data frame": lambda b: stream(b).map_values(pl.DataFrame({"a": [1]})),
    "an array": lambda b: stream(b).map_values(np.array([1])),
    "a list of expressions": lambda b: stream(b).map_values([pl.col("a"), pl.col("b")]),
    "a dict of expressions": lambda b: stream(b).map_values({"a": pl.col("a")}),
    "to(None)": lambda b: stream(b).to(None),
    "to a list": lambda b: stream(b).to(["out"]),
    "None": lambda b: stream(b).map_values(None),
    "a field's name": lambda b: stream(b).group_by("user"),
    "a number": lambda b: stream(b).map_values(5),
    "async in map_values": lambda b: stream(b).map_values(shout),
    "async in filter": lambda b: stream(b).filter(shout),
    "async in foreach": lambda b: stream(b).foreach(shout),
    "async in a partial": lambda b: stream(b).map_values(functools.partial(shout)),
    "async object": lambda b: stream(b).map_values(Later()),
    "async called": lambda b: stream(b).map_values(shout("x")),
    "async processor": lambda b: stream(b).process(AsyncProcessor),
    "agg.sum not called": lambda b: grouped(b).aggregate(agg.sum),
}
HELPS = {
    "windowed aggregate with Materialized": r"not a Materialized.*aggregate\(\.\.\., materialized=Materialized\(\.\.\.\)\)",
    "aggregate with Materialized": r"materialized=Materialized",
    "reduce with Materialized": r"reduce\(\.\.\., materialized=Materialized",
    "group_by with Grouped": r"grouped=Grouped",
    "map_values with Produced": r"produced=Produced",
    "a Polars series": r"not a Series.*its own values",
    "a series of pandas": r"not a Series.*pl\.col",
    "a data frame": r"not a DataFrame.*its own values",
    "an array": r"not a ndarray.*its own values",
    "a list of expressions": r"pl\.struct",
    "a dict of expressions": r"pl\.struct",
    "to(None)": r"to\(\) takes the name of a topic, or a function that returns one, not NoneType None",
    "to a list": r"to\(\) takes the name of a topic.*not list",
    "None": r"The function is missing",
    "a field's name": r'pl\.col\("user"\), or lambda value: value\["user"\]',
    "a number": r"lambda value",
    "async in map_values": r"map_values\(\) calls plain functions; shout .*async def.*map_values_async\(\)",
    "async in filter": r"filter\(\) calls plain functions.*async def",
    "async in foreach": r"foreach\(\) calls plain functions.*async def",
    "async in a partial": r"shout .*async def.*map_values_async",
    "async object": r"async def.*map_values_async",
    "async called": r"An async def was called.*map_values_async",
    "async processor": r"process\(\) of AsyncProcessor is an async def.*map_values_async",
    "agg.sum not called": r'got the function agg\.sum itself.*agg\.sum\("field"\)',
}


@pytest.mark.parametrize("name", AT_BUILD)
def test_when_the_topology_is_built(name: str) -> None:
    with pytest.raises(PenstockError, match=re.compile(HELPS[name], re.DOTALL)):
        AT_BUILD[name](StreamsBuilder())


class NoSuper(Processor[Any, Any]):
    def init(self, context: Any) -> None:
        self.started = True

    def process(self, record: Any) -> None:
        self.context.forward(record)


class AsksForStore(Processor[Any, Any]):
    def process(self, record: Any) -> None:
        self.context.get_state_store("counts")


def with_a_store(b: StreamsBuilder) -> None:
    grouped(b).count(Materialized("counts"))
    stream(b).process(AsksForStore)


AT_RUN: dict[str, tuple[Callable[[StreamsBuilder], Any], str]] = {
    "no super().init": (lambda b: stream(b).process(NoSuper), r"NoSuper has no context: its init\(\) has to call super\(\)\.init\(context\)"),
    "a store that is not connected": (
        with_a_store, r"has no access to a state store 'counts', for the record .*\nHint: Name it in process\(\.\.\., stores=\['counts'\]\)"
    ),
    "a store that is not there": (
        lambda b: stream(b).process(AsksForStore), r"'counts', which the topology does not have.*\nHint: Add it with builder.add_state_store"
    ),
    "an expression returned by filter": (lambda b: stream(b).filter(lambda v: pl.col("a") > 1), r"returned a Polars expression.*without a function"),
    "an expression returned by map_values": (lambda b: stream(b).map_values(lambda v: pl.col("a")), r"returned a Polars expression"),
    "an expression returned by group_by": (lambda b: stream(b).group_by(lambda v: pl.col("a")).count(), r"returned a Polars expression"),
    "an expression returned by a joiner": (
        lambda b: stream(b).left_join(b.table("t"), lambda left, right: pl.col("left")), r"returned a Polars expression"
    ),
    "a repartition key of the wrong type": (lambda b: stream(b).group_by(lambda v: 5).count(), r"internal one.*Grouped\(key_serde=.*Repartitioned"),
    "an output of the wrong type": (lambda b: stream(b).select_key(lambda v: 5).to("out"), r"Give the serdes that fit, in to\(\)"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_RUN)
@pytest.mark.parametrize("batch", [1, 100])
def test_when_it_runs(name: str, batch: int) -> None:
    build, helps = AT_RUN[name]
    builder = StreamsBuilder()
    build(builder)
    driver = TopologyTestDriver(builder.build(), CONFIG, batch_size=batch)

    def run() -> None:
        driver.input_topic("in").pipe({"a": 5}, key="k", timestamp=1)
        driver.flush()

    with pytest.raises(PenstockError, match=re.compile(helps, re.DOTALL)) as caught:
        run()
    assert str(caught.value).count("Hint:") == 1
    driver.close()


def test_what_a_test_writes_is_looked_at_before_it_is_taken():
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        topic = driver.input_topic("in")
        for given, said in (
            ({"timestamp": 2**63}, "has more than 64 bits"),
            ({"timestamp": "9" * 25}, "has more than 64 bits"),
            ({"timestamp": "9" * 5000}, "not a point in time"),
            ({"headers": {"trace": 5}}, "header 'trace'"),
            ({"headers": [(b"trace", b"1")]}, "the name of a header"),
        ):
            with pytest.raises(PenstockError, match=said):
                topic.pipe("a", **given)
        topic.pipe("a", timestamp=2**63 - 1, headers={"trace": "1", "none": None})


def test_the_name_of_a_serde_and_the_url_of_a_log_are_bounded_and_texts(tmp_path: Any, monkeypatch: Any) -> None:
    with pytest.raises(ConfigError, match="a serde in more than 20 others"):
        Serdes.of("list<" * 5000 + "long" + ">" * 5000)
    assert Serdes.of("list<" * 20 + "long" + ">" * 20).name.count("list") == 20
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="the log's URL"):
        open_log(5)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
