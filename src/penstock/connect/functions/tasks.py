"""The tasks behind functions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.durations import duration_ms
from penstock.connect.api import SinkTask, SourceTask
from penstock.connect.config import ConfigDef
from penstock.connect.data import SinkRecord, SourceRecord, Struct
from penstock.connect.functions.function_settings import Settings
from penstock.connect.functions.record import Offsets, Record
from penstock.errors import ConnectError

__all__ = ["FunctionSinkTask", "FunctionSourceTask", "SourceFunction", "to_table"]

SourceFunction = Callable[[Settings, Offsets], Iterable[Any]]
MOST_RECORDS = 1000
MOST_SECONDS = 0.5
LONGEST_WAIT = 0.5


class FunctionSourceTask(SourceTask):
    """A task that polls a generator. It yields a Record, a list of them (one transaction), or a time to wait."""

    function: ClassVar[SourceFunction]
    definition: ClassVar[ConfigDef]

    def start(self, settings: Mapping[str, str]) -> None:
        self._stopped = threading.Event()
        self._wait_until = 0.0
        parsed = Settings(self.definition.parse(settings))
        self._yielded: Iterator[Any] | None = iter(type(self).function(parsed, Offsets(self.context.offset_reader)))

    def poll(self) -> Sequence[SourceRecord] | None:
        left = self._wait_until - time.monotonic()
        if left > 0 or self._yielded is None:
            self._stopped.wait(min(left, LONGEST_WAIT) if self._yielded is not None else LONGEST_WAIT)
            if self._yielded is None or time.monotonic() < self._wait_until:
                return None
        records: list[SourceRecord] = []
        deadline = time.monotonic() + MOST_SECONDS
        while len(records) < MOST_RECORDS and not self._stopped.is_set() and time.monotonic() < deadline:
            try:
                yielded = next(self._yielded)
            except StopIteration:
                self._yielded = None
                break
            if isinstance(yielded, int | float | str | timedelta) and not isinstance(yielded, bool):
                self._wait_until = time.monotonic() + _seconds(yielded)
                break
            records += _records(yielded)
        return records

    @property
    def has_ended(self) -> bool:
        """Whether the function has returned: there will be no more records."""
        return self._yielded is None

    def stop(self) -> None:
        self._stopped.set()


class FunctionSinkTask(SinkTask):
    """A task that calls a function with each batch, as a list of records or as an Arrow table."""

    function: ClassVar[Callable[[Settings, Any], object]]
    definition: ClassVar[ConfigDef]
    takes_table: ClassVar[bool]

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = Settings(self.definition.parse(settings))

    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            type(self).function(self._settings, to_table(records) if self.takes_table else list(records))


def to_table(records: Sequence[SinkRecord]) -> pa.Table:
    """Records as a table: a column for each field of their values, or one column ``value``.

    >>> to_table([SinkRecord(topic="t", value={"path": "/", "status": 200})]).to_pylist()
    [{'path': '/', 'status': 200}]
    """
    values = [record.value.to_dict() if isinstance(record.value, Struct) else record.value for record in records]
    if values and all(isinstance(value, dict) for value in values):
        return pa.Table.from_pylist(values)
    return pa.table({"value": values})


def _seconds(yielded: float | str | timedelta) -> float:
    return float(yielded) if isinstance(yielded, int | float) else duration_ms(yielded, "the time to wait") / 1000


def _records(yielded: Any) -> list[SourceRecord]:
    elements = yielded if isinstance(yielded, list | tuple) else [yielded]
    records = [each.to_source_record() if isinstance(each, Record) else each for each in elements]
    for each in records:
        if not isinstance(each, SourceRecord):
            raise ConnectError(
                f"the source yielded {each!r}",
                hint="Yield a Record, a list of them, or a time to wait (seconds, or a text such as '10s').",
            )
    return records
