"""The engines that run an application: stream threads and micro-batches, over what both need of Spark."""

__all__: list[str] = []
