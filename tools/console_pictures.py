"""Makes docs/pictures/console-*.png: pages of the console beside a real run of `make demo`, light and dark.

    python tools/console_pictures.py

It needs a Chromium on the machine (``apt-get install chromium``). The demo runs in a new folder until it keeps up with
its input, three minutes at most.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin

import httpx

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
PENSTOCK = str(Path(sys.executable).with_name("penstock"))
PAGES = {  # colour scheme -> picture -> path
    "light": {"overview": "", "topology": "topology", "messages": "topics/os-check", "errors": "errors"},
    "dark": {"overview": "", "batches": "batches", "store": "stores/os-counts?ask=1&by=all"},
}
TOKEN = "pictures"
SECONDS, PATIENCE_S, BATCHES, LAG = 240, 180.0, 60, 4_000
SIZE = {"width": 1280, "height": 800}


def address_of(output: IO[str]) -> str:
    """Return the address that ``penstock ui`` prints."""
    for line in output:
        if found := re.search(r"http://\S+", line):
            return found[0]
    raise SystemExit("penstock ui has printed no address")


def wait_until_it_keeps_up(address: str) -> None:
    """Wait until the demo has run some batches and has little left to read, or for long enough."""
    deadline = time.monotonic() + PATIENCE_S
    headers = {"authorization": f"Bearer {TOKEN}"}
    while time.monotonic() < deadline:
        found = httpx.get(urljoin(address, "/api/v1/apps"), headers=headers, trust_env=False, timeout=30).json()
        if found and (found[0]["batch"] or 0) >= BATCHES and (found[0]["lag"] or 0) < LAG:
            return
        time.sleep(1)


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
            while not (Path(folder) / "demo" / "topics.db").exists():
                time.sleep(0.5)
            state = str(Path(folder) / "demo" / "state")
            of_demo = ["--bootstrap-servers", "demo/topics.db", "--state-dir", state]
            command = [PENSTOCK, "ui", *of_demo, "--port", "0", "--token", TOKEN]
            with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as console:
                assert console.stderr is not None
                address = address_of(console.stderr)
                wait_until_it_keeps_up(address)
                with sync_playwright() as playwright:
                    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                    for scheme in PAGES:
                        take(browser, address, scheme)
                    browser.close()
                console.terminate()
            demo.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
