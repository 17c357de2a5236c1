"""The Spark engine: the only package that imports PySpark.

Read `job` (what workers are given), `source` (offsets in, one Spark partition a bin of tasks), `stage` (what runs
inside a worker), `exactly_once` (one task, one batch), then `engine` (the query).
"""
