"""Every page of the console in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.console.web.server import ConsoleAddress, ConsoleServer

PAGES = ["/"]


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_a_page_is_accessible_in_both_schemes_and_fits(
    look: Callable[..., Any], path: str, scheme: str, width: int
) -> None:
    seen = look(path, scheme=scheme, width=width)
    assert seen.axe() == []
    assert not seen.is_too_wide()
    colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 200) == (scheme == "dark")


def test_the_overview_shows_the_figures_and_goes_on_by_itself(look: Callable[..., Any], console: Any) -> None:
    page = look("/").page
    assert page.locator(".state").first.inner_text() == "RUNNING"
    number = console.data.batch()
    page.wait_for_function("n => document.querySelector('.facts b').textContent === n", arg=f"{number:,}")
    assert "KSTREAM-" in page.locator(".findings").inner_text()


def test_a_frozen_page_stands_still_until_it_goes_on(look: Callable[..., Any], console: Any) -> None:
    page = look("/").page
    page.keyboard.press("f")
    assert page.locator("#freeze").get_attribute("aria-pressed") == "true"
    before = page.locator(".facts b").inner_text()
    number = console.data.batch()
    page.wait_for_timeout(1200)
    assert page.locator(".facts b").inner_text() == before
    page.locator("#freeze").click()
    page.wait_for_function("n => document.querySelector('.facts b').textContent === n", arg=f"{number:,}")


def test_an_update_keeps_the_focus_and_open_details(look: Callable[..., Any], console: Any) -> None:
    page = look("/").page
    page.locator("details[data-key=settings] summary").click()
    page.evaluate("document.querySelector('details[data-key=settings]').dataset.ownMark = '1'")
    number = console.data.batch()
    page.wait_for_function("n => document.querySelector('.facts b').textContent === n", arg=f"{number:,}")
    assert page.locator("details[data-own-mark]").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_page_comes_back_after_a_restart_of_the_server(look: Callable[..., Any], console: Any) -> None:
    second = ConsoleServer(console.data.site, ConsoleAddress(token=None))
    second.start()
    seen = look("/")
    seen.url = f"http://127.0.0.1:{second.port}"
    seen.go("/")
    second.close()
    seen.page.wait_for_function("document.getElementById('connection').textContent !== ''")
    number = console.data.batch()
    again = ConsoleServer(console.data.site, ConsoleAddress(port=second.port, token=None))
    again.start()
    seen.page.wait_for_function("n => document.querySelector('.facts b').textContent === n", arg=f"{number:,}")
    assert seen.page.locator("#connection").inner_text() == ""
    again.close()
    console.data.site.is_stopping = lambda: console.server._server.is_stopping
    seen.problems[:] = [each for each in seen.problems if "ERR_" not in each]  # the refused connections in between
    seen.foreign.clear()


def test_keys_open_pages_help_and_the_other_scheme(look: Callable[..., Any]) -> None:
    page = look("/").page
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("Tab")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_times_are_shown_in_the_readers_zone(chromium: Any, console: Any) -> None:
    context = chromium.new_context(timezone_id="Asia/Kathmandu")
    page = context.new_page()
    page.goto(console.url)
    page.wait_for_function("document.documentElement.dataset.ready === 'true'")
    assert page.locator("#zone").inner_text().endswith("mandu")
    shown, told = page.evaluate("(t => [t.textContent, t.dateTime])(document.querySelector('time:not([data-ago])'))")
    assert int(shown.split(":")[1]) == (int(told[14:16]) + 45) % 60
    context.close()
