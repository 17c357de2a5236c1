"""Stream threads: long-living loops that fetch, process, write and commit by themselves, over any topic log.

Reading order: `loop/stream_thread` (the loop; it decides when a commit is due), `loop/task` (one task of it, and the
order of records between its partitions), `loop/commit` (what a commit holds), then `replicas/task_replica` and
`replicas/restoring` (the state and its recovery from changelogs). Only `engine` (epochs, as
the driver starts and ends them) and `hosting` know Spark, which places and supervises threads.
"""

__all__: list[str] = []
