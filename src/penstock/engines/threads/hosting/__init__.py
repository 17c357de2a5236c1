"""Continuous mode on Spark: epochs of stream threads in Spark's tasks, supervised by the driver.

Read `stream_threads` first (epochs), then `epoch_start` (what the driver prepares), `thread_host` (a thread inside of a
Spark task), and `control_channel` (the connection between them).
"""

__all__: list[str] = []
