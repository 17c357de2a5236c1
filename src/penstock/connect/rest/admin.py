"""The endpoints of the worker itself: its version, its health, its loggers, its progress."""

from __future__ import annotations

from typing import Any

from penstock.base.version import __version__
from penstock.connect.plugins import KAFKA_VERSION
from penstock.connect.rest.messages import RestAnswer, RestCall, config_of, json_of
from penstock.connect.worker.loggers import known_level
from penstock.connect.worker.request_errors import RequestError
from penstock.connect.worker.worker import Worker

__all__ = ["AdminEndpoints"]

_HEALTHY = "Worker has completed startup and is ready to handle requests."
_STARTING = "Worker is still starting up."
_UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."


class AdminEndpoints:
    """The endpoints ``/``, ``/health``, ``/admin/loggers`` and ``/penstock``.

    Args:
        worker: The worker.
        patience_s: The seconds that its herder has to show that it works.
    """

    def __init__(self, worker: Worker, patience_s: float) -> None:
        self._worker = worker
        self._patience_s = patience_s

    def root(self, call: RestCall) -> RestAnswer:  # noqa: ARG002 - as all endpoints
        """Return version and cluster."""
        cluster = self._worker.cluster_id
        return RestAnswer(
            body={"version": KAFKA_VERSION, "commit": f"penstock-{__version__}", "kafka_cluster_id": cluster}
        )

    def health(self, call: RestCall) -> RestAnswer:  # noqa: ARG002
        """Return whether the worker is ready, and its herder does not hang."""
        herder = self._worker.herder
        if not herder.ready.is_set():
            return RestAnswer(503, {"status": "starting", "message": _STARTING})
        if herder.passed(self._patience_s):
            return RestAnswer(body={"status": "healthy", "message": _HEALTHY})
        return RestAnswer(500, {"status": "unhealthy", "message": f"{_UNHEALTHY} {herder.stages.summary()}"})

    def loggers(self, call: RestCall) -> RestAnswer:  # noqa: ARG002
        """Return all loggers."""
        return RestAnswer(body=self._worker.loggers.all())

    def logger(self, call: RestCall) -> RestAnswer:
        """Return one logger."""
        return RestAnswer(body=self._worker.loggers.level(call.names["logger"]))

    def set_logger(self, call: RestCall) -> RestAnswer:
        """Set the level of a logger, of this worker or of all."""
        level = config_of(json_of(call.body), "a level").get("level")
        if level is None:
            raise RequestError(400, "Desired 'level' parameter was not specified in request.")
        if not level:
            raise RequestError(500, "Illegal null or empty Level name.")
        if not known_level(level.strip()):
            raise RequestError(404, f"invalid log level '{level}'.")
        level = level.strip()
        name = call.names["logger"]
        if call.query.get("scope", "worker").strip().lower() != "cluster":
            return RestAnswer(body=self._worker.loggers.set(name, level))
        if self._worker.config.distributed:
            self._worker.operations.put_logger(name, level.upper())
        else:
            self._worker.loggers.set(name, level)
        return RestAnswer.empty(204)

    def progress(self, call: RestCall) -> RestAnswer:  # noqa: ARG002
        """Return the progress of the tasks that this worker has, and why connectors could not configure theirs."""
        herder = self._worker.herder
        tasks: list[dict[str, Any]] = []
        for task in sorted(herder.tasks.owned()):
            handle = herder.tasks.handle(task)
            if handle is None:
                continue
            task_progress = handle.progress
            tasks.append(
                {
                    "connector": task[0],
                    "task": task[1],
                    "records": task_progress.records,
                    "errors": task_progress.errors,
                    "last_error": task_progress.last_error,
                    "last_record_ms": task_progress.last_record_ms,
                }
            )
        slots = herder.connectors.copy().items()  # the herder goes on meanwhile
        failures = {name: slot.task_configs_error for name, slot in slots if slot.task_configs_error}
        return RestAnswer(body={"worker_id": self._worker.worker_id, "tasks": tasks, "task_configs_errors": failures})
