"""The assignment of tasks to stream threads."""
