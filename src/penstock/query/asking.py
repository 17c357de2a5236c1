"""The same questions to a service in this process and to a server elsewhere; answers are plain data."""

from __future__ import annotations

from typing import Any, Protocol, cast
from urllib.parse import quote

from penstock.errors import StateError
from penstock.query.codec import Encoding
from penstock.query.extra import require_web
from penstock.query.service import QueryService

__all__ = ["Asking", "Local", "Remote"]

_TIMEOUT_S = 30.0
Answer = dict[str, Any]


class Asking(Protocol):
    """What can be asked."""

    def stores(self) -> list[Answer]: ...
    def kind(self, store: str) -> str: ...
    def get(self, store: str, key: str, encoding: str, as_of: int | None) -> Answer: ...
    def prefix(self, store: str, prefix: str, *, encoding: str, limit: int) -> Answer: ...
    def range(
        self, store: str, low: str | None, high: str | None, *, encoding: str, reverse: bool, limit: int
    ) -> Answer: ...
    def times(
        self,
        kind: str,
        store: str,
        key: str | None,
        since: int | None,
        until: int | None,
        *,
        encoding: str,
        reverse: bool,
        limit: int,
    ) -> Answer:
        """Windows by their start, or the sessions that touch a time."""
        ...

    def close(self) -> None: ...


class Local:
    """Asks a service."""

    def __init__(self, service: QueryService) -> None:
        self._service = service

    def stores(self) -> list[Answer]:
        return self._service.stores()

    def kind(self, store: str) -> str:
        return self._service.state.store(store).spec.kind

    def get(self, store: str, key: str, encoding: str, as_of: int | None) -> Answer:
        return self._service.get(store, key, _encoding(encoding), as_of)

    def prefix(self, store: str, prefix: str, *, encoding: str, limit: int) -> Answer:
        return self._service.prefix(store, prefix, encoding=_encoding(encoding), limit=limit)

    def range(
        self, store: str, low: str | None, high: str | None, *, encoding: str, reverse: bool, limit: int
    ) -> Answer:
        return self._service.range(store, low, high, encoding=_encoding(encoding), reverse=reverse, limit=limit)

    def times(
        self,
        kind: str,
        store: str,
        key: str | None,
        since: int | None,
        until: int | None,
        *,
        encoding: str,
        reverse: bool,
        limit: int,
    ) -> Answer:
        how = _encoding(encoding)
        if kind == "session":
            return self._service.sessions(store, key, since, until, encoding=how, limit=limit)
        return self._service.windows(store, key, since, until, encoding=how, reverse=reverse, limit=limit)

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

    def get(self, store: str, key: str, encoding: str, as_of: int | None) -> Answer:
        return self._of(store, f"keys/{quote(key, safe='')}", encoding=encoding, as_of=as_of)

    def prefix(self, store: str, prefix: str, *, encoding: str, limit: int) -> Answer:
        return self._of(store, "prefix", prefix=prefix, encoding=encoding, limit=limit)

    def range(
        self, store: str, low: str | None, high: str | None, *, encoding: str, reverse: bool, limit: int
    ) -> Answer:
        bounds = {"from": low, "to": high}
        return self._of(store, "range", **bounds, encoding=encoding, reverse=reverse, limit=limit)

    def times(
        self,
        kind: str,
        store: str,
        key: str | None,
        since: int | None,
        until: int | None,
        *,
        encoding: str,
        reverse: bool,
        limit: int,
    ) -> Answer:
        bounds = {"from": since, "to": until}
        more = {} if kind == "session" else {"reverse": reverse}
        return self._of(store, f"{kind}s", key=key, **bounds, encoding=encoding, limit=limit, **more)

    def close(self) -> None:
        self._client.close()

    def _of(self, store: str, path: str, **parameters: Any) -> Answer:
        given = {name: value for name, value in parameters.items() if value is not None}
        return cast("Answer", self._ask(f"/stores/{quote(store, safe='')}/{path}", given))

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
