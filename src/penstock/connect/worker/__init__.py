"""Workers: the stores, the herder that owns connectors and tasks, the tasks themselves, the operations of users."""

from penstock.connect.worker.worker import Worker

__all__ = ["Worker"]
