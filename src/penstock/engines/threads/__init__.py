"""Stream threads: long-living loops that fetch, process, write and commit by themselves, over any topic log.

Read `thread` first (the loop), then `task` (one task of it), `buffers` (the order of records between partitions),
`replica` and `restoring` (the state and its recovery from changelogs). Nothing here knows Spark, which only places and
supervises threads (`penstock.engines.threads.hosting`).
"""

__all__: list[str] = []
