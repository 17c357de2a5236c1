"""Clients of queries, in this process or by HTTP; answers are plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote

from penstock.errors import StateError
from penstock.query.http.answers import ENCODINGS, Encoding, Paging, refused
from penstock.query.http.server import require_http_libraries
from penstock.query.http.service import QueryService

__all__ = ["LocalClient", "QueryClient", "RemoteClient", "StoreQuery"]

_TIMEOUT_S = 30.0
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """A query of a store.

    Attributes:
        store: The store's name.
        form: The value of a key, entries of a prefix or a range, windows by start, sessions that overlap a time range.
        key: The key or the prefix, as text; for windows and sessions None for all keys.
        low: The first key or time; None: from the beginning.
        high: The last key or time; None: to the end.
        as_of: The time of the value, for versioned stores.
        encoding: The form in which keys are written.
        reverse: Whether the last entries come first; sessions have one order.
        limit: The largest number of entries.
        stale: Whether the nearest copy answers, however far it is behind.
    """

    store: str
    form: Literal["get", "prefix", "range", "windows", "sessions"]
    key: str | None = None
    low: Any = None
    high: Any = None
    as_of: int | None = None
    encoding: str = "auto"
    reverse: bool = False
    limit: int = 100
    stale: bool = False


class QueryClient(Protocol):
    """A client of queries."""

    def stores(self) -> list[Answer]: ...
    def kind(self, store: str) -> str: ...
    def query(self, query: StoreQuery) -> Answer: ...
    def metadata(self, store: str, key: str, encoding: str) -> Answer: ...
    def lags(self) -> Answer: ...
    def close(self) -> None: ...


class LocalClient:
    """A client of a service in this process."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def stores(self) -> list[Answer]:
        return self._service.stores()

    def kind(self, store: str) -> str:
        return self._service.state.store(store).spec.kind

    def query(self, query: StoreQuery) -> Answer:
        q, service = query, self._service.stale() if query.stale else self._service
        paging = Paging(_encoding(q.encoding), q.reverse, q.limit)
        match q.form:
            case "get":
                return service.get(q.store, q.key or "", paging.encoding, q.as_of)
            case "prefix":
                return service.prefix(q.store, q.key or "", paging)
            case "range":
                return service.range(q.store, q.low, q.high, paging)
            case "windows":
                return service.windows(q.store, q.key, q.low, q.high, paging)
            case "sessions":
                return service.sessions(q.store, q.key, q.low, q.high, paging)

    def metadata(self, store: str, key: str, encoding: str) -> Answer:
        return self._service.metadata(store, key, _encoding(encoding))

    def lags(self) -> Answer:
        return self._service.lags()

    def close(self) -> None:
        self._service.close()


class RemoteClient:
    """A client of a query server."""

    def __init__(self, url: str) -> None:
        require_http_libraries()
        import httpx

        base = url if "://" in url else f"http://{url}"
        self._client = httpx.Client(base_url=base, timeout=_TIMEOUT_S, follow_redirects=True)

    def stores(self) -> list[Answer]:
        return cast("list[Answer]", self._ask("/stores"))

    def kind(self, store: str) -> str:
        return str(self._ask(f"/stores/{quote(store, safe='')}")["kind"])

    def query(self, query: StoreQuery) -> Answer:
        q = query
        parameters: dict[str, Any] = {"encoding": q.encoding, "stale": q.stale or None}
        if q.form == "get":
            parameters["as_of"] = q.as_of
        else:
            parameters |= {
                "prefix" if q.form == "prefix" else "key": q.key,
                "from": q.low,
                "to": q.high,
                "limit": q.limit,
            }
        if q.form in ("range", "windows"):
            parameters["reverse"] = q.reverse
        path = f"keys/{quote(q.key or '', safe='')}" if q.form == "get" else q.form
        query_parameters = {name: value for name, value in parameters.items() if value is not None}
        return cast("Answer", self._ask(f"/stores/{quote(q.store, safe='')}/{path}", query_parameters))

    def metadata(self, store: str, key: str, encoding: str) -> Answer:
        path = f"/metadata/{quote(store, safe='')}/{quote(key, safe='')}"
        return cast("Answer", self._ask(path, {"encoding": encoding}))

    def lags(self) -> Answer:
        return cast("Answer", self._ask("/lags"))

    def metrics(self, matching: str = "") -> Answer:
        """Return the metrics of a running application, its newest batch and its lags."""
        document = self._ask("/metrics/json", {"matching": matching})
        if not isinstance(document, dict) or "metrics" not in document:
            raise StateError(
                f"{self._client.base_url} is not an address of an application's metrics",
                hint="Give the host and the penstock.http.port of a running application.",
            )
        return document

    def close(self) -> None:
        self._client.close()

    def _ask(self, path: str, parameters: dict[str, Any] | None = None) -> Any:
        import httpx

        try:
            answer = self._client.get(path, params=parameters)
        except httpx.HTTPError as error:
            raise StateError(
                f"the query server at {self._client.base_url} does not answer: {error}",
                hint="Is it running? penstock query serve starts one; an application has one with penstock.http.port.",
            ) from error
        document = answer.json() if "json" in answer.headers.get("content-type", "") else {}
        if answer.is_success:
            return document
        refusal = document.get("error", {}) if isinstance(document, dict) else {}
        raise StateError(
            refusal.get("message", f"the query server answered {answer.status_code}"), hint=refusal.get("hint", "")
        )


def _encoding(text: str) -> Encoding:

    if text not in ENCODINGS:
        raise refused(f"encoding {text!r} is unknown", f"Use one of {', '.join(ENCODINGS)}.", "BAD_REQUEST", 400)
    return text
