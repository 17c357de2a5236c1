"""Pictures of every page, at three widths in both schemes, over programs that run; PENSTOCK_PICTURES names a folder to keep them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.console.web.server import ConsoleServer

from .conftest import AXE, RULES, Seen
from .lived_in import PAGES, lived_in

pytestmark = [pytest.mark.whole, pytest.mark.spark]
WIDTHS = (1440, 768, 380)

# Text that its box hides and that nothing tells in whole, text outside of the window that no frame scrolls to, and
# targets that are less than 24 px high and stand alone. Boxes that only readers of screens see are left out.
WRONG = """() => {
  const found = [];
  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest(".hidden, svg, .uplot");
  const frame = (e) => { for (let at = e; at && at !== document.body; at = at.parentElement)
    if (/auto|scroll/.test(getComputedStyle(at).overflowX)) return at; };
  const name = (e) => `${e.tagName.toLowerCase()}${e.id && "#" + e.id}.${e.className}: ${e.textContent.trim().slice(0, 60)}`;
  for (const e of document.body.querySelectorAll("*")) {
    if (!shown(e)) continue;
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    const hides = /hidden|clip/.test(style.overflowX) && e.scrollWidth > e.clientWidth + 1 || /hidden|clip/.test(style.overflowY) && e.scrollHeight > e.clientHeight + 2;
    if (own && hides && !e.title && !e.closest("[title]")) found.push("cut off: " + name(e));
    if (own && (box.right > innerWidth + 1 || box.left < -1) && !frame(e)) found.push("outside: " + name(e));
    if (e.matches("button, select, summary, input:not([type=hidden]), .button, nav a, .menu a") && (box.height < 24 || box.width < 24)) {
      const around = e.closest("label");
      if (!around || around.getBoundingClientRect().height < 24) found.push(`target of ${box.width.toFixed()} x ${box.height.toFixed()}: ${name(e)}`);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[ConsoleServer]:
    with lived_in(tmp_path_factory.mktemp("lived-in"), writes=True) as console:
        yield console


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("PENSTOCK_PICTURES")
    folder = Path(given) if given else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_at_each_width_in_both_schemes(
    chromium: Any, running: ConsoleServer, pictures: Path, path: str
) -> None:
    seen = Seen(chromium, f"http://127.0.0.1:{running.port}")
    page, wrong = seen.go(path), []
    page.wait_for_load_state("load")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 150)))")
            found = page.evaluate(WRONG)
            if seen.is_too_wide():
                found.append("the page is wider than the window")
            if width != WIDTHS[1]:  # it takes the most time
                axe = page.evaluate("rules => axe.run(document, {runOnly: rules})", [*RULES, "wcag22aa"])
                found += [
                    f"{each['id']}: {node['html'][:160]}" for each in axe["violations"] for node in each["nodes"][:3]
                ]
            wrong += [f"{width} {scheme}: {each}" for each in found]
            name = re.sub(r"\W+", "-", path).strip("-") or "overview"
            page.screenshot(path=pictures / f"{name}-{width}-{scheme}.png", full_page=True)
    seen.context.close()
    if "no-such-page" not in path:
        wrong += seen.problems
    assert "\n".join(wrong + seen.foreign) == ""
