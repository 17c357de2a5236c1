"""The topics of an application as a streaming source that plans a batch and runs its first stage.

Spark sees offsets and a few Spark partitions, each a bin of tasks. What is read inside a partition is not records but
the result of the first stage: tasks read the log themselves, so records never pass through the JVM.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.spark.bins import Bin, bins_of
from penstock.spark.envelope import ENVELOPE_DDL
from penstock.spark.failures import wrapped
from penstock.spark.job import load_job
from penstock.spark.offsets import SourceOffset
from penstock.spark.planner import Planner

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PenstockSource"]


class PenstockSource(DataSource):
    """The work of one job; registered as a `private_source` that has the job."""

    job: bytes

    def schema(self) -> str:
        return ENVELOPE_DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        reader: type[DataSourceStreamReader] = _Reader
        return reader(self.job)  # type: ignore[call-arg]


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _told(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Errors go to the driver whole."""

    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is
            raise wrapped(error) from None

    return call


@dataclass
class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; `read` runs in the workers."""

    data: bytes
    _planner: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data, "_planner": None}

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            job = load_job(self.data)
            self._planner = Planner(job, job.open_log())
        return self._planner

    @_told
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return SourceOffset().to_json()  # where to begin is noted with the first batch, like all that is decided once

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(load_job(self.data).reading.max_records_per_batch)

    @_told
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.stop_at_present_end()

    @_told
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        found = self.planner.next_batch(SourceOffset.of(start), None if isinstance(limit, ReadAllAvailable) else most)
        return start if found is None else found.to_json()

    @_told
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return SourceOffset(self.planner.ends()).to_json()

    @_told
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return list(bins_of(load_job(self.data), SourceOffset.of(start), SourceOffset.of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.spark.stage import run_first_stage

        assert isinstance(partition, Bin)  # noqa: S101 - made by partitions()
        return run_first_stage(self.data, partition)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
