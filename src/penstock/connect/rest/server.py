"""A worker with its REST interface, as one server.

The ASGI application hands requests to endpoints, and answers errors as Kafka Connect does. Here are the endpoints of
the worker itself (version, health, loggers, progress) and of plugins.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.base.log_lines import own_logger
from penstock.base.version import __version__
from penstock.connect.data import SettingError, java_name
from penstock.connect.delivery.record_errors import error_message
from penstock.connect.plugins import KAFKA_VERSION, Plugin, PluginKind, plugin_settings
from penstock.connect.plugins.registry import in_range, version_error
from penstock.connect.rest.connectors import SIGNATURE, SIGNATURE_ALGORITHM, ConnectorEndpoints, signature
from penstock.connect.rest.forwarding import ask_worker, forwarded, trust_of
from penstock.connect.rest.json_bodies import JSON, RestAnswer, RestCall, config_of, json_of
from penstock.connect.rest.response_headers import CrossOrigin, ExtraHeaders, WorkerAccess
from penstock.connect.worker.loggers import known_level
from penstock.connect.worker.request_errors import ElsewhereError, RequestError
from penstock.connect.worker.worker import Worker
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConfigError, FencedError, LogUnavailableError, PenstockError
from penstock.serving.access import AccessRules, parse_users
from penstock.serving.guard import Limits
from penstock.serving.server import Certificate, HttpServer, listen

__all__ = [
    "ConnectApplication",
    "Endpoint",
    "RestRoute",
    "WorkerServer",
    "find_route",
    "is_ambiguous",
    "is_broken",
    "routes",
]

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


Endpoint = Callable[[RestCall], RestAnswer]
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
_AMBIGUOUS = re.compile(
    r"%(?:2f|5c|25|[01][0-9a-f]|7f)|\\|/(?:;[^/]*)?/|/(?:%2e|\.)(?:%2e)(?:/|$)|/%2e(?:%2e|\.)?(?:/|$)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class RestRoute:
    """A path with its endpoints by method.

    Attributes:
        segments: The parts of the path; those in braces are names.
        endpoints: The endpoints.
        reads: The methods whose body is read, so that it must have a content type.
        asks_log: The log is asked, also to look.
    """

    segments: tuple[str, ...]
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    asks_log: bool = False

    def may_wait(self, method: str) -> bool:
        """Return whether a request may have to wait for the herder or for the log; others are answered from memory."""
        return self.asks_log or method not in ("GET", "HEAD")

    def consumes_json(self, method: str) -> bool:
        """Return whether a request that says what its body is must say JSON: not at ``/``, and not between workers."""
        if self.segments[:1] not in (("connectors",), ("connector-plugins",), ("admin",)):
            return False
        return (self.segments[-1:], method) not in ((("fence",), "PUT"), (("tasks",), "POST"))

    @property
    def methods(self) -> list[str]:
        """All methods, with those that each path has."""
        return [*(("HEAD",) if "GET" in self.endpoints else ()), *self.endpoints, "OPTIONS"]

    def names(self, segments: list[str]) -> dict[str, str] | None:
        """Return the named parts of a path, if it is of this route."""
        if len(segments) != len(self.segments):
            return None
        named_parts = {}
        for own, segment in zip(self.segments, segments, strict=True):
            if own.startswith("{"):
                named_parts[own.strip("{}")] = segment
            elif own != segment:
                return None
        return named_parts


def routes(worker: Worker, health_s: float) -> list[RestRoute]:
    """Return all endpoints of a worker.

    Args:
        worker: The worker.
        health_s: The seconds after which a worker whose herder hangs is not healthy.
    """
    connectors, plugins, admin = ConnectorEndpoints(worker), PluginEndpoints(worker), AdminEndpoints(worker, health_s)

    def route(path: str, *, asks_log: bool = False, **endpoints: Endpoint) -> RestRoute:
        by_method = {name.removesuffix("_"): endpoint for name, endpoint in endpoints.items()}
        reads = frozenset(name.removesuffix("_") for name in endpoints if name.endswith("_"))
        return RestRoute(tuple(part for part in path.split("/") if part), by_method, reads, asks_log)

    c, t = "/connectors/{connector}", "/connectors/{connector}/tasks"
    listed = [
        route("/", GET=admin.root),
        route("/health", GET=admin.health),
        route("/connectors", POST_=connectors.create, GET=connectors.listing),
        route(c, GET=connectors.info, DELETE=connectors.delete),
        route(f"{c}/config", GET=connectors.config, PUT_=connectors.put_config, PATCH_=connectors.patch_config),
        route(f"{c}/status", GET=connectors.status),
        route(f"{c}/restart", POST=connectors.restart),
        route(f"{c}/pause", PUT=connectors.pause),
        route(f"{c}/resume", PUT=connectors.resume),
        route(f"{c}/stop", PUT=connectors.stop),
        route(f"{c}/topics", GET=connectors.topics),
        route(f"{c}/topics/reset", PUT=connectors.reset_topics),
        route(
            f"{c}/offsets",
            asks_log=True,
            GET=connectors.offsets,
            PATCH_=connectors.alter_offsets,
            DELETE=connectors.reset_offsets,
        ),
        route(f"{c}/fence", PUT=connectors.fence),
        route(t, GET=connectors.tasks, POST=connectors.put_tasks),
        route(f"{t}/{{task}}/status", GET=connectors.task_status),
        route(f"{t}/{{task}}/restart", POST=connectors.restart_task),
        route("/connector-plugins", GET=plugins.listing),
        route("/connector-plugins/{plugin}/config", GET=plugins.settings),
        route("/connector-plugins/{plugin}/config/validate", PUT_=plugins.validate),
        route("/penstock/progress", GET=admin.progress),
    ]
    if worker.config["admin.listeners"] != []:
        listed.append(route("/admin/loggers", GET=admin.loggers))
        listed.append(route("/admin/loggers/{logger}", GET=admin.logger, PUT_=admin.set_logger))
    return listed


def is_broken(path: str) -> bool:
    """Return whether a path has a percent sign that begins no escape, or the character 0."""
    return _BROKEN_ESCAPE.search(path) is not None


def _is_text(path: str) -> bool:
    """Return whether the escapes of a path are UTF-8."""
    try:
        unquote_to_bytes(path).decode()
    except UnicodeDecodeError:
        return False
    return True


def is_ambiguous(path: str) -> bool:
    """Return whether a path as it was sent has escapes that the server of Kafka Connect refuses.

    >>> is_ambiguous("/connectors/a%2Fb"), is_ambiguous("//"), is_ambiguous("/connectors/..")
    (True, True, False)
    """
    return is_broken(path) or _AMBIGUOUS.search(path) is not None or not _is_text(path)


def find_route(all_routes: list[RestRoute], path: str) -> tuple[RestRoute, dict[str, str]] | None:
    """Return the route of a path as it was sent, and the named parts of it."""
    segments = [unquote(part.partition(";")[0]) for part in path.split("/") if part]
    for each in all_routes:
        names = each.names(segments)
        if names is not None:
            return each, names
    return None


_log = own_logger(__name__)
_HTML = "text/html;charset=iso-8859-1"
_START_S = 30.0
_WAITING_REQUESTS = 32  # more of them wait in line
_PAGE = b"<html><body><h2>HTTP ERROR 400 Bad Request</h2></body></html>\n"
_WILD = ("*/*", "application/*", "*/json")
_UNREAD = ("*/*", "application/*")  # they fit an endpoint, but no reader of bodies
_KIND = re.compile(r"[^\s/,;]+/[^\s/,;]+\s*(;|$)")
_WEIGHT = re.compile(r"[01](\.[0-9]{0,3})?")
_HTTP = {
    404: "HTTP 404 Not Found",
    405: "HTTP 405 Method Not Allowed",
    406: "HTTP 406 Not Acceptable",
    415: "HTTP 415 Unsupported Media Type",
}
_CONFLICT = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)


class ConnectApplication:
    """The REST interface of a worker.

    Requests that may have to wait for the herder or for the log have threads of their own, so that all others are
    answered meanwhile.

    Args:
        worker: The worker.
        url: Its URL, as Location and other workers have it.
        patience: The seconds after which a request that still waits is answered with an error, as is one for the
            worker's health.
    """

    def __init__(self, worker: Worker, url: str, patience: tuple[float, float]) -> None:
        self._worker = worker
        self._url = url
        self._trust = trust_of(worker.config)
        self._request_s, health_s = patience
        self._routes = routes(worker, health_s)
        self._waiting = ThreadPoolExecutor(_WAITING_REQUESTS, thread_name_prefix="connect-request")
        self._headers = ExtraHeaders.of(worker.config["response.http.headers.config"])
        self._cross_origin = CrossOrigin(
            worker.config["access.control.allow.origin"], worker.config["access.control.allow.methods"]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive)
        response = await self._answer(request)
        for name, value in (*self._headers, *self._cross_origin.headers(request.method, request.headers)):
            response.headers[name] = value
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.scope.get("raw_path", request.url.path.encode()).decode("latin-1").partition("?")[0]
        kind = request.headers.get("content-type")
        if not path.startswith("/") or is_ambiguous(path) or (kind is not None and not _KIND.match(kind)):
            shown = is_broken(path) or request.method in ("GET", "HEAD", "POST")
            return Response(
                _PAGE if shown else b"", 400, media_type=None, headers={"content-type": _HTML} if shown else None
            )
        match = find_route(self._routes, path)
        if match is None:
            return _plain_error(404)
        route, names = match
        if request.method == "OPTIONS":
            return _options(route, request)
        body = await request.body()
        refused = _refusal(route, request, body)
        if refused is not None:
            return refused
        query = request.url.query
        parameters: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            parameters[name] = (
                f"{parameters[name]}\0{value}"
                if name == "expand" and name in parameters
                else parameters.get(name, value)
            )
        call = RestCall(
            request.method, f"{path}?{query}" if query else path, names, parameters, dict(request.headers), body
        )
        if route.may_wait(call.method):
            answer = await self._called_in_time(route, call)
        else:
            answer = await run_in_threadpool(self._called, route, call)
        return self._response(answer, request)

    def close(self) -> None:
        """Let go of requests that still wait in line."""
        self._waiting.shutdown(wait=False, cancel_futures=True)

    async def _called_in_time(self, route: RestRoute, call: RestCall) -> RestAnswer:
        """Call an endpoint; what takes too long is answered with an error, and goes on."""
        called = asyncio.get_running_loop().run_in_executor(self._waiting, self._called, route, call)
        try:
            return await asyncio.wait_for(called, self._request_s)
        except TimeoutError:
            return _error(500, f"Request timed out. {self._worker.herder.stages.summary()}".rstrip())

    def _called(self, route: RestRoute, call: RestCall) -> RestAnswer:
        """Call the endpoint; its errors become answers."""
        endpoint = route.endpoints["GET" if call.method == "HEAD" else call.method]
        try:
            return self._when_ready(endpoint, call)
        except ElsewhereError as error:
            return forwarded(call, error.url, self._trust)
        except RequestError as error:
            return _error(error.status, error.message)
        except FencedError:
            return _error(409, _CONFLICT)
        except PenstockError as error:
            return _error(500, error_message(error))
        except Exception as error:  # noqa: BLE001 - a bug: the client gets an answer
            _log.exception("%s %s could not be answered", call.method, call.target[:200])
            return _error(500, f"{type(error).__name__}: {error}")

    def _when_ready(self, endpoint: Endpoint, call: RestCall) -> RestAnswer:
        """Call an endpoint; a worker that has just started finds its group before it says that there is no leader."""
        try:
            return endpoint(call)
        except ElsewhereError as error:
            ready = self._worker.herder.ready
            if error.url or ready.is_set() or not ready.wait(_START_S):
                raise
            return endpoint(call)

    def _response(self, answer: RestAnswer, request: Request) -> Response:
        headers = dict(answer.headers)
        if "location" in headers:
            headers["location"] = self._url + headers["location"]
        if not answer.has_body:
            return Response(status_code=answer.status, headers=headers)
        content = answer.encoded()
        headers["content-type"] = _kind_of(request.headers)
        if request.method == "HEAD":
            return Response(status_code=answer.status, headers={**headers, "content-length": str(len(content))})
        return Response(content, answer.status, headers)


def _refusal(route: RestRoute, request: Request, body: bytes) -> Response | None:
    """Return what the server refuses before an endpoint sees it."""
    method = "GET" if request.method == "HEAD" else request.method
    if method not in route.endpoints:
        return _plain_error(405)
    kind = request.headers.get("content-type")
    bare = None if kind is None else kind.partition(";")[0].strip().lower()
    if bare not in (None, JSON, *_WILD) and route.consumes_json(method):
        return _plain_error(415)
    if not any(each.bare in (JSON, *_WILD) for each in _accepted(request.headers)):
        return _plain_error(406)
    if method in route.reads and (bare in _UNREAD or (bare is None and body)):
        return Response(_error(415, _HTTP[415]).encoded(), 415, {"content-type": _kind_of(request.headers)})
    return None


@dataclass(frozen=True, slots=True)
class _Kind:
    """A type of a header ``Accept``: without its parameters, its parameters by name, and its weight."""

    bare: str
    parameters: Mapping[str, str]
    weight: float

    def shown(self, *, weighed: bool) -> str:
        """Return it as Kafka Connect's server writes it, with or without its weight."""
        names = sorted(name for name in self.parameters if weighed or name != "q")
        return ";".join([self.bare, *(f"{name}={self.parameters[name]}" for name in names)])


def _accepted(headers: Mapping[str, str]) -> list[_Kind]:
    """Return the types that a request accepts, those of the largest weight first."""
    kinds = []
    for part in (headers.get("accept") or "*/*").split(","):
        bare, *rest = (each.strip() for each in part.split(";"))
        bare = bare.lower() if "/" in bare else f"{bare.lower()}/*"
        pairs = (each.partition("=") for each in rest if "=" in each)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        if "charset" in parameters:
            parameters["charset"] = parameters["charset"].lower()
        weight = parameters.get("q", "1")
        kinds.append(_Kind(bare, parameters, float(weight) if _WEIGHT.fullmatch(weight) else 1.0))
    return sorted(kinds, key=lambda kind: -kind.weight)


def _kind_of(headers: Mapping[str, str]) -> str:
    """Return the type of an answer: JSON, with the parameters with which the request names it."""
    media_type = next((each for each in _accepted(headers) if each.bare in (JSON, *_WILD)), None)
    return JSON if media_type is None or media_type.bare != JSON else media_type.shown(weighed=False)


def _options(route: RestRoute, request: Request) -> Response:
    """Return the methods of a path: as text to those who read that first, else in the header alone."""
    text = ", ".join(route.methods)
    headers = {"allow": text.replace(" ", "")}
    first = _accepted(request.headers)[0]
    if first.bare in ("text/plain", "text/*", "*/*"):
        return Response(text.encode(), headers={**headers, "content-type": "text/plain"})
    return Response(headers={**headers, "content-type": first.shown(weighed=True)}, media_type=None)


def _error(status: int, message: str) -> RestAnswer:
    return RestAnswer(status, {"error_code": status, "message": message})


def _plain_error(status: int) -> Response:
    """Return an error of the server below the endpoints: JSON without a content type."""
    return Response(_error(status, _HTTP[status]).encoded(), status)


_BODY_BYTES = 16 << 20
_WAIT_S = 120.0
_PATIENCE_S = 90.0, 10.0  # Kafka Connect's, for requests and for the worker's health
_FIRST_ERROR = 400


class WorkerServer:
    """A worker and its REST interface.

    Args:
        config: The worker's settings.
        patience: The seconds that a request may take, and one for the worker's health.

    Raises:
        ConfigError: A setting is wrong.
        LogError: The log cannot be opened.
        EnvironmentProblemError: The port cannot be used.
    """

    def __init__(self, config: WorkerConfig, patience: tuple[float, float] = _PATIENCE_S) -> None:
        host, port = config.address
        listener = listen(host or "0.0.0.0", port, "Connect worker")  # noqa: S104 - Kafka Connect's default
        try:
            self.worker = Worker(config, config.worker_id(listener.port))
            scheme = "https" if config.secure else "http"
            self.worker.herder.publish_tasks = self._publish_tasks
            self.url = f"{scheme}://{self.worker.worker_id}"
            crossing = CrossOrigin(config["access.control.allow.origin"], config["access.control.allow.methods"])
            self._trust = trust_of(config)
            users = _users(config["penstock.users.file"])
            self._authorization = _authorization(users)
            loopback = host in ("127.0.0.1", "localhost", "::1")
            self._application = ConnectApplication(self.worker, self.url, patience)
            self._server = HttpServer(
                self._application,
                listener,
                access=WorkerAccess(AccessRules(users=users), crossing, checks_host=loopback),  # type: ignore[arg-type]
                limits=Limits(body_bytes=_BODY_BYTES, requests=256, receive_s=30.0),
                certificate=_certificate(config),
                shown=lambda status, message: {"error_code": status, "message": message},
            )
        except BaseException:
            listener.socket.close()
            raise

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return self._server.port

    def start(self) -> None:
        """Begin to work, and serve from a thread.

        Raises:
            LogError: The log cannot be reached.
        """
        self._server.start()
        self.worker.start()

    def _publish_tasks(self, name: str, configs: list[dict[str, str]]) -> None:
        """Store the configs of a connector's tasks, by way of the leader if that is another worker.

        Raises:
            LogError: The leader cannot be reached, or refuses them.
        """
        herder = self.worker.herder
        if herder.view.leads:
            herder.store_tasks(name, configs)
            return
        key, leader = herder.stores.configs.state.session_key, herder.view.leader
        if key is None or not leader:
            raise LogUnavailableError(f"the tasks of connector {name} wait for a leader of the group")
        body = json.dumps(configs).encode()
        signed = {SIGNATURE: signature(key, body), SIGNATURE_ALGORITHM: "HmacSHA256"}
        headers = {"content-type": JSON, **signed, **self._authorization}
        target = f"/connectors/{quote(name, safe='')}/tasks?forward=false"
        threading.Thread(target=self._ask, args=(leader, target, body, headers), daemon=True).start()

    def _ask(self, leader: str, target: str, body: bytes, headers: dict[str, str]) -> None:
        try:
            answer = ask_worker(leader, ("POST", target), body, headers, trust=self._trust)
        except OSError as error:
            _log.warning("the leader %s cannot be reached: %s", leader, error)
            return
        if answer.status >= _FIRST_ERROR:
            _log.warning("the leader refuses configs of tasks: %s", answer.encoded()[:300])

    def wait_until_ready(self, timeout_s: float = _WAIT_S) -> bool:
        """Wait until the worker is in its group and does its share; return whether it is."""
        return self.worker.herder.ready.wait(timeout_s)

    def stop(self) -> None:
        """Stop serving, and stop all connectors and tasks."""
        self._server.close()
        self._application.close()
        self.worker.stop()


def _users(file: str | None) -> dict[str, str] | None:
    if not file:
        return None
    try:
        return parse_users(Path(file).read_text().splitlines(), file)
    except OSError as error:
        raise ConfigError(
            f"penstock.users.file={file} cannot be read: {error.strerror}", hint="One NAME:PASSWORD a line."
        ) from error


def _authorization(users: dict[str, str] | None) -> dict[str, str]:
    """Return the header of requests to other workers, which have the same users: the file's first one."""
    if not users:
        return {}
    encoded = base64.b64encode(":".join(next(iter(users.items()))).encode()).decode()
    return {"authorization": f"Basic {encoded}"}


def _certificate(config: WorkerConfig) -> Certificate | None:
    if not config.secure:
        return None
    file = config["ssl.certificate.file"]
    if not file:
        raise ConfigError(
            "a listener is https, but there is no certificate", hint="Set ssl.certificate.file to a PEM file."
        )
    return Certificate(file, config["ssl.key.file"])
