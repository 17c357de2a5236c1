"""The metrics of the test driver: those of its one task, and of the task of the global stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from penstock.metrics import MetricRegistry
from penstock.metrics.task_metrics import TaskMetrics, TaskOf
from penstock.runtime.global_stores import GLOBAL_TASK

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.metrics.task_counts import TaskCounts
    from penstock.topology.topology import Topology

__all__ = ["DriverMetrics"]


class DriverMetrics:
    """The registry of a test driver, and its tasks' metrics.

    Args:
        topology: The topology.
        config: The settings.
        everywhere: The nodes that fill the global stores.
        clock: The driver's clock.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, everywhere: Collection[str], clock: Callable[[], int]
    ) -> None:
        self.registry = MetricRegistry.of(config, clock)
        physical_name = partial(topology.physical_name, application_id=config["application.id"])
        thread = threading.current_thread()
        thread_id = "main" if thread is threading.main_thread() else thread.name  # as Java names it
        others = [name for name in topology.nodes if name not in everywhere]
        tasks = [TaskOf(thread_id, "0_0", others, physical_name)]
        if everywhere:
            tasks.append(TaskOf(thread_id, GLOBAL_TASK, everywhere, physical_name, is_global=True))
        self._tasks = {task.task_id: TaskMetrics(self.registry, topology, task) for task in tasks}

    def record(self, counts: Mapping[str, TaskCounts]) -> None:
        """Add what the tasks have done."""
        for task_id, one in counts.items():
            self._tasks[task_id].record(one)
