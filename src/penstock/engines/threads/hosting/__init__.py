"""Continuous mode on Spark: epochs of stream threads in Spark's tasks, supervised by the driver.

`penstock.engines.threads.engine` is over them. Read `epoch_start` first (what the driver prepares), then `thread_host`
(a thread inside of a Spark task), and `control_channel` (the connection between them).
"""

__all__: list[str] = []
