"""Progress bars for work that can take more than two seconds; nothing is shown where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

__all__ = ["Bar", "progress_bar"]


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
