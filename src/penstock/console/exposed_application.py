"""An application of a console as visitors may see it: its figures and its stores, without what is hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.console.actions import ask_to_stop
from penstock.console.app_view import Picture
from penstock.console.applications import Application, OwnApplication
from penstock.console.exposure import Exposure
from penstock.errors import InvalidStateError, PenstockError, StateError
from penstock.query.http.answers import Encoding, Paging
from penstock.query.http.service import QueryService

if TYPE_CHECKING:
    from penstock.query.http.answers import Freshness

__all__ = ["Exposed", "ExposedQueries"]

_FIRST_PAGE = Paging()


class Exposed:
    """An application whose figures and stores are shown as far as they may be.

    Args:
        application: The application.
        exposure: What of records may be shown.
    """

    def __init__(self, application: Application | OwnApplication, exposure: Exposure) -> None:
        self._application, self._exposure = application, exposure

    @property
    def name(self) -> str:
        """The ``application.id``."""
        return self._application.name

    def stamp(self) -> object:
        """Return a value that changes when the figures do."""
        return self._application.stamp()

    def picture(self) -> Picture:
        """Return its figures."""
        whole = self._application.picture()
        return Picture(self._exposure.document(whole.document)) if self._exposure.is_limited else whole

    def topology(self) -> dict[str, Any] | None:
        """Return its drawing; None until it is known."""
        return self._application.topology()

    def minutes(self) -> list[list[Any]]:
        """Return its history, a row for each minute with batches."""
        return self._application.minutes()

    def queries(self) -> QueryService:
        """Return the service that answers queries of its stores."""
        service = self._application.queries()
        return ExposedQueries(service, self._exposure) if self._exposure.is_limited else service

    def ask_to_stop(self) -> None:
        """Stop it, or ask its process to.

        Raises:
            InvalidStateError: It cannot be stopped from here.
        """
        application = self._application
        if isinstance(application, Application):
            ask_to_stop(application.checkpoint, application.name)
        elif application.stop is None:
            raise InvalidStateError(f"{application.name} cannot be stopped from here", hint="Stop its process.")
        else:
            application.stop()


class ExposedQueries(QueryService):
    """A query service whose answers have what may be shown.

    Where fields of keys are hidden, stores are asked for all entries alone: whoever may ask for a key, a prefix or a
    range finds the hidden part by trying. Cursors hold keys too, so there is no next page then.

    Args:
        service: The service.
        exposure: What of records may be shown.
    """

    def __init__(self, service: QueryService, exposure: Exposure) -> None:
        self.__dict__.update(service.__dict__)
        self._exposure = exposure
        self._service = service
        self.may_forward = False  # another instance's answer would hide nothing

    @property
    def origin(self) -> QueryService:
        """The service whose answers these are."""
        return self._service

    def stale(self) -> QueryService:
        """Return the service that answers from the nearest copy, however far it is behind."""
        return ExposedQueries(self._service.stale(), self._exposure)

    def health(self) -> dict[str, Any]:
        """Describe how fresh the state is, with the alerts that hold."""
        facts = self._service.health()
        if "alerts" in facts:
            facts = {**facts, "alerts": [self._exposure.alert(each, {}) for each in facts["alerts"]]}
        return facts

    def get(self, store: str, key: str, encoding: Encoding = "auto", as_of: int | None = None) -> dict[str, Any]:
        """Return the value of a key."""
        self._require_keys()
        return self._shown(lambda: self._service.get(store, key, encoding, as_of))

    def versions(
        self, store: str, key: str, low: int | None, high: int | None, paging: Paging = _FIRST_PAGE
    ) -> dict[str, Any]:
        """Return the versions of a key."""
        self._require_keys()
        return self._shown(lambda: self._service.versions(store, key, low, high, paging))

    def range(
        self, store: str, low: str | None = None, high: str | None = None, paging: Paging = _FIRST_PAGE
    ) -> dict[str, Any]:
        """Return the entries from one key to another."""
        if low is not None or high is not None or paging.cursor is not None:
            self._require_keys()
        return self._shown(lambda: self._service.range(store, low, high, paging))

    def prefix(self, store: str, prefix: str, paging: Paging = _FIRST_PAGE) -> dict[str, Any]:
        """Return the entries whose keys have a prefix."""
        self._require_keys()
        return self._shown(lambda: self._service.prefix(store, prefix, paging))

    def windows(
        self, store: str, key: str | None, low: int | None, high: int | None, paging: Paging = _FIRST_PAGE
    ) -> dict[str, Any]:
        """Return the windows of a key or of all."""
        if key is not None:
            self._require_keys()
        return self._shown(lambda: self._service.windows(store, key, low, high, paging))

    def sessions(
        self,
        store: str,
        key: str | None,
        earliest_end: int | None,
        latest_start: int | None,
        paging: Paging = _FIRST_PAGE,
    ) -> dict[str, Any]:
        """Return the sessions of a key or of all."""
        if key is not None:
            self._require_keys()
        return self._shown(lambda: self._service.sessions(store, key, earliest_end, latest_start, paging))

    def metadata(self, store: str, key: str, encoding: Encoding = "auto") -> dict[str, Any]:
        """Return the partition and the hosts of a key."""
        self._require_keys()
        return self._service.metadata(store, key, encoding)

    def not_fresh(self, freshness: Freshness) -> StateError | None:
        """Return the error if the state is not fresh enough; else None."""
        return self._service.not_fresh(freshness)

    def _require_keys(self) -> None:
        self._exposure.require_messages()
        if self._exposure.hides("key"):
            raise PenstockError(
                "fields of keys are hidden, so stores cannot be queried by key", hint="Query all entries.", status=403
            )

    def _shown(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        self._exposure.require_messages()
        try:
            answer = ask()
        except PenstockError as error:
            if "answer" in error.facts:  # it has the key that was asked for
                raise
            raise self._exposure.error(error) from None
        answer = self._entry(answer)
        if "entries" in answer:
            answer["entries"] = [self._entry(each) for each in answer["entries"]]
        if self._exposure.hides("key") and answer.get("next") and not str(answer["next"]).isdecimal():
            answer["next"] = None
        return answer

    def _entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        shown = {root: self._exposure.fields(root, entry[root]) for root in ("key", "value") if root in entry}
        return {**entry, **shown}
