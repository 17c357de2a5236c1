"""Makes docs/pictures/console-*.png: pages of the console beside a real run of `make demo`, light and dark.

    python tools/console_pictures.py

It needs a Chromium on the machine (``apt-get install chromium``). The demo runs for 90 seconds in a new folder.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
PENSTOCK = str(Path(sys.executable).with_name("penstock"))
PAGES = {  # colour scheme -> picture -> path
    "light": {"overview": "", "topology": "topology", "messages": "topics/os-check"},
    "dark": {"overview": "", "batches": "batches"},
}
SECONDS, SHOWN_AFTER_S = 90, 60.0
SIZE = {"width": 1280, "height": 800}


def address_of(output: IO[str]) -> str:
    """Return the address that ``penstock ui`` prints."""
    for line in output:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise SystemExit("penstock ui has printed no address")


def take(browser: Any, address: str, scheme: str) -> None:
    """Take the pictures of a colour scheme."""
    context = browser.new_context(color_scheme=scheme, viewport=SIZE, device_scale_factor=1)
    page = context.new_page()
    page.goto(address)  # with the token, which becomes a cookie
    for name, path in PAGES[scheme].items():
        page.goto(urljoin(address, f"/{path}"))
        page.wait_for_timeout(1500)  # live figures and the layout of the graph come after the page
        page.screenshot(path=PICTURES / f"console-{name}-{scheme}.png")
    context.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium on this machine (apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        command = [PENSTOCK, "demo", "access-log", "--seconds", str(SECONDS), "--dir", "demo"]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as demo:
            time.sleep(SHOWN_AFTER_S)
            state = str(Path(folder) / "demo" / "state")
            of_demo = ["--bootstrap-servers", "demo/topics.db", "--state-dir", state]
            command = [PENSTOCK, "ui", *of_demo, "--port", "0", "--token", "pictures"]
            with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as console:
                assert console.stderr is not None
                address = address_of(console.stderr)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                    for scheme in PAGES:
                        take(browser, address, scheme)
                    browser.close()
                console.terminate()
            if demo.wait():
                raise SystemExit(f"the demo ended with {demo.returncode}")


if __name__ == "__main__":
    main()
