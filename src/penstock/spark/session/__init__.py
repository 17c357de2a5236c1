"""The Spark session and its JVM: start, settings, Spark's notes in the checkpoint."""

__all__: list[str] = []
