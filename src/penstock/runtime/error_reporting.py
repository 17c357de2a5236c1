"""What a task says of errors: the operator and stores of one, counts of those that are not raised, lines about drops.

Some functions report errors without raising, and they are counted with the task in whose batch they happen. A function
knows neither its task nor the process that it runs in. So it reports to its thread, and the task takes what the thread
has when its batch ends; from there the counts travel with the task's others.
"""

from __future__ import annotations

import logging
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn

from penstock.base.terminal.human_numbers import counted
from penstock.errors import SerializationError
from penstock.topology.nodes import ProcessorNode
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.topology.operations.functions import Function

__all__ = ["DropLines", "NamingStores", "function_of", "line_of", "report", "take"]

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


class _Thread(threading.local):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()


_THREAD = _Thread()


def report(where: str, times: int = 1) -> None:
    """Count an error.

    Args:
        where: The function or column in which it happened.
        times: The number of errors.
    """
    _THREAD.counts[where] += times


def take() -> Mapping[str, int]:
    """Return the errors of this thread since the last call, and forget them.

    >>> report("CHR"), report("CHR", 2)
    (None, None)
    >>> dict(take()), dict(take())
    ({'CHR': 3}, {})
    """
    if not _THREAD.counts:
        return {}
    taken, _THREAD.counts = _THREAD.counts, Counter()
    return taken


class NamingStores:
    """The names of an operator and its stores in errors of serdes, as in Kafka's ``StreamsException``.

    Args:
        topology: The topology.
        node: The operator's node.
        task_id: The task.
    """

    __slots__ = ("_node", "_task_id", "_topology")

    def __init__(self, topology: Topology, node: str, task_id: str) -> None:
        self._topology = topology
        self._node = node
        self._task_id = task_id

    def raise_named(self, error: SerializationError) -> NoReturn:
        """Raise an error of a serde with these names, unless it has some."""
        if "node" in error.facts:
            raise error
        raise _named(error, self._topology, self._node, self._task_id) from error


def _named(error: SerializationError, topology: Topology, node: str, task_id: str) -> SerializationError:
    failed = topology.nodes[node]
    names = failed.stores if isinstance(failed, ProcessorNode) else ()
    specs = [topology.stores[name] for name in names]
    wrong = error.facts.get("serde")
    specs = [spec for spec in specs if wrong in (spec.key_serde.name, spec.value_serde.name)] or specs
    where = f" (store {', '.join(repr(spec.name) for spec in specs)})" if specs else ""
    hint = error.hint
    if any(spec.untyped for spec in specs):
        hint = (
            "The topology names no types for this store, so default.value.serde writes it, as in Kafka "
            'Streams. Name one: Materialized(value_serde="json"), or value_serde= of StreamJoined, Joined or Grouped; '
            "penstock.untyped.stores=auto takes all of Python's types."
        )
    facts = {**error.facts, "node": node, "task": task_id, "stores": [spec.name for spec in specs]}
    return SerializationError(f"{node}{where}: {error.message}", hint=hint, **facts)


_DROPS_EVERY_S = 1.0
_DROPS_KEPT = 200  # reasons whose last line is remembered for the second
_Reason = tuple[object, ...]  # the operator, and why
_Place = tuple[str, int, int]  # topic, partition, offset


class DropLines:
    """The drops of a task, collected for lines of the log.

    The first drop of a reason is logged at once. Where records come one by one, each would have a line of its own.

    Args:
        task_id: The task.
        log: The logger.
        clock: Returns the time in seconds.
    """

    def __init__(self, task_id: str, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._task_id = task_id
        self._log = log
        self._clock = clock
        self._logged_s: dict[_Reason, float] = {}
        self._waiting: dict[_Reason, tuple[int, str, _Place | None]] = {}

    def add(self, reason: _Reason, count: int, said: str, place: _Place | None) -> None:
        """Note drops: their number, the text of the reason, and where the newest comes from."""
        before, _, last = self._waiting.get(reason, (0, "", None))
        self._waiting[reason] = (before + count, said, place or last)

    def write(self, *, closing: bool = False) -> None:
        """Log the reasons whose last line is a second old; when the task is closed, all."""
        if not self._waiting:
            return
        now = self._clock()
        due = [
            one for one in self._waiting if closing or now - self._logged_s.get(one, -_DROPS_EVERY_S) >= _DROPS_EVERY_S
        ]
        for reason in due:
            count, said, newest = self._waiting.pop(reason)
            self._logged_s.pop(reason, None)
            self._logged_s[reason] = now
            where = "" if newest is None else f", the newest at {newest[0]}-{newest[1]} offset {newest[2]}"
            self._log.warning(
                "task %s: %s dropped %s: %s%s", self._task_id, reason[0], counted(count, "record"), said, where
            )
        while len(self._logged_s) > _DROPS_KEPT:
            del self._logged_s[next(iter(self._logged_s))]
