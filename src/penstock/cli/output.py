"""Output of commands: tables for people, JSON for programs, errors in one clear paragraph."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.base.escapes import json_text, one_line, visible
from penstock.base.log_lines import LogStream, own_logger, writes_json
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = [
    "Bar",
    "confirm",
    "console",
    "print_error",
    "print_json",
    "print_json_line",
    "print_source",
    "print_table",
    "print_text",
    "progress_bar",
    "waiting",
    "working",
]


_ANY_WIDTH = 10_000


def console(*, stderr: bool = False) -> Console:
    """Make a console; without colours and with unlimited width if it is not a terminal."""
    from penstock.base.terminal.live import Screen

    stream: Any = sys.stderr if stderr else sys.stdout
    if stderr and writes_json():
        stream = LogStream("penstock.cli")
    return Screen(file=stream, soft_wrap=True, width=None if stream.isatty() else _ANY_WIDTH)


@contextmanager
def working(what: str, total: int | None = None, *, in_bytes: bool = False, prints: bool = False) -> Iterator[Bar]:
    """Show a progress bar on the error stream, if that is a terminal.

    Args:
        what: The description of the work.
        total: The amount of work; None if unknown.
        in_bytes: Whether the amount is in bytes.
        prints: Whether the work prints to the standard output; if that is a terminal, there is no bar.
    """
    hidden = prints and sys.stdout.isatty()
    with progress_bar(console(stderr=True), what, total, in_bytes=in_bytes, hidden=hidden) as bar:
        yield bar


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a spinner on the error stream, if that is a terminal, for work of unknown amount."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield
        return
    from rich.text import Text

    with out.status(Text(what)):
        yield


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal before something is lost; end the command with exit code 1 unless the answer is yes.

    Args:
        question: For example "Delete the topic?".
        yes: Whether ``--yes`` is given: then nothing is asked. Without a terminal the answer is a line of the input.

    Raises:
        ConfigError: There is no terminal to ask on.
    """
    if yes:
        return
    if sys.stdin.isatty():
        typer.confirm(one_line(question), abort=True)
        return
    answer = sys.stdin.readline()
    if not answer:
        raise ConfigError(f"{question} There is no terminal to ask on", hint="Give --yes to do it without a question.")
    if answer.strip().lower() not in ("y", "yes"):
        raise typer.Abort


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "none") -> None:
    """Print a table; columns whose name ends with ``#`` are right-aligned numbers."""
    lines = [list(row) for row in rows]
    out = console()
    if not lines:
        out.print(empty)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        name, last = column.removesuffix("#"), column is columns[-1]  # long texts are in the last, which wraps
        table.add_column(name, justify="left" if name == column else "right", no_wrap=not last, overflow="fold")
    for row in lines:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else one_line(str(cell)) for cell in row))
    out.print(table)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    from penstock.serde.plain_json import plain

    print(json_text(value, indent=2, default=plain))


def print_json_line(value: Any, *, flush: bool = False) -> None:
    """Print a JSON document on one line."""
    from penstock.serde.plain_json import plain

    print(json_text(value, default=plain), flush=flush)


def print_text(text: str, *, end: str = "\n") -> None:
    """Print a text of several lines, with escapes for what a terminal would act upon."""
    print(visible(text), end=end)


def print_source(text: str, *, end: str = "\n") -> None:
    """Print a text that a program reads again: as it is into a file or a pipe, with escapes on a terminal."""
    print(visible(text) if sys.stdout.isatty() else text, end=end)


_EXTRAS = re.compile(r"pip install [\"'](?P<extras>penstock\[[\w,]+\])[\"']")


def _hint_here(hint: str, prefix: str = sys.prefix) -> str:
    """Return a hint as it holds in this environment: one that uvx has made is gone with the command.

    Args:
        hint: The hint.
        prefix: The folder of the environment.

    Example:
        >>> _hint_here('Install it: pip install "penstock[ui]".', "/home/me/.cache/uv/archive-v0/dlLbPI")
        'Install it: uvx --from "penstock[ui]" penstock ....'
    """
    if "archive-v0" not in Path(prefix).parts:
        return hint
    return _EXTRAS.sub(r'uvx --from "\g<extras>" penstock ...', hint)


def print_error(message: str, hint: str = "", docs: str = "") -> None:
    """Print ``error: ...`` on the error stream, or log it as JSON, with the hint and the page of the documentation."""
    hint = _hint_here(hint)
    if writes_json():
        facts = {name: text for name, text in (("hint", hint), ("docs", docs)) if text}
        own_logger("penstock.cli").error("%s", message, extra=facts)
        return
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("error:", "bold red"), f" {message}"))
    if hint:
        out.print(Text.assemble(("Hint:", "bold"), f" {hint}"))
    if docs:
        out.print(Text(f"See {docs}", style="dim"))


class Bar:
    """A progress bar; its methods may be called from any thread.

    Args:
        progress: Rich's display of progress bars.
        task: The id of this bar in it.
    """

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def advance(self, by: int = 1) -> None:
        """Advance the bar."""
        self._progress.advance(self._task, by)

    def at(self, done: int, total: int | None = None, what: str | None = None) -> None:
        """Set how much is done, the total and the description; None leaves a value as it is."""
        self._progress.update(self._task, completed=done, total=total, description=what)


@contextmanager
def progress_bar(
    console: Console, what: str, total: int | None = None, *, in_bytes: bool = False, hidden: bool = False
) -> Iterator[Bar]:
    """Show a progress bar while the block runs, and erase it at the end.

    Args:
        console: The console to draw on; nothing is shown unless it is a terminal.
        what: The description of the work.
        total: The amount of work; None if it is not known.
        in_bytes: Whether the amounts are bytes.
        hidden: Whether to show nothing, even on a terminal.
    """
    from rich import progress as parts

    name = parts.TextColumn("{task.description}", markup=False)
    counts = parts.DownloadColumn() if in_bytes else parts.MofNCompleteColumn()
    columns = [parts.SpinnerColumn(), name, parts.BarColumn(), counts, parts.TimeElapsedColumn()]
    with parts.Progress(
        *columns, console=console, transient=True, disable=hidden or not console.is_terminal
    ) as progress:
        yield Bar(progress, progress.add_task(what, total=total))
