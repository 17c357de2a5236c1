"""Delta Lake: offsets are transactions of an application (``txn``) in the table's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from penstock.connect.api import SinkTask
from penstock.connect.config import ConfigDef, Importance, Kind, NamedValues, Range, Setting, named_values
from penstock.connect.connectors.lakehouse.sink import LakeSinkConnector, LakeSinkTask
from penstock.connect.connectors.lakehouse.tables import (
    SINK_SETTINGS,
    ConflictError,
    LakeFormat,
    LakeTable,
    Upsert,
    contradictions,
    first_line,
    require_columns,
)
from penstock.connect.data import RetriableError
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = ["DELTA_SINK", "DeltaFormat", "DeltaSinkConnector", "DeltaSinkTask", "delta_errors", "require_deltalake"]

DELTA_SINK = ConfigDef(
    [
        Setting(
            name="table.uri",
            kind=Kind.STRING,
            importance=Importance.HIGH,
            doc="The table: a folder, or s3://bucket/path, gs://, az:// and so on; ${topic} is the record's topic. "
            "Credentials are those of the environment, such as AWS_ACCESS_KEY_ID.",
        ),
        Setting(
            name="storage.options",
            kind=Kind.LIST,
            default="",
            rule=NamedValues(),
            doc="Options of the store as name:value, such as AWS_REGION:eu-central-1.",
        ),
        Setting(
            name="partition.by",
            kind=Kind.LIST,
            default="",
            doc="The partition columns of a table that is made.",
        ),
        *SINK_SETTINGS,
        Setting(
            name="vacuum.retention.hours",
            kind=Kind.INT,
            default=-1,
            rule=Range(-1),
            doc="With each compaction, files that have been no part of the table for so long are deleted, and older "
            "versions cannot be read any more; -1: never.",
        ),
    ]
)


class DeltaFormat(LakeFormat):
    """Tables by their addresses.

    Args:
        owner: The log and the connector that the offsets belong to.
        storage: The options of the store.
        properties: The properties of tables that are made.
        partition_by: Their partition columns.
        vacuum_hours: The age of files that a maintenance deletes; negative: none.
    """

    ignores_case: ClassVar[bool] = True

    def __init__(
        self,
        owner: str,
        storage: Mapping[str, str],
        properties: Mapping[str, str],
        partition_by: Sequence[str],
        vacuum_hours: int,
    ) -> None:
        self.owner, self.storage, self.vacuum_hours = owner, dict(storage) or None, vacuum_hours
        self._properties, self._partition_by = dict(properties), list(partition_by)

    def column_type(self, incoming: pa.DataType) -> pa.DataType | None:
        types = pa.types
        if types.is_time(incoming):
            return pa.int32()  # milliseconds: the format has no time of day
        if types.is_timestamp(incoming):
            return pa.timestamp("us", incoming.tz)
        return incoming if not types.is_unsigned_integer(incoming) and not types.is_duration(incoming) else None

    def widened(self, current: pa.DataType, incoming: pa.DataType) -> pa.DataType:  # noqa: ARG002
        return current

    def load(self, name: str) -> LakeTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with delta_errors(name):
            try:
                return _DeltaTable(self, name, DeltaTable(name, storage_options=self.storage))
            except TableNotFoundError:
                return None

    def create(self, name: str, schema: pa.Schema) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        require_columns(self._partition_by, schema)
        with delta_errors(name):
            try:
                DeltaTable.create(
                    name, schema, mode="ignore", partition_by=self._partition_by or None,
                    configuration=self._properties or None, storage_options=self.storage,
                )  # fmt: skip
            except TableNotFoundError as error:  # of a folder that cannot be made, too
                raise ConnectError(
                    f"the table {name} cannot be made: {first_line(error)}",
                    hint="Correct table.uri, or make its folder.",
                ) from error


class _DeltaTable(LakeTable):
    def __init__(self, form: DeltaFormat, name: str, table: Any) -> None:
        self._form, self._name, self._table = form, name, table

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def refresh(self) -> bool:
        return False  # commits compare the offsets of all that came between

    def next_offset(self, tp: TopicPartition) -> int | None:
        with self._errors():
            version: int | None = self._table.transaction_version(self._application(tp))
        return version

    def append(self, rows: pa.Table, offsets: Mapping[TopicPartition, int]) -> None:
        from deltalake import write_deltalake

        with self._errors():
            write_deltalake(
                self._table, rows, mode="append", schema_mode="merge" if rows.schema != self.schema else None,
                commit_properties=self._offsets(offsets),
            )  # fmt: skip

    def upsert(self, rows: Upsert, offsets: Mapping[TopicPartition, int]) -> None:
        mark = "__deleted"
        while mark in rows.rows.column_names:
            mark += "_"
        changes = pa.concat_tables(
            [
                table.cast(pa.schema([pa.field(each.name, each.type) for each in table.schema])).append_column(
                    mark, pa.array([is_deleted] * table.num_rows, pa.bool_())
                )
                for table, is_deleted in ((rows.rows, False), (rows.deleted, True))
            ],
            promote_options="default",  # the other columns of keys are null, whatever the table's may be
        )
        columns = {_quoted(name): f"source.{_quoted(name)}" for name in rows.rows.column_names}
        with self._errors():
            merger = self._table.merge(
                changes,
                " AND ".join(f"target.{_quoted(name)} = source.{_quoted(name)}" for name in rows.key),
                source_alias="source",
                target_alias="target",
                merge_schema=rows.rows.schema != self.schema,
                commit_properties=self._offsets(offsets),
            )
            if rows.deleted.num_rows:
                merger = merger.when_matched_delete(f"source.{mark}")
            merger.when_matched_update(columns).when_not_matched_insert(
                columns, predicate=f"NOT source.{mark}"
            ).execute()

    def compact(self) -> None:
        with self._errors():
            self._table.optimize.compact()

    def expire(self) -> None:
        with self._errors():
            if self._form.vacuum_hours >= 0:
                self._table.vacuum(self._form.vacuum_hours, dry_run=False, enforce_retention_duration=False)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """As for all tables; but what fails since the table is gone is a conflict."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        with delta_errors(self._name):
            try:
                yield
            except (DeltaError, TableNotFoundError) as error:
                try:  # `is_deltatable` would hold up all threads of this process until the store answers
                    DeltaTable(self._name, storage_options=self._form.storage)
                except TableNotFoundError:
                    raise ConflictError(f"the table is gone: {first_line(error)}") from error
                raise

    def _application(self, tp: TopicPartition) -> str:
        return f"penstock {self._form.owner} {tp.topic}-{tp.partition}"

    def _offsets(self, offsets: Mapping[TopicPartition, int]) -> Any:
        from deltalake import CommitProperties, Transaction

        return CommitProperties(
            app_transactions=[Transaction(self._application(tp), offset) for tp, offset in offsets.items()]
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def require_deltalake() -> None:
    """Require the package.

    Raises:
        ConnectError: It is not installed.
    """
    try:
        import deltalake  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ConnectError("deltalake is not installed", hint='Run: pip install "penstock[delta]"') from error


@contextmanager
def delta_errors(name: str) -> Iterator[None]:
    """Raise Connect's errors for those of the library."""
    from deltalake.exceptions import CommitFailedError, DeltaProtocolError, TableNotFoundError

    try:
        yield
    except (ConnectError, ConflictError, TableNotFoundError):
        raise
    except CommitFailedError as error:
        raise ConflictError(str(error)) from error
    except PermissionError as error:
        raise ConnectError(
            f"the table {name} cannot be used: {error}", hint="Check the rights to its folder, or the credentials."
        ) from error
    except OSError as error:
        raise RetriableError(f"the table {name} cannot be reached: {first_line(error)}") from error
    except DeltaProtocolError as error:
        raise ConnectError(
            f"the table {name} needs what the package deltalake cannot do: {first_line(error)}",
            hint="Upgrade deltalake, or make the table without that feature.",
        ) from error
    except Exception as error:  # the library raises that class itself, too
        raise ConnectError(
            f"the table {name} cannot be used: {first_line(error)}", hint="Correct table.uri and the settings."
        ) from error


class DeltaSinkTask(LakeSinkTask):
    """A task of the sink to Delta tables."""

    java_class: ClassVar[str] = "DeltaSinkTask"
    config: ClassVar[ConfigDef] = DELTA_SINK
    table_setting: ClassVar[str] = "table.uri"
    expiry_setting: ClassVar[str] = "compact.commits"

    def open_format(self, parsed: Mapping[str, Any], settings: Mapping[str, str]) -> LakeFormat:
        require_deltalake()
        return DeltaFormat(
            f"{self.context.log_identity} {settings.get('name', '')}",
            named_values(parsed["storage.options"]),
            named_values(parsed["table.properties"]),
            parsed["partition.by"],
            parsed["vacuum.retention.hours"],
        )


class DeltaSinkConnector(LakeSinkConnector):
    """Records as rows of Delta Lake tables, appended or upserted by key, each record once.

    A commit of the table holds the rows and, as transactions of an application, the offsets behind them. A task that
    starts reads them from the table and goes on from there, wherever it or its worker was killed; a task that was cut
    off cannot commit what its successor has. Records are kept until ``flush.size`` or ``flush.interval.ms``, and are
    rows as soon as they are committed.
    """

    java_class: ClassVar[str] = "DeltaSink"
    task_class: ClassVar[type[SinkTask]] = DeltaSinkTask
    config: ClassVar[ConfigDef] = DELTA_SINK

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        return contradictions(parsed)
