"""The console of a real application on Spark, at its own port: its counts are those of the topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import Materialized, StreamsBuilder
from penstock.engines.kafka_streams import KafkaStreams
from penstock.log.open import open_log

from .conftest import RULES, Seen
from .recorded import records

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
WORDS = 600


def counted() -> Any:
    builder = StreamsBuilder()
    words = builder.stream("words")
    words.group_by(lambda _, value: value).count(Materialized("counts")).to_stream().to("out")
    return builder.build()


@pytest.fixture
def application(spark: Any, tmp_path: Path) -> Iterator[tuple[KafkaStreams, Any]]:
    url = f"sqlite:///{tmp_path / 'log.db'}"
    with open_log(url) as log:
        log.create_topic("words", 2)
        log.create_topic("out", 1)
        for partition in range(2):
            rows = [(1_790_000_000_000 + n, f"k{n}", f"w{n % 7}") for n in range(WORDS // 2)]
            log.append("words", partition, records(rows))
        app = KafkaStreams(
            counted(),
            {
                "application.id": "counted",
                "bootstrap.servers": url,
                "commit.interval.ms": 100,
                "default.key.serde": "string",
                "default.value.serde": "string",
                "state.dir": str(tmp_path / "state"),
                "penstock.http.port": 0,
                "penstock.console.token": "t" * 40,
                "penstock.console.allow.writes": True,
            },
            session=spark,
        )
        app.start()
        yield app, log
        app.close()


def test_the_page_counts_what_the_topics_have_and_stops_the_application(
    application: tuple[KafkaStreams, Any], chromium: Any
) -> None:
    app, log = application
    address = app.console_url
    assert address is not None
    base = address.partition("/ui/")[0]
    seen = Seen(chromium, base)
    page = seen.go(address.removeprefix(base))
    page.wait_for_function(
        f"() => document.querySelector('.tile .dim')?.textContent.startsWith('{WORDS}')", timeout=90_000
    )
    out = log.end_offsets(["out"])
    page.wait_for_function(  # which the next report counts
        f"() => document.querySelectorAll('.tile .dim')[1].textContent.startsWith('{sum(out.values()):,} ')",
        timeout=90_000,
    )
    assert "token" not in page.url
    page.goto(f"{base}/ui/topics")
    rows = dict(
        page.evaluate(
            "[...document.querySelectorAll('#topics tbody tr')].map(r => [r.cells[0].textContent, r.cells[2].textContent])"
        )
    )
    assert rows["words"] == str(WORDS)
    assert rows["out"] == f"{sum(out.values()):,}"
    page.goto(f"{base}/ui/stores/counts?ask=1&key=w3")
    count = sum(1 for n in range(WORDS // 2) if n % 7 == 3) * 2
    page.wait_for_selector("#entries")
    assert page.locator("#entries td.value").inner_text() == str(count)
    page.goto(f"{base}/ui/groups/counted")
    assert page.locator(".facts").inner_text().count("lag 0")
    page.evaluate((Path(__file__).parent / "vendor" / "axe.min.js").read_text())
    assert page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)["violations"] == []
    assert seen.problems == []
    assert seen.foreign == []
    bearer = {"authorization": f"Bearer {'t' * 40}", "origin": base, "x-penstock": "1"}
    assert 'penstock_alert{application="counted",name="stuck"} 0' in httpx.get(f"{base}/metrics", trust_env=False).text
    stopped = httpx.post(f"{base}/ui/api/v1/apps/counted/stop", json={}, headers=bearer, trust_env=False)
    assert stopped.json()["stopping"] is True
    assert app.wait(60_000)
    seen.context.close()
