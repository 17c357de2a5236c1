"""The number of Spark tasks that can run at once: the slots, which grow as executors register, also after the start."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.base.log_lines import own_logger
from penstock.engines.spark.session import spare_slots

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["CoreWatch", "task_slots"]

_BEFORE_THE_FIRST = 2
_LOOK_S = 5.0
_log = own_logger(__name__)
_LOOKS = 3  # checks in a row with the same larger number: executors of a cluster come one after the other


def task_slots(context: SparkContext) -> int:
    """Return the number of tasks that Spark can run at once, without the spare slots of a Spark of our own.

    Spark's ``defaultParallelism`` is another number if ``spark.default.parallelism`` is set. Before the first executor
    has registered it is 2, as Spark itself assumes.
    """
    java: Any = context._jsc.sc()  # noqa: SLF001 - there is no public way
    profile = java.resourceProfileManager().defaultResourceProfile()
    slots = int(java.maxNumConcurrentTasks(profile))
    return max(1, slots - spare_slots(context)) if slots else _BEFORE_THE_FIRST


class CoreWatch:
    """A watch over the number of cores.

    With fewer cores nothing is planned anew: the tasks run in turns, and lost executors are replaced.

    Args:
        look: Returns the present number of cores.
        clock: Returns the time in seconds.
    """

    def __init__(self, look: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._look = look
        self._clock = clock
        self._looked = clock()
        self._planned = 0
        self._seen = 0
        self._times = 0

    def plan(self) -> int:
        """Return the number of cores to plan with from now on.

        If Spark's JVM is gone, it is the number of before; the query then fails with an error that says so.
        """
        self._planned = max(1, self._now() or self._planned)
        self._times = 0
        return self._planned

    def have_come(self, useful: int) -> bool:
        """Return whether there are more cores than planned, for several checks; checked every 5 s.

        Args:
            useful: The most cores that the application can use.
        """
        if self._planned >= useful or self._clock() - self._looked < _LOOK_S:
            return False
        self._looked = self._clock()
        now = self._now()
        self._times = self._times + 1 if now == self._seen else 1
        self._seen = now
        return now > self._planned and self._times >= _LOOKS

    def _now(self) -> int:
        """Return the present number of cores; 0 if it is unknown."""
        try:
            return self._look()
        except Exception as error:  # noqa: BLE001 - whatever Py4J raises when its JVM is gone
            _log.debug("The number of Spark's cores is not known: %s", error)
            return 0
