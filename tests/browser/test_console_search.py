"""A search of messages that goes on by itself, and a message with its neighbours, in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.console import messages


def test_a_search_goes_on_to_its_end_by_itself(
    look: Callable[..., Any], console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_SECONDS", 0.0)  # each part reads one piece
    monkeypatch.setattr(messages, "_CHUNK", 20)
    monkeypatch.setattr(messages, "_MOST_CHUNK", 20)
    page = look("/topics/orders?text=%22id%22%3A+29").page
    page.wait_for_function("() => document.getElementById('searched').dataset.done === '300'")
    assert page.locator("#messages tbody tr").count() == 11  # 29, 290 to 299
    page.wait_for_selector("#progress", state="hidden")
    assert page.locator("#go-on").count() == 0
    assert "11 shown; 300 of 300" in page.locator("#searched").inner_text()


def test_a_search_by_key_that_goes_on_still_names_its_partition_and_leads_to_the_others(
    look: Callable[..., Any], console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_SECONDS", 0.0)
    monkeypatch.setattr(messages, "_CHUNK", 20)
    monkeypatch.setattr(messages, "_MOST_CHUNK", 20)
    page = look("/topics/orders?key=nowhere").page
    page.wait_for_selector("#progress", state="hidden")
    page.wait_for_function("() => { const s = document.getElementById('searched').dataset; return s.done === s.total }")
    assert "offsets searched in partition" in page.locator("#searched").inner_text()
    page.locator("#searched a").click()
    page.wait_for_url("**partition=all**")


def test_a_search_can_be_cancelled_and_goes_on_later(
    look: Callable[..., Any], console: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_SECONDS", 0.0)
    monkeypatch.setattr(messages, "_CHUNK", 1)
    monkeypatch.setattr(messages, "_MOST_CHUNK", 1)
    page = look("/topics/orders?text=nowhere").page
    page.locator("#cancel").click()
    page.wait_for_selector("#progress", state="hidden")
    assert "Cancelled" in page.locator("#searched").inner_text()
    assert page.locator("#go-on").count() == 1


def test_keys_lead_to_the_next_and_previous_message_and_all_fits_a_phone(look: Callable[..., Any]) -> None:
    seen = look("/topics/orders/0/5", width=380)
    seen.page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert seen.axe() == []
    assert not seen.is_too_wide()
    seen.page.keyboard.press("n")
    seen.page.wait_for_url("**/topics/orders/0/6")
    seen.page.wait_for_function("() => document.documentElement.dataset.ready === 'true'")
    seen.page.keyboard.press("p")
    seen.page.wait_for_url("**/topics/orders/0/5")


def test_a_table_is_sorted_by_its_heads_and_the_address_keeps_it(look: Callable[..., Any]) -> None:
    page = look("/topics").page
    head = page.locator("#topics th", has_text="Records")
    head.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert page.locator("#topics tbody tr").first.get_attribute("data-key") == "access_log"
    page.reload()
    page.wait_for_function("() => document.documentElement.dataset.ready === 'true'")
    assert page.locator("#topics tbody tr").first.get_attribute("data-key") == "access_log"
    page.locator("#topics th", has_text="Records").press("Enter")
    counts = [int(each.replace(",", "")) for each in page.locator("#topics td:nth-child(3)").all_text_contents()]
    assert counts == sorted(counts)
