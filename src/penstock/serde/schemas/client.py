"""The client of the registry: confluent-kafka's, one per process and settings, with a cache of all answers."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from penstock.base.identities import identity_tokens
from penstock.base.json_depth import depth_of
from penstock.errors import ConfigError, SchemaRegistryError, SerializationError
from penstock.serde.formats.schema_text import SchemaText
from penstock.serde.schemas.schema_settings import IDENTITY

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

    from penstock.serde.schemas.schema_settings import SchemaSettings

__all__ = [
    "Registered",
    "RegistryClient",
    "client_for",
    "confluent_client",
    "no_registry",
    "registry_errors",
]

_MISSING_FOR_S = 10.0  # so long an id that the registry does not know is not asked for again, unless a caller wants to
_LARGEST_ID = (1 << 31) - 1  # of Confluent's registry; larger ones are none
_NOT_FOUND = 404
_NO_FAULT_OF_THE_ID = frozenset({401, 403, 407, 408, 429})
_MOST_SCHEMA_CHARACTERS = 4 << 20  # of a schema, and of all that it refers to
_MOST_SCHEMA_DEPTH = 200


@dataclass(frozen=True)
class Registered:
    """A schema in the registry; ``extra`` holds what a serde derives from it, once per process."""

    schema_id: int
    guid: str | None
    schema: SchemaText
    extra: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)


class RegistryClient:
    """A client of a registry that remembers the answers for ever: ids and the schemas behind them never change.

    Args:
        url: For messages.
        client: confluent-kafka's client.
        latest_ttl_s: The seconds after which the newest version of a subject is asked for again; -1: never.
    """

    def __init__(self, url: str, client: SchemaRegistryClient, latest_ttl_s: float = -1) -> None:
        self.url = url
        self._client = client
        self._by_id: dict[int | str, Registered] = {}
        self._by_subject: dict[tuple[Any, ...], Registered] = {}
        self._latest_ttl_s = latest_ttl_s
        self._latest: dict[str, tuple[Registered, float]] = {}  # with the time at which it was asked for
        self._missing: dict[int | str, float] = {}
        self._lock = threading.RLock()

    def schema(self, schema_id: int | str) -> Registered:
        """Return the schema of an id (number) or GUID (text).

        Raises:
            SerializationError: The registry does not know it.
            SchemaRegistryError: The registry does not answer.
        """
        registered = self._by_id.get(schema_id)
        if registered is not None:
            return registered
        if isinstance(schema_id, int) and schema_id > _LARGEST_ID:
            raise self._unknown(schema_id)
        with self._lock:
            if time.monotonic() < self._missing.get(schema_id, 0.0):
                raise self._unknown(schema_id)
            registered = self._by_id.get(schema_id) or self._fetch(schema_id)
            self._by_id[schema_id] = registered
        return registered

    def _fetch(self, schema_id: int | str) -> Registered:
        try:
            if isinstance(schema_id, int):
                schema = self._ask(f"look up schema id {schema_id}", self._client.get_schema, schema_id)
                return Registered(schema_id, None, self._text(schema))
            schema = self._ask(f"look up schema {schema_id}", self._client.get_schema_by_guid, schema_id)
            return Registered(-1, schema_id, self._text(schema))
        except SchemaRegistryError as error:
            if _is_refused_id(error.facts.get("status")):
                self._missing[schema_id] = time.monotonic() + _MISSING_FOR_S
                raise self._unknown(schema_id) from error
            raise

    def ask_again(self) -> None:
        """Forget which ids were missing: they may be there by now."""
        with self._lock:
            self._missing.clear()

    def _unknown(self, schema_id: int | str) -> SerializationError:
        return SerializationError(
            f"the registry {self.url} has no schema {schema_id}",
            hint="The record was written with another registry, or the bytes are not registry framing at all.",
            schema_id=schema_id,
        )

    def register(self, subject: str, schema: Schema, *, auto_register: bool, normalize: bool) -> Registered:
        """Return the id of a schema under a subject; registers it if it is new and may be.

        Raises:
            SchemaRegistryError: The registry refuses it (it is not compatible), lacks it, or does not answer.
        """
        key = (subject, schema.schema_str, schema.schema_type, normalize)
        registered = self._by_subject.get(key)
        if registered is None:
            with self._lock:
                ask = self._client.register_schema_full_response if auto_register else self._client.lookup_schema
                what = "register" if auto_register else "find"
                answer = self._ask(f"{what} the schema of subject {subject!r}", ask, subject, schema, normalize)
                registered = self._registered(answer, schema)
                self._by_subject[key] = registered
        return registered

    def latest(self, subject: str) -> Registered:
        """Return the newest version of a subject, as it was when it was last asked for."""
        with self._lock:
            entry = self._latest.get(subject)
            if entry is not None and (self._latest_ttl_s < 0 or time.monotonic() < entry[1] + self._latest_ttl_s):
                return entry[0]
            asked_s = time.monotonic()
            self._client.clear_latest_caches()
            answer = self._ask(
                f"find the latest version of subject {subject!r}", self._client.get_latest_version, subject
            )
            registered = self._registered(answer, answer.schema)
            if entry is not None and entry[0] == registered:
                registered = entry[0]
            self._latest[subject] = registered, asked_s
            return registered

    def has_newer(self, subject: str, registered: Registered) -> bool:
        """Return whether a subject has another newest version than this one, which `latest` returned.

        Never, if the newest version is kept for ever.
        """
        return self._latest_ttl_s >= 0 and self.latest(subject) is not registered

    def _registered(self, answer: Any, schema: Schema) -> Registered:
        return Registered(answer.schema_id, answer.guid, self._text(schema))  # older registries return no GUID

    def reference(self, subject: str, schema: Schema, *, auto_register: bool) -> SchemaReference:
        """Return the reference by which another schema names this one; registers this one if it is new and may be."""
        from confluent_kafka.schema_registry import SchemaReference

        self.register(subject, schema, auto_register=auto_register, normalize=False)
        registered = self._ask(f"find the schema of subject {subject!r}", self._client.lookup_schema, subject, schema)
        return SchemaReference(subject, subject, registered.version)

    def _text(self, schema: Schema) -> SchemaText:
        texts: dict[str, str] = {}
        seen: set[str] = set()
        size = len(schema.schema_str or "")

        def visit(one: Schema) -> None:
            nonlocal size
            for reference in one.references or ():
                if str(reference.name) not in seen:
                    seen.add(str(reference.name))
                    version = self._ask(
                        f"look up the reference {reference.name!r}",
                        self._client.get_version,
                        reference.subject,
                        reference.version,
                        True,  # noqa: FBT003 - deleted ones too
                    )
                    size += len(version.schema.schema_str or "")
                    self._check_size(schema, size, len(seen))
                    visit(version.schema)
                    texts[str(reference.name)] = version.schema.schema_str

        self._check_size(schema, size, 0)
        visit(schema)
        return SchemaText(schema.schema_str or "", schema.schema_type or "AVRO", tuple(texts.items()))

    def _check_size(self, schema: Schema, characters: int, references: int) -> None:
        """Raise SerializationError for schemas that are too large for a parser."""
        depth = depth_of((schema.schema_str or "").encode("utf-8", "replace"))
        if characters <= _MOST_SCHEMA_CHARACTERS and references <= _MOST_SCHEMA_DEPTH and depth <= _MOST_SCHEMA_DEPTH:
            return
        raise SerializationError(
            f"a schema of the registry {self.url} is too large: {characters:,} characters, {references} references, "
            f"{depth} levels",
            hint=f"Read are {_MOST_SCHEMA_CHARACTERS:,} characters and {_MOST_SCHEMA_DEPTH} references and levels.",
        )

    def _ask(self, what: str, call: Any, *arguments: Any) -> Any:
        with registry_errors(self.url, what):
            return call(*arguments)


@contextmanager
def registry_errors(url: str, what: str) -> Iterator[None]:
    """Turn the errors of confluent-kafka's client into ours.

    Args:
        url: The registry's.
        what: The request, for the message.
    """
    from confluent_kafka.schema_registry import SchemaRegistryError as Refused
    from confluent_kafka.schema_registry.error import OAuthTokenError

    try:
        yield
    except Refused as error:
        raise SchemaRegistryError(
            f"the registry {url} refuses to {what}: {error.error_message} ({error.error_code})",
            hint=_hint(error.http_status_code, error.error_code),
            status=error.http_status_code,
            code=error.error_code,
        ) from error
    except OAuthTokenError as error:
        raise SchemaRegistryError(
            f"there is no token for the registry {url} to {what}: {error.message} ({error.status_code})",
            hint="Check bearer.auth.issuer.endpoint.url, bearer.auth.client.id and bearer.auth.client.secret.",
        ) from error
    except Exception as error:
        # The client uses httpx or httpx2, whichever is installed.
        if not isinstance(error, OSError) and not type(error).__module__.startswith("httpx"):
            raise
        raise SchemaRegistryError(
            f"the registry {url} cannot be reached to {what}: {type(error).__name__} {error}",
            hint="Check schema.registry.url and that the registry runs (`penstock registry start` starts one).",
        ) from error


def _is_refused_id(status: object) -> bool:
    """Return whether the registry has answered that there is no such schema; some do so without status 404."""
    return isinstance(status, int) and 400 <= status < 500 and status not in _NO_FAULT_OF_THE_ID


_OF_DELETED = range(40404, 40408)  # deleted twice, or permanently before it was deleted


def _hint(status: int, code: int) -> str:
    if status in {401, 403}:
        return "Check basic.auth.user.info, bearer.auth.* or penstock.registry.identity, and what that user may do."
    if code in _OF_DELETED:
        return "What is deleted can be restored (`penstock registry restore`), or deleted permanently, in this order."
    if status == _NOT_FOUND:
        return "Register the schema first, or set auto.register.schemas to true."
    if status == 409:
        return "Change the schema so that it is compatible (new fields need defaults), or the subject's compatibility."
    return "The registry's log says more."


_clients: dict[Any, RegistryClient] = {}
_clients_lock = threading.Lock()


def client_for(settings: SchemaSettings) -> RegistryClient:
    """Return this process's client for these settings.

    Raises:
        ConfigError: No registry is named, or its client is not installed or refuses the settings.
    """
    conf = settings.client()
    key = (os.getpid(), tuple(sorted((name, str(value)) for name, value in conf.items())))
    client = _clients.get(key)
    if client is None:
        with _clients_lock:
            client = _clients.get(key)
            if client is None:
                ttl_s = conf.pop("cache.latest.ttl.sec", -1)
                url = shown_url(str(conf.get("url")))
                client = _clients[key] = RegistryClient(url, confluent_client(conf), ttl_s)
    return client


def shown_url(url: str) -> str:
    """Return a URL without credentials: everything before its host is removed."""
    return re.sub(r"//[^/,@]*@", "//", url)


def no_registry(serde: str) -> ConfigError:
    """Return the error of a serde that needs a registry and has none."""
    return ConfigError(
        f"the {serde} serde has no registry",
        hint='Set schema.registry.url, give the serde registry="http://...", or framing="none" for bare bytes.',
    )


def confluent_client(conf: Mapping[str, Any]) -> SchemaRegistryClient:
    """Return confluent-kafka's client; ``mock://name`` asks the registry of that name in this process."""
    if not conf.get("url"):
        raise no_registry("schema")
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ConfigError(
            f"the schema registry's client is not installed: {error}", hint='Run: pip install "penstock[schemas]"'
        ) from error
    url = str(conf["url"])
    try:
        if not url.startswith("mock://"):
            return SchemaRegistryClient(_with_tokens(conf))
        client = SchemaRegistryClient({"url": "http://mock"})
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"the schema registry's client refuses its settings: {error}") from error
    vars(client)["_rest_client"] = _InProcess(url.removeprefix("mock://"))  # it has no other seam
    return client


def _with_tokens(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Replace an identity by a function that returns its tokens, which the client asks at each request."""
    options = {
        name.removeprefix(f"{IDENTITY}."): value for name, value in conf.items() if name.startswith(f"{IDENTITY}.")
    }
    rest = {name: value for name, value in conf.items() if not name.startswith(IDENTITY)}
    if IDENTITY not in conf:
        if options:
            raise ConfigError(f"{IDENTITY}.{min(options)} is set, and no {IDENTITY}", setting=IDENTITY)
        return rest
    name = str(conf[IDENTITY])
    tokens = identity_tokens(name, {"format": "access", **options} if name == "google" else options, IDENTITY)
    fields = {
        "bearer.auth.logical.cluster": str(rest.pop("bearer.auth.logical.cluster", "")),
        **{pool: rest.pop(pool) for pool in ("bearer.auth.identity.pool.id",) if pool in rest},
    }
    return rest | {
        "bearer.auth.credentials.source": "CUSTOM",
        "bearer.auth.custom.provider.function": lambda _: {"bearer.auth.token": tokens.get().text, **fields},
        "bearer.auth.custom.provider.config": {},
    }


class _InProcess:
    """A substitute for the client's HTTP: the same requests, answered in this process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.session = self  # what the client closes

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def get(self, url: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._ask("GET", url, query)

    def post(self, url: str, body: Mapping[str, Any] | None, **_: Any) -> Any:
        return self._ask("POST", url, None, body)

    def put(self, url: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._ask("PUT", url, None, body)

    def delete(self, url: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._ask("DELETE", url, query)

    def _ask(
        self, method: str, url: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryError as Refused

        from penstock.serde.registry.routes import handle
        from penstock.serde.registry.service import named

        parts = urlsplit(url)
        asked = {**dict(parse_qsl(parts.query)), **{name: str(value) for name, value in (query or {}).items()}}
        status, answer = handle(named(self._name), method, parts.path, asked, body)
        if status >= 300:
            raise Refused(status, answer["error_code"], answer["message"])
        return answer
