"""The REST interface of a worker, as Kafka Connect's: every endpoint, its statuses, bodies, headers and errors."""

from penstock.connect.rest.server import WorkerServer

__all__ = ["WorkerServer"]
