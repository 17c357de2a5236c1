"""Errors of a user's functions at several lines, in both processing modes, as a console of another process shows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import Materialized, StreamsBuilder
from penstock.console.applications import Applications
from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.console.web.site import Permissions, Site
from penstock.errors import ProcessingError

from .conftest import Bench

WORDS = [f"x{n}" for n in range(40)] + ["7", "8"] * 3 + ["ok", "fine", "13"]


def checked(value: str) -> str:
    if value.startswith("x"):
        raise ValueError(f"no word: {value}")  # WORD
    if value == "7":
        raise ValueError("no sevens")  # SEVEN
    if value == "8":
        return {"9": value}[value]  # EIGHT
    return value


def without_thirteen(value: int) -> str:
    return str(100 // (value - 13))  # THIRTEEN


def checked_words(source: str) -> Any:
    builder = StreamsBuilder()
    words = builder.stream(source).map_values(checked)
    by_word = words.select_key(lambda _, value: value).repartition()
    lengths = by_word.map_values(lambda value: int(value) if value.isdecimal() else len(value))
    lengths.map_values(without_thirteen).group_by_key().count(Materialized("counts"))
    return builder.build()


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(n for n, text in enumerate(lines, 1) if text.endswith(f"  # {mark}"))


@contextmanager
def console(bench: Bench, **permissions: Any) -> Iterator[httpx.Client]:
    """A console in this process that finds the application by its log, as ``penstock ui`` does."""
    applications = Applications(bench.log, {"bootstrap.servers": bench.url, "state.dir": str(bench.root / "state")})
    server = ConsoleServer(
        Site(applications, bench.log, Permissions(**permissions)), ConsoleAddress(port=0, token=None)
    )
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=120) as http:
        yield http
    server.close()
    applications.close()


@pytest.mark.parametrize("mode", ["micro_batch", "continuous"])
def test_errors_by_line_and_the_record_that_ended_it(bench: Bench, mode: str) -> None:
    bench.log.create_topic("in", 1)
    settings = {"processing.mode": mode, "processing.exception.handler": "continue", "commit.interval.ms": 50}
    bench.write("in", [(f"k{n}", word, n) for n, word in enumerate(WORDS)])
    bench.run(checked_words("in"), **settings)
    with console(bench) as http:
        found = groups(http)
        assert {at: each["records"] for at, each in found.items()} == {
            ("ValueError", line_of("WORD")): 40,
            ("ValueError", line_of("SEVEN")): 3,
            ("KeyError", line_of("EIGHT")): 3,
            ("ZeroDivisionError", line_of("THIRTEEN")): 1,
        }
        word = found["ValueError", line_of("WORD")]
        assert (word["function"], word["file"]) == ("checked", __file__)
        assert word["examples"][-1]["offset"] == 39
        assert [each["said"] for each in word["examples"]] == [
            f"no word: x{each['offset']}" for each in word["examples"]
        ]
        assert sum(each["records"] for each in word["minutes"]) == 40
        page = http.get("/errors").text
        assert page.count('<tr data-key="KSTREAM-') == 4
        assert 'href="/topics/in/0/39"' in page
        internal = found["ZeroDivisionError", line_of("THIRTEEN")]["place"]["topic"]
        assert internal.endswith("-repartition")
        assert (f'href="/topics/{internal}/' in page) == (mode == "continuous")
        metrics = http.get("/api/v1/metrics").text
        assert "no word" not in metrics
    settings["processing.exception.handler"] = "fail"
    bench.write("in", [("a", "fine", 100), ("secret", "x41", 101)])
    with pytest.raises(ProcessingError, match="no word: x41"):
        bench.run(checked_words("in"), **settings)
    with console(bench) as http:
        failure = http.get("/api/v1/apps/app").json()["failure"]
        offset = len(WORDS) + 1
        assert failure["record"] == {"topic": "in", "partition": 0, "offset": offset}
        assert (failure["task"], failure["kind"], failure["function"]) == ("0_0", "ValueError", "checked")
        assert (failure["file"], failure["line"]) == (__file__, line_of("WORD"))
        word = groups(http)["ValueError", line_of("WORD")]
        assert (word["records"], word["ended"]) == (41, 1)
        for path in ("/", "/errors"):
            text = http.get(path).text
            assert f'<a href="/topics/in/0/{offset}">in-0 offset {offset}</a>' in text
            assert "no word: x41" in text
        assert "x41" in http.get(f"/topics/in/0/{offset}").text
    with console(bench, messages=False) as http:
        for path in ("/", "/errors", "/api/v1/apps/app", "/api/v1/apps/app/errors", "/api/v1/alerts"):
            assert "x41" not in http.get(path).text, path
        assert f"in-0 offset {offset}" in http.get("/errors").text
        assert "/topics/in/0" not in http.get("/errors").text


def groups(http: httpx.Client) -> dict[tuple[str, int], dict[str, Any]]:
    drops = http.get("/api/v1/apps/app/errors").json()["drops"]
    return {(each["kind"], each["line"]): each for each in drops}
