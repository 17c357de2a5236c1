"""Operations of a worker: validate, create, change, pause, stop, restart and delete connectors, reset their offsets."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeVar

from penstock.base.java_text.hashing import bucket_order, copy_order, value_hash
from penstock.base.masking import without_passwords
from penstock.base.secrets import is_secret, shown
from penstock.connect.api import SinkConnector, SourceConnector
from penstock.connect.config import ConfigValue, Importance, Kind, Setting, java_class, parse_kind
from penstock.connect.config.definition import NO_DEFAULT
from penstock.connect.data import SettingError
from penstock.connect.delivery.record_errors import error_message
from penstock.connect.plugins import Plugin, PluginKind, Plugins, WorkerSettings, validate_connector
from penstock.connect.plugins.registry import in_range, version_error
from penstock.connect.storage.config_store import ConnectorTaskId, RestartRequest
from penstock.connect.storage.status_store import StoredStatus
from penstock.connect.worker.herder import Herder
from penstock.connect.worker.request_errors import ElsewhereError, RequestError
from penstock.connect.worker.task_restarts import RestartPolicy
from penstock.connect.worker_settings import Providers
from penstock.errors import ConfigError, FencedError, PenstockError, UnknownTopicError
from penstock.log.base import TopicPartition

__all__ = [
    "HIDDEN",
    "Hiding",
    "OffsetOperations",
    "Operations",
    "check_config",
    "client_setting",
    "override_errors",
    "override_policy",
    "validated",
]


_GROUP = "consumer.override.group.id"
_WHERE = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_PRINCIPAL = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_ENDING = "ConnectorClientConfigOverridePolicy"
_POLICIES = ("All", "None", "Principal", "Allowlist")
_DLQ = "errors.deadletterqueue.topic.name"


def validated(herder: Herder, config: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the body that validation answers.

    Raises:
        RequestError: The config names no connector, or one that is not there (400).
        SettingError: A config provider cannot read its file.
    """
    if config.get("connector.class") is None:
        values = {name: "null" if config[name] is None else shown(name, config[name]) for name in copy_order(config)}
        listed = ", ".join(f"{name}={value}" for name, value in values.items())
        raise RequestError(400, f"Connector config {{{listed}}} contains no connector type")
    resolved = herder.resolved(config)
    try:
        _check_version(herder.plugins.connector(resolved["connector.class"] or ""), resolved)
        body = validate_connector(resolved, herder.plugins, herder.config.plugin_settings)
    except LookupError as error:
        name = resolved.get("connector.class")
        raise RequestError(
            400,
            f"Failed to find any class that implements Connector and which name matches {name}, available connectors "
            f"are: {_available(herder)}",
        ) from error
    except SettingError:
        raise
    except ConfigError as error:  # a file of Python that is not there, or has no such connector
        raise RequestError(400, f"connector.class {resolved.get('connector.class')}: {error.message}") from error
    if herder.config.distributed and herder.plugins.connector(body["name"]).kinds == (PluginKind.SINK,):
        _check_group(herder.config["group.id"], resolved, body)
    entries = override_errors(herder, resolved)
    body["configs"] += entries
    body["error_count"] += sum(len(entry["value"]["errors"]) for entry in entries)
    return body


def check_config(herder: Herder, config: Mapping[str, str | None]) -> None:
    """Refuse a config that is wrong.

    Raises:
        RequestError: It is (400), or a config provider cannot read its file (500).
    """
    try:
        body = validated(herder, config)
    except SettingError as error:
        raise RequestError(500, error.message) from error
    try:
        RestartPolicy.of(config)
    except SettingError as error:
        raise _invalid([error.message]) from error
    if not body["error_count"]:
        return
    errors = [text for entry in body["configs"] for text in entry["value"]["errors"]]
    raise _invalid(errors)


def _check_version(plugin: Plugin, config: Mapping[str, str | None]) -> None:
    required_version = config.get("connector.plugin.version")
    if required_version is not None and not in_range(plugin.version, required_version):
        text = version_error(plugin, required_version)
        raise _invalid([text, text])  # of the class and of the version


def _check_group(workers: str, config: Mapping[str, str | None], body: dict[str, Any]) -> None:
    """Refuse a sink whose consumer group would be the one of the workers."""
    own = config.get(_GROUP)
    if _GROUP in config:
        value = ConfigValue(_GROUP, own)
        body["configs"].insert(0, {"definition": None, "value": value.described()})
        text = f"Consumer group {own}"
    else:
        own = f"connect-{config.get('name')}"
        text = f"Consumer group for sink connector named {config.get('name')}"
    if own != workers:
        return
    name = _GROUP if _GROUP in config else "name"
    entry = next(entry for entry in body["configs"] if entry["value"]["name"] == name)
    entry["value"]["errors"].append(f"{text} conflicts with Connect worker group {workers}")
    body["error_count"] += 1


def _invalid(errors: list[str]) -> RequestError:
    head = f"Connector configuration is invalid and contains the following {len(errors)} error(s):"
    return RequestError(400, "\n".join([head, *errors, _WHERE]))


def _available(herder: Herder) -> str:
    plugins = herder.plugins.of_kind(PluginKind.SOURCE, PluginKind.SINK)
    return ", ".join(f"{plugin.java_class} {plugin.version}" for plugin in plugins)


def override_errors(herder: Herder, config: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """Return the entries of a validation for settings of the clients that the connector has.

    Raises:
        SettingError: A value is not of the setting's type.
    """
    try:
        plugin = herder.plugins.connector(config.get("connector.class") or "")
    except LookupError:
        return []
    allows = override_policy(herder.config.values)
    policy = _policy_name(herder.config["connector.client.config.override.policy"])
    entries = []
    for client in _clients(PluginKind.SINK in plugin.kinds, config):
        prefix = f"{client}.override."
        for name, value in config.items():
            if not name.startswith(prefix) or name == prefix:
                continue
            bare = name.removeprefix(prefix)
            setting = client_setting(client, bare)
            shown = value if setting is None else parse_kind(bare, value, setting.kind, java_class)
            errors = [] if allows(bare) else [_refused(policy, bare)]
            described = ConfigValue(name, shown, errors=errors).described(None if setting is None else setting.kind)
            definition = None if setting is None else {**setting.described(), "name": name}
            entries.append({"definition": definition, "value": described})
    return entries


def override_policy(settings: Mapping[str, Any]) -> Callable[[str], bool]:
    """Return what tells whether a setting may be overridden (``connector.client.config.override.policy``).

    Raises:
        ConfigError: There is no such policy.
    """
    policy = _policy_name(settings["connector.client.config.override.policy"])
    match policy:
        case "All":
            return lambda _name: True
        case "None":
            return lambda _name: False
        case "Principal":
            return lambda name: name in _PRINCIPAL
    allowed = {each.strip() for each in settings["connector.client.config.override.allowlist"]}
    return lambda name: name in allowed


def client_setting(client: str, name: str) -> Setting | None:
    """Return the definition of a setting of Kafka's clients: ``producer``, ``consumer`` or ``admin``.

    >>> client_setting("producer", "linger.ms").default
    5
    """
    definition = _definitions()[client].get(name)
    if definition is None:
        return None
    kind, default, importance, *required = definition
    return Setting(
        name=name,
        kind=Kind[kind],
        default=NO_DEFAULT if required else default,
        importance=Importance[importance],
        doc=f"A setting of Kafka's {client}.",
        label=name,
    )


@cache
def _definitions() -> dict[str, dict[str, list[Any]]]:
    text = files("penstock.connect.worker").joinpath("client_settings.json").read_text(encoding="utf-8")
    definitions: dict[str, dict[str, list[Any]]] = json.loads(text)
    return definitions


def _policy_name(setting: str) -> str:
    name = setting.rpartition(".")[2].removesuffix(_ENDING)
    if name not in _POLICIES:
        raise ConfigError(
            f"connector.client.config.override.policy={setting!r} is not a policy",
            hint=f"One of {', '.join(_POLICIES)}.",
        )
    return name


def _clients(is_sink: bool, config: Mapping[str, str | None]) -> list[str]:  # noqa: FBT001 - the two kinds
    """Return the clients that a connector of this config has."""
    letters = bool((config.get(_DLQ) or "").strip())
    if is_sink:
        return ["consumer", *(("producer", "admin") if letters else ())]
    creates = any(name.startswith("topic.creation.") for name in config)
    return ["producer", *(("admin",) if creates else ())]


def _refused(policy: str, name: str) -> str:
    return f"The '{policy}' policy does not allow '{name}' to be overridden in the connector configuration."


HIDDEN = "****"
_HEADER = re.compile(r"([^,:]++)(?::([^,]*+))?")  # of a setting such as headers=X-Trace: 1, X-Api-Key: abc


class Hiding:
    """A filter for the values of settings that are passwords by their definition, or secrets by their name.

    References to config providers are shown: they are not secrets.

    Args:
        plugins: The plugins that there are.
        providers: The config providers.
        worker: The worker's converters.
        enabled: Whether anything is hidden.
    """

    def __init__(self, plugins: Plugins, providers: Providers, worker: WorkerSettings, *, enabled: bool) -> None:
        self._plugins, self._providers, self._worker, self._enabled = plugins, providers, worker, enabled
        self._names = lru_cache(maxsize=256)(self._passwords)

    def shown(self, config: Config) -> dict[str, str | None]:
        """Return a config for an answer."""
        if not self._enabled:
            return dict(config)
        names = self._names(tuple(sorted((name, value) for name, value in config.items() if value is not None)))
        return {
            name: HIDDEN if _is_plain(value) and name in names else _open(name, value) for name, value in config.items()
        }

    def kept(self, config: Config, stored: Config) -> dict[str, str | None]:
        """Return a config that was sent, with the stored secrets in place of stars."""
        if not self._enabled:
            return dict(config)
        return {
            name: stored.get(name, value) if value == HIDDEN or value == _open(name, stored.get(name)) else value
            for name, value in config.items()
        }

    def validation(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return what validation answers, with the values of its settings as `shown` has them."""
        if self._enabled:
            for entry in body["configs"]:
                value = entry["value"]  # of a setting that nobody defines, too
                if isinstance(value["value"], str):
                    hides = _is_plain(value["value"]) and is_secret(value["name"])
                    value["value"] = HIDDEN if hides else _open(value["name"], value["value"])
        return body

    def _passwords(self, config: tuple[tuple[str, str], ...]) -> frozenset[str]:
        secret_names = {name for name, _ in config if is_secret(name)}
        try:
            body = validate_connector(self._providers.resolve(dict(config)), self._plugins, self._worker)
        except (LookupError, PenstockError):
            return frozenset(secret_names)
        kinds = (entry["definition"] for entry in body["configs"])
        return frozenset(secret_names | {kind["name"] for kind in kinds if kind["type"] == "PASSWORD"})


def _open(name: str, value: str | None) -> str | None:
    """Return a value without the passwords of URLs in it, and without the values of secret headers."""
    if not value:
        return value
    if name.lower().endswith("headers"):
        return _HEADER.sub(_shown_header, value)
    return without_passwords(value)


def _shown_header(header: re.Match[str]) -> str:
    return header[0] if header[2] is None or not is_secret(header[1]) else f"{header[1]}:{HIDDEN}"


def _is_plain(value: str | None) -> bool:
    return bool(value) and "${" not in str(value)


_LOOK_S = 1.0
T = TypeVar("T")
Config = Mapping[str, str | None]


class Operations:
    """The operations on the connectors of a worker.

    Those that look answer from memory, whatever the herder waits for. Those that change take a turn of the herder's.

    Raises (all of them):
        RequestError: It cannot be done.
        ElsewhereError: Another worker has to do it.
    """

    def __init__(self, herder: Herder) -> None:
        self.herder = herder
        self._configs = herder.stores.configs
        self._statuses = herder.stores.statuses
        settings = herder.config
        self._hiding = Hiding(
            herder.plugins, herder.providers, settings.plugin_settings, enabled=settings["rest.hide.passwords"]
        )

    @property
    def standalone(self) -> bool:
        """Whether the worker is a standalone one, which answers a little differently."""
        return not self.herder.config.distributed

    # Looking

    def connectors(self) -> list[str]:
        """Return the names of all connectors."""
        return list(self._configs.state.connectors)

    def info(self, name: str) -> dict[str, Any]:
        """Return a connector: config, tasks, type."""
        return self._info(name, self._seen(name))

    def validated(self, config: Config) -> dict[str, Any]:
        """Return the body that validation answers, without secrets; see `validating.validated`."""
        return self._hiding.validation(validated(self.herder, config))

    def config(self, name: str) -> dict[str, str | None]:
        """Return a connector's config."""
        return self._hiding.shown(self._seen(name))

    def status(self, name: str) -> dict[str, Any]:
        """Return the states of a connector and of its tasks."""
        status = self._look(lambda: self._statuses.connectors.get(name))
        if status is None:
            raise RequestError(404, f"No status found for connector {name}")
        return self._described(name, status, self._statuses.tasks_of(name))

    def task_status(self, task: ConnectorTaskId) -> dict[str, Any]:
        """Return the state of a task."""
        status = self._look(lambda: self._statuses.tasks.get(task))
        if status is None:
            raise RequestError(404, f"No status found for task {task[0]}-{task[1]}")
        return {"id": task[1], **status.described()}

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """Return a connector's tasks with their configs."""
        self._seen(name)
        shown = [self._hiding.shown(config) for config in self._configs.state.task_configs(name)]
        return [{"id": {"connector": name, "task": n}, "config": config} for n, config in enumerate(shown)]

    def topics(self, name: str) -> dict[str, Any]:
        """Return the topics that a connector uses."""
        if not self.herder.config["topic.tracking.enable"]:
            raise RequestError(403, "Topic tracking is disabled.")
        return {name: {"topics": sorted(self._statuses.topics.get(name, ()))}}

    def reset_topics(self, name: str) -> None:
        """Forget the topics that a connector has used so far."""
        settings = self.herder.config
        if not settings["topic.tracking.enable"]:
            raise RequestError(403, "Topic tracking is disabled.")
        if not settings["topic.tracking.allow.reset"]:
            raise RequestError(403, "Topic tracking reset is disabled.")
        with self.herder.turn(f"resetting the topics of connector {name}"):
            self._statuses.forget_topics(name)
            self.herder.tasks.forget_topics(name)

    # Changing

    def create(self, name: str, config: Config, target: str | None) -> dict[str, Any]:
        """Create a connector."""
        named_config = {**config, "name": name}
        check_config(self.herder, named_config)
        with self.herder.turn(f"creating connector {name}"):
            self._lead()
            if name in self._configs.state.connectors:
                raise RequestError(409, f"Connector {name} already exists")
            self._refuse_nulls(named_config)
            answer = self._info(name, named_config)
            self._configs.put_connector(name, named_config, target)
            return self._aligned(name) if self.standalone else self._soon(answer)

    def put_config(self, name: str, config: Config) -> tuple[bool, dict[str, Any]]:
        """Create a connector, or replace its config; return whether it was created."""
        named_config = self._hiding.kept({"name": name, **config}, self._configs.state.connectors.get(name, {}))
        check_config(self.herder, named_config)
        with self.herder.turn(f"writing a config for connector {name} to the config topic"):
            self._lead()
            self._refuse_nulls(named_config)
            created = name not in self._configs.state.connectors
            answer = self._info(name, named_config)
            self._configs.put_connector(name, named_config)
            return created, self._aligned(name) if self.standalone else self._soon(answer)

    def patch_config(self, name: str, patch: Config) -> dict[str, Any]:
        """Change some settings of a connector; None removes one."""
        self._lead()
        stored = self._seen(name)
        merged = self._hiding.kept({**stored, **patch}, stored)
        patched = {key: value for key, value in merged.items() if value is not None}
        check_config(self.herder, patched)
        with self.herder.turn(f"writing a config for connector {name} to the config topic"):
            self._lead()
            self._known(name)
            answer = self._info(name, patched)
            self._configs.put_connector(name, patched)
            return self._aligned(name) if self.standalone else self._soon(answer)

    def delete(self, name: str) -> None:
        """Delete a connector; its offsets stay."""
        with self.herder.turn(f"removing connector {name} from the config topic"):
            self._lead()
            self._known(name)
            self._configs.remove_connector(name)
            if self.standalone:
                self.herder.tick()
            self.herder.wake()

    def set_target(self, name: str, target: str) -> None:
        """Start (resume), pause or stop a connector."""
        with self.herder.turn(f"writing a target state for connector {name} to the config topic"):
            if name not in self._configs.state.connectors:
                if target == "STOPPED" and self.standalone:
                    raise RequestError(500, f"No connector `{name}` configured")
                raise RequestError(404, f"Unknown connector {name}")
            if target == "STOPPED":
                self._lead()
                if self._configs.state.counts.get(name) or self._configs.state.target(name) != "STOPPED":
                    self._configs.put_tasks(name, [])
            self._configs.put_target(name, target)
            if self.standalone:
                self.herder.tick()
            self.herder.wake()

    def restart(self, request: RestartRequest) -> dict[str, Any] | None:
        """Restart a connector, or also its tasks; return the states then, None for the connector alone."""
        name = request.connector
        with self.herder.turn(f"restarting connector {name}"):
            if request.connector_only:
                self._restart_connector(name)
                return None
            self._lead()
            if name not in self._configs.state.connectors:
                raise RequestError(404, f"Unknown connector: {name}")
            self._statuses.refresh()
            status = self._statuses.connectors.get(name)
            if status is None:
                raise RequestError(404, f"Status for connector {name} not found")
            tasks = self._statuses.tasks_of(name)
            restarting = self._restarting(status, request)
            after = {n: self._restarting(each, request) if request.include_tasks else each for n, each in tasks.items()}
            self._configs.put_restart(request)
            self.herder.wake()
            return self._described(name, restarting, after)

    def restart_task(self, task: ConnectorTaskId) -> None:
        """Restart a task."""
        name, number = task
        shown = f"{name}-{number}"
        with self.herder.turn(f"restarting task {shown}"):
            state = self._configs.state
            if name not in state.connectors:
                if self.standalone:
                    raise RequestError(
                        500, f"Failed to start task {shown} since it is not a recognizable type (source or sink)"
                    )
                raise RequestError(404, f"Unknown connector: {name}")
            if self.standalone and task not in state.task_ids(name):
                raise RequestError(404, f"Task {shown} not found")
            if task not in state.tasks:  # one that a connector has had is known, and nobody has it
                raise RequestError(404, f"Unknown task: {shown}")
            if task not in self.herder.view.tasks:
                raise ElsewhereError(self.herder.membership.owner(task) or "")
            self.herder.restart_task(task)
            self.herder.wake()

    def put_tasks(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Store the configs of a connector's tasks, for the worker that has the connector."""
        with self.herder.turn(f"writing configs of tasks for connector {name} to the config topic"):
            self._lead()
            self._known(name)
            self.herder.store_tasks(name, [dict(config) for config in configs])

    def put_fencing(self, name: str) -> None:
        """Note that zombies of a connector's tasks are fenced, for the worker that has the connector."""
        with self.herder.turn(f"fencing earlier tasks of connector {name}"):
            self._lead()
            self._known(name)
            self._configs.put_fencing(name, len(self._configs.state.task_configs(name)))

    def put_logger(self, name: str, level: str) -> None:
        """Set the level of a logger for all workers."""
        with self.herder.turn(f"writing the level of logger {name} to the config topic"):
            self._configs.put_logger(name, level)

    # Inside

    def _look(self, look: Callable[[], T | None]) -> T | None:
        """Return what is in memory.

        Another worker may have written just now what is not, so the herder reads once more.
        """
        current = look()
        if current is None and not self.standalone and self.herder.passed(_LOOK_S):
            return look()
        return current

    def _seen(self, name: str) -> dict[str, str | None]:
        """Return the config of a connector, without a turn."""
        config = self._look(lambda: self._configs.state.connectors.get(name))
        if config is None:
            raise RequestError.not_found(name)
        return config

    def _known(self, name: str) -> dict[str, str | None]:
        """Return the config of a connector, in a turn."""
        config = self._configs.state.connectors.get(name)
        if config is None:
            with suppress(FencedError):  # the herder's loop handles it
                self.herder.tick()  # another worker may have created it just now
            config = self._configs.state.connectors.get(name)
        if config is None:
            raise RequestError.not_found(name)
        return config

    def _lead(self) -> None:
        """Refuse what only the leader may do."""
        if not self.herder.view.leads:
            raise ElsewhereError(self.herder.view.leader)

    def _refuse_nulls(self, config: Config) -> None:
        """Refuse settings without value: a standalone worker starts the connector at once."""
        if self.standalone:
            for name, value in config.items():
                if value is None:
                    raise RequestError(500, f"Non-string value found in original settings for key {name}: null")

    def _soon(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Let the herder begin with what has changed."""
        self.herder.wake()
        return answer

    def _aligned(self, name: str) -> dict[str, Any]:
        """Let a standalone worker start what is new, and describe it; an error of the connector is the request's."""
        self.herder.tick()
        status = self._statuses.connectors.get(name)
        if status is not None and status.state == "FAILED" and name in self.herder.connectors:
            raise RequestError(500, f"Failed to transition connector {name} to state STARTED")
        return self._info(name, self._known(name))

    def _info(self, name: str, config: Config) -> dict[str, Any]:
        tasks = [{"connector": name, "task": number} for _, number in self._configs.state.task_ids(name)]
        return {"name": name, "config": self._hiding.shown(config), "tasks": tasks, "type": self.kind(config)}

    def kind(self, config: Config) -> str:
        """``source``, ``sink`` or ``unknown``."""
        try:
            plugin = self.herder.plugins.connector(self.herder.resolved(config).get("connector.class") or "")
        except LookupError:
            return "unknown"
        return "sink" if PluginKind.SINK in plugin.kinds else "source"

    def _described(self, name: str, status: StoredStatus, tasks: Mapping[int, StoredStatus]) -> dict[str, Any]:
        return {
            "name": name,
            "connector": status.described(),
            "tasks": [{"id": number, **each.described()} for number, each in sorted(tasks.items())],
            "type": self.kind(self._configs.state.connectors.get(name, {})),
        }

    def _restart_connector(self, name: str) -> None:
        if name not in self._configs.state.connectors:
            if self.standalone:
                raise RequestError(500, f"there is no connector {name}")
            raise RequestError(404, f"Unknown connector: {name}")
        if name not in self.herder.connectors:
            raise ElsewhereError(self.herder.membership.owner(name) or "")
        self.herder.restart_connector(name)
        slot = self.herder.connectors[name]
        if slot.failed:
            raise RequestError(500, f"Failed to start connector: {name}")

    def _restarting(self, status: StoredStatus, request: RestartRequest) -> StoredStatus:
        if request.only_failed and status.state != "FAILED":
            return status
        return replace(status, state="RESTARTING")  # the answer shows why it has failed


_NOT_STOPPED = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified "
    "connector by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
)
_ELSEWHERE = (
    " However, if this connector manages offsets externally, they will need to be manually {done} in the system that "
    "the connector uses."
)
_TOPIC, _PARTITION, _OFFSET = "kafka_topic", "kafka_partition", "kafka_offset"
_STOP_S = 5.0
_NUMBER = re.compile(r"[+-]?[0-9]{1,1000}")
Pair = tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]


class OffsetOperations:
    """The operations on offsets."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    def offsets(self, name: str) -> dict[str, Any]:
        """Return the offsets of a connector: of its source, or of its sink's group."""
        config = self._config(name)
        if self._is_sink(config):
            committed = self._herder.log.committed_offsets(_group(name, config))
            entries = [
                {"partition": {_PARTITION: tp.partition, _TOPIC: tp.topic}, "offset": {_OFFSET: offset}}
                for tp, offset in sorted(committed.items())
            ]
            return {"offsets": entries}
        self._herder.stores.offsets.refresh()
        pairs = self._herder.stores.offsets.offsets(name)
        return {"offsets": [{"partition": dict(partition), "offset": dict(offset)} for partition, offset in pairs]}

    def alter(self, name: str, pairs: Sequence[Pair]) -> dict[str, str]:
        """Set offsets; an offset None deletes one.

        Raises:
            RequestError: The connector is not stopped, or refuses them.
        """
        config = self._stopped(name)
        pairs = _in_map(pairs)
        if self._is_sink(config):
            checked = self._alter_sink(name, config, sink_offsets(pairs), delete_group=False)
        else:
            for partition, offset in pairs:
                _check_values(partition)
                _check_values(offset)
            checked = self._alter_source(name, config, _in_map(pairs, longs=True))
        return _done(checked, "altered")

    def reset(self, name: str) -> dict[str, str]:
        """Delete all offsets.

        Raises:
            RequestError: The connector is not stopped, or refuses it.
        """
        config = self._stopped(name)
        if self._is_sink(config):
            committed = self._herder.log.committed_offsets(_group(name, config))
            checked = self._alter_sink(name, config, dict.fromkeys(committed), delete_group=True)
        else:
            self._herder.stores.offsets.refresh()
            pairs = [(partition, None) for partition, _ in self._herder.stores.offsets.offsets(name)]
            checked = self._alter_source(name, config, pairs)
        return _done(checked, "reset")

    def _config(self, name: str) -> dict[str, str]:
        stored = self._herder.stores.configs.state.connectors.get(name)
        if stored is None:
            raise RequestError.not_found(name)
        return {key: value for key, value in self._herder.resolved(stored).items() if value is not None}

    def _stopped(self, name: str) -> dict[str, str]:
        """Return the config of a connector that is stopped, with all of its tasks."""
        config = self._config(name)
        view, state = self._herder.view, self._herder.stores.configs.state
        if not view.leads:
            raise ElsewhereError(view.leader)
        if state.target(name) != "STOPPED" or state.counts.get(name):
            raise RequestError(400, _NOT_STOPPED.format(name=name))
        deadline = time.monotonic() + _STOP_S
        while self._herder.tasks.of(name) and time.monotonic() < deadline:
            time.sleep(0.02)
        return config

    def _is_sink(self, config: Mapping[str, str]) -> bool:
        return PluginKind.SINK in self._herder.plugins.connector(config.get("connector.class", "")).kinds

    def _alter_source(self, name: str, config: dict[str, str], pairs: Sequence[Pair]) -> bool:
        connector: SourceConnector = self._herder.plugins.connector(config["connector.class"]).make()
        checked = _asked(name, lambda: connector.alter_offsets(config, pairs))  # type: ignore[arg-type]
        if pairs:
            self._herder.stores.offsets.put(name, pairs)
        return checked

    def _alter_sink(
        self, name: str, config: dict[str, str], offsets: Mapping[TopicPartition, int | None], *, delete_group: bool
    ) -> bool:
        self._check_places(offsets)
        connector: SinkConnector = self._herder.plugins.connector(config["connector.class"]).make()
        checked = _asked(name, lambda: connector.alter_offsets(config, offsets))
        log, group = self._herder.log, _group(name, config)
        kept = {tp: offset for tp, offset in offsets.items() if offset is not None}
        removed = [tp for tp, offset in offsets.items() if offset is None]
        if removed and not kept and not delete_group and group not in log.groups():
            raise RequestError(500, f"Failed to alter consumer group offsets for connector {name}")
        try:
            self._await_empty(group)
            if delete_group:
                if group in log.groups():
                    log.delete_group(group)
                return checked
            if kept:
                log.commit_offsets(group, kept)
            if removed:
                log.delete_offsets(group, removed)
        except PenstockError as error:
            raise RequestError(
                500,
                f"Failed to {'reset' if delete_group else 'alter'} consumer group offsets for connector {name} either "
                "because its tasks haven't stopped completely yet or the connector was resumed before the request to "
                f"{'reset' if delete_group else 'alter'} its offsets could be successfully completed. If the connector "
                "is in a stopped state, this operation can be safely retried. If it doesn't eventually succeed, the "
                "Connect cluster may need to be restarted to get rid of the zombie sink tasks.",
            ) from error
        return checked

    def _check_places(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Refuse offsets of partitions that are not there: the group would never read from them."""
        for tp, offset in offsets.items():
            if offset is None:
                continue
            try:
                count = self._herder.log.partitions(tp.topic)
            except UnknownTopicError as error:
                raise RequestError(400, f"There is no topic '{tp.topic}'") from error
            if tp.partition >= count:
                raise RequestError(
                    400, f"There is no partition {tp.partition} of the topic '{tp.topic}', which has {count}"
                )

    def _await_empty(self, group: str) -> None:
        deadline = time.monotonic() + _STOP_S
        while self._herder.log.group_state(group).members and time.monotonic() < deadline:
            time.sleep(0.05)


def _check_values(part: Mapping[str, Any] | None) -> None:
    """Refuse what cannot be stored in a source partition or offset.

    Raises:
        RequestError: A value is not a text, number or boolean (500).
    """
    for name, value in (part or {}).items():
        kind = "MAP" if isinstance(value, dict) else "ARRAY" if isinstance(value, list) else None
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            kind = "class java.math.BigInteger"
        if kind is not None:
            text = f"Offsets may only contain primitive types as values, but field {name} contains {kind}"
            raise RequestError(500, text)


def _in_map(pairs: Sequence[Pair], *, longs: bool = False) -> list[Pair]:
    """Return each partition once, with its last offset, in the order of Java's maps, which decides what is refused."""
    unique: dict[str, Pair] = {}
    for partition, offset in pairs:
        key = "" if partition is None else repr(sorted(partition.items()))
        unique[key] = (partition, offset)
    unique_pairs = list(unique.values())
    return [
        unique_pairs[at] for at in bucket_order([value_hash(partition, longs=longs) for partition, _ in unique_pairs])
    ]


def sink_offsets(pairs: Sequence[Pair]) -> dict[TopicPartition, int | None]:
    """Read the offsets of a sink's group.

    Raises:
        RequestError: They have another form (400).
    """
    offsets: dict[TopicPartition, int | None] = {}
    for partition, offset in pairs:
        if partition is None:
            raise RequestError(400, "The partition for a sink connector offset cannot be null or missing")
        if _TOPIC not in partition or _PARTITION not in partition:
            text = f"The partition for a sink connector offset must contain the keys '{_TOPIC}' and '{_PARTITION}'"
            raise RequestError(400, text)
        topic, number = partition[_TOPIC], partition[_PARTITION]
        if topic is None:
            raise RequestError(400, "Kafka topic names must be valid strings and may not be null")
        if number is None:
            raise RequestError(400, "Kafka partitions must be valid numbers and may not be null")
        at = _whole(number, "partition", "Partition", 32)
        tp = TopicPartition(str(topic), at)
        if offset is None:
            offsets[tp] = None
            continue
        if _OFFSET not in offset:
            text = f"The offset for a sink connector should either be null or contain the key '{_OFFSET}'"
            raise RequestError(400, text)
        offsets[tp] = _whole(offset[_OFFSET], "offset", "Offset", 64)
    return offsets


def _whole(value: object, name: str, word: str, bits: int) -> int:
    shown = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    number = int(shown) if _NUMBER.fullmatch(shown) else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise RequestError(
            400,
            f"Failed to parse the following Kafka {name} value in the provided offsets: '{shown}'. {word} values for "
            "sink connectors need to be integers.",
        )
    if number < 0:
        raise RequestError(400, f"The Kafka {name} {number} in the provided offsets is negative")
    return number


def _asked(name: str, ask: Any) -> bool:
    """Let the connector check the offsets."""
    try:
        return bool(ask())
    except NotImplementedError as error:
        raise RequestError(
            500,
            f"Failed to modify offsets for connector {name} because it doesn't support external modification of "
            "offsets",
        ) from error
    except SettingError as error:
        raise RequestError(400, error.message) from error
    except Exception as error:
        raise RequestError(500, error_message(error)) from error


def _group(name: str, config: Mapping[str, str]) -> str:
    return config.get("consumer.override.group.id") or f"connect-{name}"


def _done(checked: bool, done: str) -> dict[str, str]:  # noqa: FBT001 - the connector's answer
    if checked:
        return {"message": f"The offsets for this connector have been {done} successfully"}
    text = f"The Connect framework-managed offsets for this connector have been {done} successfully."
    return {"message": text + _ELSEWHERE.format(done=done)}
