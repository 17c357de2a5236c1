"""The endpoints of the worker itself (version, health, loggers, progress) and of plugins."""

from __future__ import annotations

import re
from typing import Any

from penstock.base.version import __version__
from penstock.connect.data import SettingError, java_name
from penstock.connect.plugins import KAFKA_VERSION, Plugin, PluginKind, plugin_settings
from penstock.connect.plugins.registry import in_range, version_error
from penstock.connect.rest.json_bodies import RestAnswer, RestCall, config_of, json_of
from penstock.connect.worker.loggers import known_level
from penstock.connect.worker.request_errors import RequestError
from penstock.connect.worker.worker import Worker

__all__ = ["AdminEndpoints", "PluginEndpoints"]

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


_CONNECTORS = (PluginKind.SINK, PluginKind.SOURCE)
_KINDS = tuple(PluginKind)
_LISTED = (
    *_CONNECTORS,
    PluginKind.TRANSFORMATION,
    PluginKind.PREDICATE,
    PluginKind.CONVERTER,
    PluginKind.HEADER_CONVERTER,
)
_BAD_REQUEST = "org.apache.kafka.connect.runtime.rest.errors.BadRequestException"
# Plugins of Kafka's whose settings it does not show: config providers and override policies, by class or short name.
_OTHER = re.compile(
    r"(org\.apache\.kafka\.(common\.config\.provider|connect\.connector\.policy)\.)?"
    r"((Directory|EnvVar|File)(ConfigProvider)?"
    r"|(All|Allowlist|None|Principal)(ConnectorClientConfigOverridePolicy)?)"
)


class PluginEndpoints:
    """The endpoints below ``/connector-plugins``."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._plugins = worker.herder.plugins

    def listing(self, call: RestCall) -> RestAnswer:
        """Return the connectors, or all plugins with ``connectorsOnly=false``."""
        only = (call.query.get("connectorsOnly") or "true").strip().lower() == "true"
        plugins = [
            self._described(plugin, kind)
            for kind in (_CONNECTORS if only else _LISTED)
            for plugin in self._plugins.of_kind(kind)
        ]
        return RestAnswer(body=plugins)

    def settings(self, call: RestCall) -> RestAnswer:
        """Return the definitions of a plugin's settings."""
        name = call.names["plugin"]
        plugin = self._find(name)
        required_version = call.query.get("version")
        if required_version is not None and not in_range(plugin.version, required_version):
            raise RequestError(400, version_error(plugin, required_version))
        return RestAnswer(body=plugin_settings(plugin, self._plugins, self._worker.config.plugin_settings))

    def validate(self, call: RestCall) -> RestAnswer:
        """Validate the config of a connector."""
        name = call.names["plugin"]
        document = json_of(call.body)
        if document is None:
            raise RequestError(500, "The request has no body")
        config = config_of(document)
        connector_class = config.get("connector.class")
        if connector_class is not None and not _matches(connector_class, name):
            raise RequestError(400, f"Included connector type {connector_class} does not match request type {name}")
        try:
            return RestAnswer(body=self._worker.operations.validated(config))
        except RequestError as error:
            raise RequestError(500, f"{_BAD_REQUEST}: {error.message}") from error
        except SettingError as error:
            raise RequestError(500, f"{java_name(error)}: {error.message}") from error

    def _described(self, plugin: Plugin, kind: PluginKind) -> dict[str, Any]:
        described = {"class": plugin.java_class, "type": kind.value, "version": plugin.version}
        return {**described, "experimental": True} if plugin.experimental else described

    def _find(self, name: str) -> Plugin:
        if _OTHER.fullmatch(name):
            kinds = ", ".join(kind.value for kind in _KINDS)
            raise RequestError(400, f"Invalid plugin class {name}. Valid types are {kinds}.")
        try:
            return self._plugins.find(name).require_any()
        except LookupError as error:
            raise RequestError(404, f"Unknown plugin {name}.") from error
        except SettingError as error:
            raise RequestError(500, "Instantiation error") from error


def _matches(java_class: str, requested: str) -> bool:
    """Return whether the class of a config is the one of the path, as Kafka Connect compares them: by their ends."""
    simple = java_class.rpartition(".")[2]
    ends = (requested, f"{requested}Connector")
    return java_class.endswith(ends) or simple.endswith(ends) or (requested.endswith(simple) and bool(simple))
