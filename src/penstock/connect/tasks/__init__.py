"""Tasks that run: of sources and of sinks, their errors and dead letters, their processes."""

from penstock.connect.tasks.task_handles import TaskHandle, TaskProcesses, ThreadTask
from penstock.connect.tasks.task_parts import TaskSpec

__all__ = ["TaskHandle", "TaskProcesses", "TaskSpec", "ThreadTask"]
