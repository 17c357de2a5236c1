"""What both engines need of PySpark: the session and its JVM, the job that is shipped to workers, failures."""

__all__: list[str] = []
