"""Every example gives what its Java original gives for the same records."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import TopologyTestDriver, Window, Windowed

EXAMPLES = Path(__file__).parents[3] / "examples"
HOUR, DAY = 3_600_000, 86_400_000
WORDS = ["all", "streams", "lead", "to", "kafka"]
COUNTS_1 = [(word, "1") for word in sorted(WORDS)]
COUNTS_2 = [("all", "1"), ("hello", "1"), ("join", "1"), ("kafka", "3"), ("lead", "1"), ("streams", "2"), ("summit", "1"), ("to", "1")]  # fmt: skip
FIRST_COUNTS = [(word, 1) for word in WORDS]
LATER_COUNTS = [("hello", 1), ("kafka", 2), ("streams", 2), ("join", 1), ("kafka", 3), ("summit", 1)]
SESSIONS = [("jo@0->0", 1), ("jo@2400000->2400000", 1), ("bill@2460000->2460000", 1)]
MERGED = [("jo@0->0", None), ("jo@2400000->2400000", None), ("jo@0->2400000", 3)]
ORDERS_BY_HOUR = [("home@0", 1), ("media@0", 1), ("home@3600000", 1)]


def views(start: str, *counts: tuple[int, str, int]) -> list[tuple[Any, Any]]:
    return [({start: at, "region": region}, {"count": n, "region": region}) for at, region, n in counts]


PAGE_VIEWS = [(0, "europe", 1), (0, "UNKNOWN", 1), (0, "europe", 2), (DAY, "europe", 1)]

EXPECTED: dict[str, dict[str, list[tuple[Any, Any]]]] = {
    "anomaly_detection": {"AnomalousUsers": [("[alice@0/60000]", 3), ("[alice@0/60000]", 4)]},
    "global_tables": {
        "enriched-order": [
            (
                1,
                {
                    "order": {"customer_id": 7, "product_id": 3},
                    "customer": {"name": "alice"},
                    "product": {"name": "lamp"},
                },
            )
        ]
    },
    "line_split": {"streams-linesplit-output": [(None, word) for word in WORDS]},
    "orders": {
        "turnover-by-gender": [("female", 40.0), ("male", 8.5), ("female", 60.0)],
        "orders-by-hour": ORDERS_BY_HOUR,
    },
    "page_views_typed": {"streams-pageviewstats-typed-output": views("windowStart", *PAGE_VIEWS)},
    "page_views_untyped": {"streams-pageviewstats-untyped-output": views("windowstart", *PAGE_VIEWS)},
    "pipe": {"streams-pipe-output": [(None, "all streams lead to kafka"), ("k", "hello")]},
    "sums": {
        "sum-of-odd-numbers-topic": [(1, 1), (1, 4), (1, 9), (1, 16)],
        "sum-of-stock-topic": [("all", 10), ("all", 15), ("all", 12)],
    },
    "temperature": {
        "iot-temperature-max": [
            (Windowed("temp", Window(0, 5000)), "25"),
            (Windowed("temp", Window(0, 5000)), "25"),
            (Windowed("temp", Window(5000, 10_000)), "30"),
        ]
    },
    "top_articles": {
        "TopNewsPerIndustry": [
            (Windowed("eng", Window(0, HOUR)), "news-1"),
            (Windowed("eng", Window(0, HOUR)), "news-1\nnews-2"),
            (Windowed("eng", Window(0, HOUR)), "news-2\nnews-1"),
            (Windowed("law", Window(0, HOUR)), "news-9"),
        ]
    },
    "user_regions": {"LargeRegions": [("europe", 2), ("europe", 3), ("europe", 2)]},
    "user_sessions": {"play-events-per-session": [*SESSIONS, *MERGED]},
    "word_count": {"streams-wordcount-output": [*FIRST_COUNTS, *LATER_COUNTS]},
    "word_count_process": {"streams-wordcount-processor-output": [*COUNTS_1, *COUNTS_2]},
    "word_count_processor": {"streams-wordcount-processor-output": [*COUNTS_1, *COUNTS_2]},
}


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where annotations of its classes are resolved
    spec.loader.exec_module(module)
    return module


def outputs(example: Any, batch_size: int) -> dict[str, list[tuple[Any, Any]]]:
    config = {**example.config, "statestore.cache.max.bytes": 0}
    with TopologyTestDriver(example.topology, config, batch_size=batch_size) as driver:
        for topic, key, value, *timestamp in example.RECORDS:
            driver.input_topic(topic).pipe(value, key=key, timestamp=timestamp[0] if timestamp else 0)
        driver.flush()
        topics = {node.topic for node in driver.topology.sinks if not node.internal}
        return {topic: driver.output_topic(topic).read_key_values_to_list() for topic in topics}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("batch_size", [1, 1000])
def test_example(name: str, batch_size: int) -> None:
    assert outputs(load(name), batch_size) == EXPECTED[name]


@pytest.mark.parametrize("batch_size", [1, 1000])
def test_typed_orders(batch_size: int) -> None:
    example = load("typed_orders")
    made = outputs(example, batch_size)
    amounts = [(value.name, str(value.amount), value.currency.name) for _, value in made["invoices"]]
    assert amounts == [("Ann", "39.80", "EUR"), ("Bob", "8.50", "USD"), ("Ann", "0.90", "EUR")]
    turnover = [(country, value.orders, str(value.amount)) for country, value in made["turnover"]]
    assert turnover == [("IT", 1, "39.80"), ("NO", 1, "8.50"), ("IT", 2, "40.70")]


def test_every_example_is_tested_and_listed() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {*EXPECTED, "access_log", "embedded_service", "typed_orders"}
    page = (EXAMPLES.parent / "docs" / "examples.md").read_text()
    assert [name for name in sorted(names) if f"{name}.py" not in page] == []
