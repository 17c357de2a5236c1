"""The same questions to a service in this process and to a server elsewhere; answers are plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote

from penstock.errors import StateError
from penstock.query.codec import Encoding
from penstock.query.extra import require_web
from penstock.query.service import QueryService

__all__ = ["Asking", "Local", "Question", "Remote"]

_TIMEOUT_S = 30.0
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a store.

    Attributes:
        store: Its name.
        how: The value of a key, entries of a prefix or a range, windows by their start, sessions that touch a time.
        key: The key, or the prefix, as text; of windows and sessions None for those of all keys.
        low: The first key or time; None: from the beginning.
        high: The last one; None: to the end.
        as_of: Of versioned stores, the time of the value.
        encoding: How keys are written.
        reverse: The last first; sessions have one order.
        limit: At most so many entries.
    """

    store: str
    how: Literal["get", "prefix", "range", "windows", "sessions"]
    key: str | None = None
    low: Any = None
    high: Any = None
    as_of: int | None = None
    encoding: str = "auto"
    reverse: bool = False
    limit: int = 100


class Asking(Protocol):
    """Whom one can ask."""

    def stores(self) -> list[Answer]: ...
    def kind(self, store: str) -> str: ...
    def ask(self, question: Question) -> Answer: ...
    def close(self) -> None: ...


class Local:
    """Asks a service."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def stores(self) -> list[Answer]:
        return self._service.stores()

    def kind(self, store: str) -> str:
        return self._service.state.store(store).spec.kind

    def ask(self, question: Question) -> Answer:
        q, encoding, service = question, _encoding(question.encoding), self._service
        match q.how:
            case "get":
                return service.get(q.store, q.key or "", encoding, q.as_of)
            case "prefix":
                return service.prefix(q.store, q.key or "", encoding=encoding, limit=q.limit)
            case "range":
                return service.range(q.store, q.low, q.high, encoding=encoding, reverse=q.reverse, limit=q.limit)
            case "windows":
                times = (q.key, q.low, q.high)
                return service.windows(q.store, *times, encoding=encoding, reverse=q.reverse, limit=q.limit)
            case "sessions":
                return service.sessions(q.store, q.key, q.low, q.high, encoding=encoding, limit=q.limit)

    def close(self) -> None:
        self._service.close()


class Remote:
    """Asks a query server."""

    def __init__(self, url: str) -> None:
        require_web()
        import httpx

        base = url if "://" in url else f"http://{url}"
        self._client = httpx.Client(base_url=base, timeout=_TIMEOUT_S, follow_redirects=True)

    def stores(self) -> list[Answer]:
        return cast("list[Answer]", self._ask("/stores"))

    def kind(self, store: str) -> str:
        return str(self._ask(f"/stores/{quote(store, safe='')}")["kind"])

    def ask(self, question: Question) -> Answer:
        q = question
        parameters: dict[str, Any] = {"encoding": q.encoding}
        if q.how == "get":
            parameters["as_of"] = q.as_of
        else:
            parameters |= {
                "prefix" if q.how == "prefix" else "key": q.key,
                "from": q.low,
                "to": q.high,
                "limit": q.limit,
            }
        if q.how in ("range", "windows"):
            parameters["reverse"] = q.reverse
        path = f"keys/{quote(q.key or '', safe='')}" if q.how == "get" else q.how
        given = {name: value for name, value in parameters.items() if value is not None}
        return cast("Answer", self._ask(f"/stores/{quote(q.store, safe='')}/{path}", given))

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
        found = answer.json() if "json" in answer.headers.get("content-type", "") else {}
        if answer.is_success:
            return found
        refusal = found.get("error", {}) if isinstance(found, dict) else {}
        raise StateError(
            refusal.get("message", f"the query server answered {answer.status_code}"), hint=refusal.get("hint", "")
        )


def _encoding(text: str) -> Encoding:
    from penstock.query.answers import refused
    from penstock.query.codec import ENCODINGS

    if text not in ENCODINGS:
        raise refused(f"encoding {text!r} is unknown", f"Use one of {', '.join(ENCODINGS)}.", "BAD_REQUEST", 400)
    return text
