"""The REST interface: the routes, their calls of the registry, and the form of errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from penstock.errors import SchemaRegistryError
from penstock.serde.registry.model import StoredSchema, refused
from penstock.serde.registry.service import Registry

__all__ = ["ROUTES", "Route", "RouteRequest", "handle"]


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """A request for a route's handler: the variable parts of the path, the query and the body."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def subject(self) -> str:
        return self.path.get("subject", "")

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def page(self, items: list[Any]) -> list[Any]:
        """Return the part of a list that ``offset`` and ``limit`` select."""
        offset, limit = max(0, self._number("offset", 0)), self._number("limit", -1)
        return items[offset:] if limit < 0 else items[offset : offset + limit]

    def _number(self, name: str, default: int) -> int:
        text = self.query.get(name)
        return default if text is None else _whole(text)

    @property
    def schema(self) -> StoredSchema:
        return StoredSchema.of_request(self.body)

    @property
    def schema_id(self) -> int:
        return _whole(self.path["id"])


@dataclass(frozen=True, slots=True)
class Route:
    """A method and path, with variable parts in braces, and the function that answers it."""

    method: str
    path: str
    answer: Callable[[Registry, RouteRequest], Any]


def _whole(text: str) -> int:
    """Parse a 32-bit number of a path or query; anything else gets 404, as in Confluent's registry."""
    if not _NUMBER.fullmatch(text) or not -(1 << 31) <= int(text) < 1 << 31:
        raise refused(404, 404, "HTTP 404 Not Found")
    return int(text)


def _by_id(registry: Registry, request: RouteRequest) -> Any:
    schema = registry.schema(request.schema_id)
    return {**schema.document(), "guid": schema.guid}


def _by_guid(registry: Registry, request: RouteRequest) -> Any:
    schema_id, schema = registry.schema_by_guid(request.path["guid"])
    return {**schema.document(), "id": schema_id, "guid": schema.guid}


def _uses(registry: Registry, request: RouteRequest) -> list[dict[str, Any]]:
    versions = registry.uses(request.schema_id, deleted=request.flag("deleted"))
    return request.page([{"subject": version.subject, "version": version.number} for version in versions])


def _subjects(registry: Registry, request: RouteRequest) -> list[str]:
    prefix = request.query.get("subjectPrefix", "")
    subjects = registry.subjects(prefix, deleted=request.flag("deleted") or request.flag("deletedOnly"))
    if request.flag("deletedOnly"):
        live = set(registry.subjects(prefix))
        subjects = [subject for subject in subjects if subject not in live]
    return request.page(subjects)


def _register(registry: Registry, request: RouteRequest) -> Any:
    schema_id = request.body.get("id")
    if schema_id is not None and not (isinstance(schema_id, int) and 0 < schema_id < 1 << 31):
        raise refused(422, 42201, "id is a whole number from 1 to 2^31-1")
    version = registry.register(request.subject, request.schema, schema_id)
    shown = version.document()
    del shown["subject"]
    return shown


def _lookup(registry: Registry, request: RouteRequest) -> Any:
    return registry.lookup(request.subject, request.schema, deleted=request.flag("deleted")).document()


def _versions(registry: Registry, request: RouteRequest) -> list[int]:
    only = request.flag("deletedOnly")
    versions = registry.versions(request.subject, deleted=only or request.flag("deleted"))
    return request.page([v.number for v in versions if v.deleted or not only])


def _version(registry: Registry, request: RouteRequest) -> Any:
    return registry.version(request.subject, request.path["version"], deleted=request.flag("deleted"))


def _with_metadata(registry: Registry, request: RouteRequest) -> Any:
    """Return the newest version with all metadata that the query names."""
    pairs = {name: value for name, value in request.query.items() if name not in {"key", "value", "deleted", "format"}}
    if "key" in request.query:
        pairs[request.query["key"]] = request.query.get("value", "")
    for version in reversed(registry.versions(request.subject, deleted=request.flag("deleted"))):
        properties = version.document().get("metadata", {}).get("properties")
        if isinstance(properties, dict) and all(properties.get(name) == value for name, value in pairs.items()):
            return version.document()
    raise refused(404, 40403, "Schema not found")


def _compatible(registry: Registry, request: RouteRequest) -> Any:
    problems = registry.problems(request.subject, request.schema, request.path.get("version"))
    return {"is_compatible": not problems, **({"messages": problems} if request.flag("verbose") else {})}


def _all_versions(registry: Registry, request: RouteRequest) -> list[Any]:
    prefix, deleted = request.query.get("subjectPrefix", ""), request.flag("deleted")
    versions = [v for v in registry.all_versions(deleted=deleted) if v.subject.startswith(prefix)]
    if request.flag("latestOnly"):
        versions = list({version.subject: version for version in versions}.values())
    return request.page([version.document() for version in versions])


def _inherits(request: RouteRequest) -> bool:
    return request.flag("defaultToGlobal")


def _mode(registry: Registry, request: RouteRequest) -> Any:
    own = request.subject and not _inherits(request)
    return {"mode": registry.own_mode(request.subject) if own else registry.mode(request.subject)}


ROUTES = (
    Route("GET", "/", lambda *_: {}),
    Route("GET", "/contexts", lambda *_: ["."]),
    Route("GET", "/schemas", _all_versions),
    Route("GET", "/schemas/types", lambda *_: ["JSON", "PROTOBUF", "AVRO"]),
    Route("GET", "/schemas/ids/{id}", _by_id),
    Route("GET", "/schemas/ids/{id}/schema", lambda registry, request: registry.schema(request.schema_id).text),
    Route("GET", "/schemas/ids/{id}/subjects", lambda *at: list(dict.fromkeys(use["subject"] for use in _uses(*at)))),
    Route("GET", "/schemas/ids/{id}/versions", _uses),
    Route("GET", "/schemas/guids/{guid}", _by_guid),
    Route("GET", "/subjects", _subjects),
    Route("POST", "/subjects/{subject}", _lookup),
    Route(
        "DELETE",
        "/subjects/{subject}",
        lambda registry, request: registry.delete_subject(request.subject, permanently=request.flag("permanent")),
    ),
    Route("GET", "/subjects/{subject}/metadata", _with_metadata),
    Route("GET", "/subjects/{subject}/versions", _versions),
    Route("POST", "/subjects/{subject}/versions", _register),
    Route("GET", "/subjects/{subject}/versions/{version}", lambda *at: _version(*at).document()),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", lambda *at: _version(*at).schema.text),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby", lambda *at: at[0].referenced_by(_version(*at))),
    Route(
        "DELETE",
        "/subjects/{subject}/versions/{version}",
        lambda registry, request: registry.delete_version(
            request.subject, request.path["version"], permanently=request.flag("permanent")
        ),
    ),
    Route("POST", "/compatibility/subjects/{subject}/versions", _compatible),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}", _compatible),
    *(
        Route(method, path, answer)
        for path in ("/config", "/config/{subject}")
        for method, answer in (
            (
                "GET",
                lambda registry, request: registry.config(request.subject, inherit=request.flag("defaultToGlobal")),
            ),
            ("PUT", lambda registry, request: registry.set_config(request.subject, dict(request.body))),
            ("DELETE", lambda registry, request: registry.delete_config(request.subject)),
        )
    ),
    *(
        Route(method, path, answer)
        for path in ("/mode", "/mode/{subject}")
        for method, answer in (
            ("GET", _mode),
            (
                "PUT",
                lambda registry, request: {"mode": registry.set_mode(request.subject, str(request.body.get("mode")))},
            ),
            ("DELETE", lambda registry, request: {"mode": registry.delete_mode(request.subject)}),
        )
    ),
)
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_PATTERNS = [(route, route.path.strip("/").split("/")) for route in ROUTES]


def handle(
    registry: Registry, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any] | None
) -> tuple[int, Any]:
    """Answer one request; return the HTTP status and the JSON document.

    Args:
        registry: The registry.
        method: ``GET``, ``POST``, ``PUT`` or ``DELETE``.
        path: The path as sent: parts may be percent-encoded, so a subject may contain slashes.
        query: The query's values by name.
        body: The JSON object of a request that has one.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    path_exists = False
    for route, pattern in _PATTERNS:
        if len(pattern) != len(parts):
            continue
        if any(not part if want.startswith("{") else want != part for want, part in zip(pattern, parts, strict=True)):
            continue
        path_exists = True
        if route.method != method:
            continue
        named = {want[1:-1]: part for want, part in zip(pattern, parts, strict=True) if want.startswith("{")}
        try:
            return 200, route.answer(registry, RouteRequest(named, query, body or {}))
        except SchemaRegistryError as error:
            status = int(error.facts.get("status", 500))  # type: ignore[call-overload]
            return status, {"error_code": error.facts.get("code", status), "message": error.message}
    status = 405 if path_exists else 404
    return status, {
        "error_code": status,
        "message": f"HTTP {status} {'Method Not Allowed' if path_exists else 'Not Found'}",
    }
