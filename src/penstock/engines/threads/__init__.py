"""Stream threads: long-living loops that fetch, process, write and commit by themselves, over any topic log.

Read `loop.thread` first (the loop), then `loop.task` (one task of it), `replicas.task_replica` and `replicas.restoring`
(the state and its recovery from changelogs). Nothing here knows Spark, which only places and
supervises threads (`penstock.engines.threads.hosting`).
"""

__all__: list[str] = []
