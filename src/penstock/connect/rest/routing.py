"""Which endpoint a path and a method name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, unquote_to_bytes

from penstock.connect.rest.admin import AdminEndpoints
from penstock.connect.rest.connectors import ConnectorEndpoints
from penstock.connect.rest.messages import RestAnswer, RestCall
from penstock.connect.rest.plugins import PluginEndpoints
from penstock.connect.worker.worker import Worker

__all__ = ["Endpoint", "RestRoute", "find_route", "is_ambiguous", "is_broken", "routes"]

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
