"""A page of the documentation as what its reader does: programs to save, code to run, commands to type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^```(?P<kind>\w*)\n(?P<fenced>.*?)^```|(?:^|\n)\n(?P<plain>(?: {4}[^\n]*\n)+)", re.DOTALL | re.MULTILINE
)
_FILE = re.compile(r"(?P<how>[Ss]ave it as|at the end of) `(?P<name>[\w.-]+)`")
_COMMANDS = ("", "bash")


@dataclass(frozen=True)
class Step:
    """What stands in one block, or in one line of commands; ``file``: where the reader is told to save it."""

    kind: Literal["python", "command", "file"]
    text: str
    file: str = ""
    appended: bool = False


def steps_of(page: Path) -> list[Step]:
    return list(_steps(page.read_text()))


def _steps(text: str) -> Iterator[Step]:
    before = 0
    for found in _BLOCK.finditer(text):
        said, before = text[before : found.start()].rpartition("\n\n")[2] or text[before : found.start()], found.end()
        kind, fenced = found["kind"] or "", found["fenced"]
        if fenced is None or kind in _COMMANDS:
            yield from (Step("command", line) for line in _commands(fenced or found["plain"]))
        elif kind == "python" or _FILE.search(said):
            named = _FILE.search(said)
            if named is not None:
                yield Step("file", fenced, named["name"], appended=named["how"].startswith("at"))
            elif kind == "python":
                yield Step("python", fenced)


def _commands(block: str) -> Iterator[str]:
    waiting = ""
    for line in block.splitlines():
        waiting += line.strip()
        if waiting.endswith("\\"):
            waiting = waiting[:-1]
            continue
        if waiting:
            yield waiting
        waiting = ""
