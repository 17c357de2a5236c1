"""Micro-batches: the planner and the query on the driver, the tasks in the workers.

Read `source` (offsets in; each Spark partition is a bin of tasks), `worker/stage` (a stage inside a worker),
`worker/task_attempt` (one task, one batch), then `engine` (the streaming query, its start and its end).
"""

__all__: list[str] = []
