"""Every page of the console in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.console.web.server import ConsoleAddress, ConsoleServer
from penstock.log.base import TopicPartition
from penstock.state.restores.restore_progress import Restore

from .recorded import PROGRESS, records

PAGES = [
    "/", "/topology?node=KSTREAM-MAPVALUES-0000000001", "/batches", "/topics", "/topics/orders", "/topics/orders/0/5",
    "/tasks", "/groups", "/groups/audit", "/stores", "/stores/os-counts", "/errors",
]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_in_both_schemes_and_fits(look: Callable[..., Any], path: str) -> None:
    seen = look(path)
    assert seen.axe() == []
    assert not seen.is_too_wide()
    seen.page.emulate_media(color_scheme="dark")
    seen.page.set_viewport_size({"width": 360, "height": 800})
    assert seen.axe() == []
    assert not seen.is_too_wide()
    colour = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", colour)[:3])) < 200


def test_the_overview_shows_the_figures_and_goes_on_by_itself(look: Callable[..., Any], console: Any) -> None:
    page = look("/").page
    assert page.locator(".state").first.inner_text() == "RUNNING"
    number = console.data.batch()
    page.wait_for_function("n => document.querySelector('.facts b')?.textContent === n", arg=f"{number:,}")
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
    page.wait_for_function("n => document.querySelector('.facts b')?.textContent === n", arg=f"{number:,}")


def test_an_update_keeps_the_focus_and_open_details(look: Callable[..., Any], console: Any) -> None:
    page = look("/").page
    page.locator("details[data-key=settings] summary").click()
    page.evaluate("document.querySelector('details[data-key=settings]').dataset.ownMark = '1'")
    number = console.data.batch()
    page.wait_for_function("n => document.querySelector('.facts b')?.textContent === n", arg=f"{number:,}")
    assert page.locator("details[data-own-mark]").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_a_page_comes_back_after_a_restart_of_the_server(look: Callable[..., Any], console: Any) -> None:
    second = ConsoleServer(console.data.site, ConsoleAddress(token=None))
    second.start()
    seen = look("/")
    seen.url = f"http://127.0.0.1:{second.port}"
    seen.go("/")
    second.close()
    seen.page.wait_for_function("() => document.getElementById('connection').textContent !== ''")
    number = console.data.batch()
    again = ConsoleServer(console.data.site, ConsoleAddress(port=second.port, token=None))
    again.start()
    seen.page.wait_for_function("n => document.querySelector('.facts b')?.textContent === n", arg=f"{number:,}")
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
    page.wait_for_function("() => document.documentElement.dataset.ready === 'true'")
    assert page.locator("#zone").inner_text().endswith("mandu")
    shown, told = page.evaluate("(t => [t.textContent, t.dateTime])(document.querySelector('time:not([data-ago])'))")
    assert int(shown.split(":")[1]) == (int(told[14:16]) + 45) % 60
    context.close()


def test_the_graph_has_a_box_for_each_node_topic_and_store_that_keys_walk_along(
    look: Callable[..., Any], console: Any
) -> None:
    page = look("/topology").page
    page.wait_for_selector(".box.node")
    console.data.batch()  # rates are those of the last ten seconds
    assert page.locator(".box.node").count() == 9
    assert page.locator(".box.topic").count() == 3
    fills = page.evaluate(
        "[...document.querySelectorAll('.box')].map(b => getComputedStyle(b.querySelector('rect')).fill)"
    )
    assert len(set(fills)) == 3 and "rgb(0, 0, 0)" not in fills  # noqa: PT018 - nodes, topics, stores
    assert "rows" in page.locator(".box.store title").text_content()
    page.wait_for_function(
        "() => [...document.querySelectorAll('.rate')].some(each => each.textContent.endsWith('/s'))"
    )
    page.locator("[data-name='KSTREAM-MAPVALUES-0000000001']").focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.name") == "KSTREAM-KEY-SELECT-0000000002"
    page.keyboard.press("Enter")
    page.wait_for_selector("#chosen")
    assert "SelectKey" in page.locator("#chosen").inner_text()


def test_a_filter_finds_messages_and_a_wrong_one_says_where(look: Callable[..., Any]) -> None:
    page = look("/topics/orders").page
    page.locator("input[name=filter]").fill('value.total > 430 and key = "u4"')
    page.keyboard.press("Enter")
    page.wait_for_url("**filter=**")
    page.wait_for_function("() => document.getElementById('searched').dataset.done === '300'")
    assert page.locator("#messages tbody tr").count() == 1  # 293 is u4
    page.goto(page.url.partition("?")[0] + "?filter=value.total+%3E")
    assert "character" in page.locator("[role=alert]").inner_text()


def test_new_messages_come_by_themselves_and_markup_in_them_is_text(look: Callable[..., Any], console: Any) -> None:
    page = look("/topics/access_log-bad").page
    assert "<script>alert(1)</script>" in page.locator("#messages").inner_text()
    console.data.log.append("access_log-bad", 0, records([(1_790_000_000_000, "k", "<img src=x onerror=alert(2)>")]))
    page.wait_for_function("() => document.querySelectorAll('#messages tbody tr').length >= 2")
    assert page.locator("#messages img").count() == 0


def test_without_a_server_of_sql_its_page_says_so(look: Callable[..., Any]) -> None:
    assert "No server of SQL is known." in look("/sql").page.locator("main").inner_text()


def test_typing_narrows_a_table(look: Callable[..., Any]) -> None:
    page = look("/topics").page
    page.locator("#find").fill("orders")
    assert page.locator("#topics tbody tr:visible").count() == 1
    page.locator("input[name=internal]").check()
    page.wait_for_function("() => location.search.includes('internal=no')")
    assert page.locator("#topics tbody tr[data-key=os-check-os-counts-repartition]").count() == 0
    assert page.locator("#topics tbody tr[data-key=orders]").count() == 1


def test_a_batch_shows_its_tasks_as_bars_and_the_chart_is_drawn(look: Callable[..., Any], console: Any) -> None:
    number = console.data.batch()
    page = look(f"/batches?batch={number - 1}").page
    assert page.locator(".gantt tbody tr").count() == len(
        {task["task"] for task in PROGRESS[(number - 1) % len(PROGRESS)].tasks}
    )
    page.wait_for_selector("#charts .uplot:nth-child(3) canvas")


def test_a_zoom_of_the_charts_stays_over_updates_and_visits(look: Callable[..., Any], console: Any) -> None:
    page = look("/batches?range=1h&past=hour").page
    over = page.locator("#charts .u-over").first
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_function("() => location.hash.startsWith('#zoom=')")
    zoom = page.evaluate("location.hash")
    number = console.data.batch()
    page.wait_for_function("n => document.querySelector('.facts b')?.textContent === n", arg=f"{number:,}")
    assert page.locator("#unzoom").is_visible()
    page.reload()
    page.wait_for_selector("#charts .uplot:nth-child(3) canvas")
    assert page.evaluate("location.hash") == zoom
    page.locator("#unzoom").click()
    assert page.evaluate("location.hash") == ""


def test_the_lag_of_a_group_is_shown_in_records_and_seconds(look: Callable[..., Any]) -> None:
    text = look("/groups/os-check").page.locator("main").inner_text()
    assert "60" in text
    assert "RUNNING" not in text


def test_the_list_of_groups_says_how_old_a_lag_is_and_whether_it_grows(look: Callable[..., Any], console: Any) -> None:
    page, log, place = look("/groups").page, console.data.log, TopicPartition("orders", 0)
    row = page.locator("#groups tr[data-key=audit]")
    try:
        for committed in (50, 40, 30, 20, 10):
            log.commit_offsets("audit", {place: committed})
            page.wait_for_function(
                "n => document.querySelector('#groups tr[data-key=audit]')?.cells[1].textContent === n",
                arg=f"{180 - committed}",
            )
            if "grows" in row.inner_text():
                break
        assert "grows" in row.inner_text()
        assert "min" in row.locator("td").nth(2).inner_text()
    finally:
        log.commit_offsets("audit", {place: 60})


def test_restores_are_shown_while_they_go_on_and_go_when_they_are_done(look: Callable[..., Any], console: Any) -> None:
    seen = look("/tasks")
    page, restores = seen.page, console.data.restores
    assert page.locator("#restores").count() == 0
    half = Restore(("os-counts",), 3, "os-check-os-counts-changelog", "thread-1", 1_000, 4_000, 0.25, 2.0)
    try:
        restores[:] = [half, Restore(("visits", "users"), 0, "segments", "worker-2", 120, None, 0.9, 30.0)]
        page.wait_for_selector("#restores")
        text = page.locator("#restores tbody tr").first.inner_text()
        for figure in ("os-counts", "3", "1,000 of 4,000", "25 %", "500 /s", "6.0 s"):
            assert figure in text
        assert "visits, users" in page.locator("#restores").inner_text()
        assert seen.axe() == []
        restores[0] = replace(half, records=3_900, share=0.975, seconds=4.0)
        page.wait_for_function("() => document.querySelector('#restores')?.textContent.includes('3,900 of 4,000')")
    finally:
        restores.clear()
    page.wait_for_function("() => document.querySelector('#restores') === null")


def test_an_error_leads_to_the_record_and_a_dead_letter_to_what_it_was(look: Callable[..., Any], console: Any) -> None:
    console.data.reject("orders", 2, 11, "an even length")
    seen = look("/errors")
    page = seen.page
    assert seen.axe() == []
    page.locator("a", has_text="orders-2 @ 11").first.click()
    page.wait_for_function("() => document.querySelector('h1')?.textContent === 'orders-2 @ 11'")
    assert '"id": 35' in (page.locator("#value").text_content() or "")
    page.go_back()
    page.locator("#letters tbody tr").first.locator("a").first.click()
    page.wait_for_selector("#original a")
    page.locator("#original a").click()
    page.wait_for_function("() => document.querySelector('h1')?.textContent === 'orders-2 @ 11'")
