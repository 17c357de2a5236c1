"""What a task says of errors: the operator and stores of one, counts of those that are not raised, lines about drops.

Some functions report errors without raising, and they are counted with the task in whose batch they happen. A function
knows neither its task nor the process that it runs in. So it reports to its thread, and the task takes what the thread
has when its batch ends; from there the counts travel with the task's others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from types import TracebackType

from penstock.base.terminal.human_numbers import counted
from penstock.errors import SerializationError
from penstock.topology.nodes import ProcessorNode
from penstock.topology.topology import Topology

__all__ = ["DropLines", "NamingStores", "report", "take"]


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
    """Makes errors of serdes that leave an operator name it and its stores, as Kafka's ``StreamsException`` does.

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

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SerializationError) and "node" not in error.facts:
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
    """Collects the drops of a task, and logs them.

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
