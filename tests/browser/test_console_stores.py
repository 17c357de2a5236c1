"""Queries of stores in a real browser, over a checkpoint as workers write it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.query.http.service import QueryService

from .conftest import Console
from .recorded import APPLICATION

sys.path.append(str(Path(__file__).parents[1] / "unit" / "query"))
from committed_checkpoint import Checkpoint, T

LARGE = "x" * 100_000


@pytest.fixture(scope="module")
def stores(console: Console, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A store of each kind for the application of the console."""
    made = Checkpoint(tmp_path_factory.mktemp("stores"))
    made.fill()
    made.batch(lambda task, store: [store("plain").put(f"large{n}", LARGE) for n in range(3)] if task else None)
    service = QueryService(made.state())
    application: Any = console.data.site.applications.get(APPLICATION)
    before, application.queries = application.queries, lambda: service
    yield
    application.queries = before
    service.close()
    made.close()


class Asking:
    """The page of a store: fills its form, and reads the answer."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def ask(self, **fields: str) -> list[list[str]]:
        for name, text in fields.items():
            field = self.page.locator(f"#ask [name={name}]")
            if field.evaluate("each => each.tagName") == "SELECT":
                field.select_option(text)
            else:
                field.fill(text)
        self.page.locator("#ask button").click()
        self.page.wait_for_function("() => document.documentElement.dataset.ready === 'true'")
        found: list[list[str]] = self.page.evaluate(
            "[...document.querySelectorAll('#entries tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
        )
        return found

    @property
    def refused(self) -> str:
        return str(self.page.locator("[role=alert]").inner_text())


@pytest.fixture
def store(look: Callable[..., Any], stores: None) -> Callable[[str], Asking]:
    return lambda name: Asking(look(f"/stores/{name}").page)


def test_one_key_a_prefix_a_range_and_all(store: Callable[[str], Asking]) -> None:
    asking = store("counts")
    assert [row[:2] for row in asking.ask(by="key", key="k3")] == [["k3", "3"]]
    assert [row[0] for row in asking.ask(by="prefix", key="k")] == [f"k{n}" for n in range(6)]
    assert [row[0] for row in asking.ask(by="range", **{"from": "k1", "to": "k4"})] == ["k1", "k2", "k3", "k4"]
    assert [row[0] for row in asking.ask(by="all", key="")] == [f"k{n}" for n in range(6)]
    assert "about 6 entries" in asking.page.locator("#about").inner_text()


def test_what_is_not_there_and_what_is_not_understood_is_said_in_words(store: Callable[[str], Asking]) -> None:
    asking = store("counts")
    assert asking.ask(by="key", key="nothing") == []
    assert "no key 'nothing'" in asking.refused
    asking.ask(by="prefix", key="")
    assert "the prefix is empty" in asking.refused
    asking.ask(by="key", key="zz", encoding="hex")
    assert "'zz' is not a key" in asking.refused
    asking.page.goto(asking.page.url.partition("?")[0] + "?ask=1&by=magic&key=k")
    assert "cannot be asked by 'magic'" in asking.refused
    asking.page.goto(asking.page.url.partition("?")[0] + "?ask=1&by=all&cursor=%25")
    assert "not a cursor" in asking.refused


def test_windows_and_sessions_of_a_key_and_of_a_time(store: Callable[[str], Asking]) -> None:
    asking = store("windows")
    assert [row[2] for row in asking.ask(by="key", key="k2")] == ["2", "12"]
    assert [row[2] for row in asking.ask(by="key", key="k2", **{"from": str(T + 1)})] == ["12"]
    assert len(asking.ask(by="all", key="", **{"from": str(T), "to": str(T)})) == 6
    asking.ask(by="all", **{"from": "yesterday"})
    assert "yesterday" in asking.refused
    sessions = store("sessions")
    assert [row[2] for row in sessions.ask(by="key", key="k5")] == ["5"]
    assert sessions.ask(by="key", key="k5", **{"from": str(T + 1000)}) == []
    assert "no such entry" in sessions.page.locator(".nothing").inner_text()


@pytest.mark.whole
def test_versions_of_a_key_and_its_value_at_a_time(store: Callable[[str], Asking]) -> None:
    asking = store("versions")
    assert [row[2] for row in asking.ask(by="versions", key="k1")] == ["new", "old"]
    assert [row[2] for row in asking.ask(by="key", key="k1")] == ["new"]
    assert [row[2] for row in asking.ask(by="key", key="k1", **{"from": str(T + 50)})] == ["old"]


def test_large_values_are_cut_in_a_list_and_whole_on_demand(store: Callable[[str], Asking]) -> None:
    asking = store("plain")
    rows = asking.ask(by="prefix", key="large")
    assert [len(row[1]) < 3000 for row in rows] == [True] * 3
    asking.page.locator("#entries a", has_text="whole").first.click()
    asking.page.wait_for_function(
        "n => document.querySelector('#entries td.value')?.textContent.length === n", arg=100_000
    )


@pytest.mark.whole
def test_a_store_with_an_answer_is_accessible_in_both_schemes_and_fits(look: Callable[..., Any], stores: None) -> None:
    seen = look("/stores/windows?ask=1&by=all")
    assert seen.axe() == []
    seen.page.emulate_media(color_scheme="dark")
    seen.page.set_viewport_size({"width": 360, "height": 800})
    assert seen.axe() == []
    assert not seen.is_too_wide()
