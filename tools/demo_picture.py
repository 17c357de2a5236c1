"""Makes docs/pictures/demo.svg: the screen of a real run of `make demo`, as it ends.

    python tools/demo_picture.py

The command runs for 45 seconds in a pseudo-terminal and in a new folder, which the picture shows as ``~``. Rich draws
its last screen and what it prints at the end. The picture refers to no font or file from elsewhere.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COLUMNS, ROWS = 120, 40
SECONDS = 45
_REDRAWN = re.compile(r"\r(?:\x1b\[2K)?(?:\x1b\[1A\x1b\[2K)+")  # how Rich goes back to the start of its live part
_CURSOR = re.compile(r"\x1b\[\?25[lh]")
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def screen_of(command: list[str], folder: Path) -> str:
    """Run a command in a terminal of its own and return what it wrote, with all control sequences."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        os.execv(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    parts = []
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # how Linux says that the other side is gone
            break
        if not part:
            break
        parts.append(part)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    text = b"".join(parts).decode()
    if code:
        sys.exit(f"{' '.join(command)}: exit code {code}\n{text[-2000:]}")
    return text


def draw(screen: str) -> str:
    """A terminal with the last state of a live screen and what follows it, as SVG."""
    last = _CURSOR.sub("", _REDRAWN.split(screen)[-1]).replace("\r\n", "\n").strip()
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"\x1b[1m$ make demo\x1b[0m\n\n{last}"))
    return _FONT_FACE.sub("", console.export_svg(title="penstock demo access-log", unique_id="demo"))


def main() -> None:
    """Run the demo and write the picture."""
    with tempfile.TemporaryDirectory() as name:
        penstock = str(Path(sys.executable).parent / "penstock")
        screen = screen_of([penstock, "demo", "access-log", "--seconds", str(SECONDS)], Path(name))
        screen = re.sub(rf"{re.escape(name)}[\w/.]*", lambda path: path[0].replace(name, "~"), screen)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(screen), encoding="utf-8")
    print(f"written: {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
