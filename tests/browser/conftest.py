"""A real browser, and a console for it. Without a browser the tests are skipped; PENSTOCK_REQUIRE_BROWSER=1 forbids it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.console.web.server import ConsoleAddress, ConsoleServer

from .recorded import Recorded, recorded

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


def _browser() -> str | None:
    given = os.environ.get("PENSTOCK_CHROMIUM")
    return given or next((found for name in BROWSERS if (found := shutil.which(name))), None)


@pytest.fixture(scope="module")  # Playwright keeps an event loop running, in which other tests cannot run theirs
def chromium() -> Iterator[Any]:
    place = _browser()
    if place is None:
        why = f"there is no browser: none of {', '.join(BROWSERS)} (apt-get install chromium)"
        if os.environ.get("PENSTOCK_REQUIRE_BROWSER") == "1":
            pytest.fail(why)
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=place, args=arguments)
        yield browser
        browser.close()


class Seen:
    """A page of the console in the browser, and what went wrong in it."""

    def __init__(self, browser: Any, url: str, scheme: str = "light", width: int = 1280) -> None:
        self.context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)  # a busy machine
        self.url = url
        self.problems: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda said: said.type == "error" and self.problems.append(said.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "request", lambda asked: asked.url.startswith((url, "data:", "blob:")) or self.foreign.append(asked.url)
        )

    def go(self, path: str = "/") -> Any:
        self.page.goto(self.url + path)
        self.page.wait_for_function("() => document.documentElement.dataset.ready === 'true'")
        return self.page

    def axe(self) -> list[str]:
        """What axe-core finds against WCAG A and AA."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("rules => axe.run(document, {runOnly: rules})", RULES)
        return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found["violations"]]

    def is_too_wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))


class Console:
    """A running console over recorded figures."""

    def __init__(self, data: Recorded, port: int = 0) -> None:
        self.data = data
        self.server = ConsoleServer(data.site, ConsoleAddress(port=port, token=None))
        self.server.start()
        self.url = f"http://127.0.0.1:{self.server.port}"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Console]:
    with recorded(tmp_path_factory.mktemp("console")) as data:
        running = Console(data)
        yield running
        running.server.close()


@pytest.fixture
def look(chromium: Any, console: Console) -> Iterator[Callable[..., Seen]]:
    """Opens windows at the console; at the end none may have complained, or asked another host."""
    opened: list[Seen] = []

    def at(path: str = "/", **how: Any) -> Seen:
        opened.append(Seen(chromium, console.url, **how))
        opened[-1].go(path)
        return opened[-1]

    yield at
    for each in opened:
        assert each.problems == []
        assert each.foreign == []
        each.context.close()
