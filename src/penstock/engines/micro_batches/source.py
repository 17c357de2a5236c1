"""The topics of an application as a streaming source that plans batches and runs their first stage.

Spark sees offsets and a few Spark partitions, each a bin of tasks. Reading a partition returns not records but the
result of the first stage: tasks read the log themselves, so records never pass through the JVM.

Spark starts several processes that ask about the source, one after the other, before the first batch. So modules that
only the planner needs are imported where they are used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.engines.micro_batches.envelope import ENVELOPE_DDL
from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.spark.failures import to_worker_error
from penstock.engines.spark.job import load_job

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.engines.micro_batches.object_store import CheckpointCopy
    from penstock.engines.micro_batches.planner import Planner

__all__ = ["PenstockSource"]


class PenstockSource(DataSource):
    """The data source of a job; registered as a `configured_source` with the pickled job."""

    job: bytes

    def schema(self) -> str:
        return ENVELOPE_DDL

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        reader: type[DataSourceStreamReader] = _SourceReader
        return reader(self.job)  # type: ignore[call-arg]


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _sends_errors(
    method: Callable[Concatenate[_SourceReader, _P], _R],
) -> Callable[Concatenate[_SourceReader, _P], _R]:
    """Wrap a method so that its errors go to the driver whole."""

    @functools.wraps(method)
    def call(reader: _SourceReader, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        job = load_job(reader.data)
        try:
            return method(reader, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is
            raise to_worker_error(error, job.error_key) from None

    return call


@dataclass
class _SourceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of the source: its methods plan batches on the driver, except `read`, which runs in the workers."""

    data: bytes
    _planner: Planner | None = None
    _journal: CheckpointCopy | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data, "_planner": None, "_journal": None}

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            from penstock.engines.micro_batches.planner import Planner

            job = load_job(self.data)
            self._planner = Planner(job, job.open_log())
        return self._planner

    def _keep_journal(self) -> None:
        """Copy Spark's notes to an object store, before anything depends on them, if the checkpoint is there."""
        job = load_job(self.data)
        if job.journal:
            if self._journal is None:
                from penstock.engines.micro_batches.object_store import CheckpointCopy

                self._journal = CheckpointCopy(job.journal, job.checkpoint)
            self._journal.push()

    @_sends_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return SourceOffset().to_json()  # the start positions are noted with the first batch

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(load_job(self.data).reading.max_records_per_batch)

    @_sends_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.stop_at_present_end()

    @_sends_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        self._keep_journal()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self.planner.next_batch(SourceOffset.of(start), None if isinstance(limit, ReadAllAvailable) else most)
        return start if end is None else end.to_json()

    @_sends_errors
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return SourceOffset(self.planner.ends()).to_json()

    @_sends_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._keep_journal()
        return list(self.planner.cut(SourceOffset.of(start), SourceOffset.of(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from penstock.engines.micro_batches.spark_tasks import Bin
        from penstock.engines.micro_batches.worker.stage import run_first_stage

        assert isinstance(partition, Bin)  # noqa: S101 - made by partitions()
        return run_first_stage(self.data, partition)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
