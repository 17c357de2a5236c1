"""The Spark engine: the only package that imports PySpark.

Read `batch/job` (what workers receive), `driver/source` (offsets in; each Spark partition is a bin of tasks),
`worker/stage` (a stage inside a worker), `worker/exactly_once` (one task, one batch), then `driver/engine` (the query).
"""
