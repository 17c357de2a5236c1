"""Where an error was raised: the user's function, and the line of the user's code."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.topology.operations.functions import Function

__all__ = ["function_of", "line_of"]

Place = tuple[str, str, int]  # the name of a function, file, line
_LIBRARIES = ("/site-packages/", "/dist-packages/")
_STANDARD = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_OWN = ("penstock.", "polars.")
_SENT = "<dynamic-code>"  # cloudpickle's word for the file of any code
_MOST_CAUSES = 5  # of an error: the error that it was raised from, and so on


def function_of(function: Function | None, error: BaseException) -> Place:
    """Return what raised: the user's function as the topology knows it, else the user's line in the traceback."""
    if function is not None and function.file:  # one that stands for several has none
        return function.name, function.file, function.line
    return _innermost(error, "") or ("the processor", "unknown", 0)


def line_of(function: Function | None, error: BaseException) -> Place:
    """Return the line of the user's code in which an error was raised, or which called the library that raised it.

    Where the traceback has no such line, as of a Polars expression, it is the line of the function in the topology; of
    errors of Penstock itself there is none, and the file is empty.
    """
    own = "" if function is None else function.file
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            break
        if line := _innermost(cause, own):
            return line
        cause = cause.__cause__
    return (function.name, function.file, function.line) if function is not None and function.file else ("", "", 0)


def _innermost(error: BaseException, own: str) -> Place | None:
    """Return the innermost line of the user's code in a traceback; ``own`` is a file that is of the user's code."""
    innermost = None
    for trace in _frames(error):
        file, module = _file_of(trace, own), str(trace.tb_frame.f_globals.get("__name__", ""))
        if file == own or not (module.startswith(_OWN) or _is_library(file)):
            innermost = trace, file
    if innermost is None:
        return None
    trace, file = innermost
    code = trace.tb_frame.f_code
    name = code.co_qualname if hasattr(code, "co_qualname") else code.co_name
    return name.rpartition("<locals>.")[2], file, trace.tb_lineno


def _file_of(trace: TracebackType, own: str) -> str:
    """Return the file of a frame; the code of a function that was sent to this process has lost it."""
    file = trace.tb_frame.f_code.co_filename
    return str(trace.tb_frame.f_globals.get("__file__") or own or file) if file == _SENT else file


def _frames(error: BaseException) -> Iterator[TracebackType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


@lru_cache(maxsize=1024)
def _is_library(file: str) -> bool:
    """Return whether a file is of Python or of an installed library."""
    shown = file.replace("\\", "/")
    return file.startswith(("<frozen ", *_STANDARD)) or any(each in shown for each in _LIBRARIES)
