"""Apache Iceberg: offsets are properties of the table's snapshots.

The files of Iceberg tables: many small ones become few large ones.
"""

from __future__ import annotations

import itertools
import json
import re
import uuid
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.log_lines import own_logger
from penstock.connect.api import SinkTask
from penstock.connect.config import (
    Check,
    ConfigDef,
    Importance,
    Kind,
    NamedValues,
    Password,
    Range,
    Setting,
    named_values,
)
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
from penstock.connect.data import RetriableError, SettingError
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = [
    "ICEBERG_SINK",
    "IcebergFormat",
    "IcebergSinkConnector",
    "IcebergSinkTask",
    "compact_files",
    "iceberg_errors",
    "open_catalog",
]

NO_RETRIES = ("commit.retry.num-retries", "0")
TARGET = ("write.target-file-size-bytes", 512 << 20)
MOST_BYTES = 128 << 20  # of files that are read at once: several times as much in memory

_log = own_logger(__name__)


def compact_files(table: Any, properties: Mapping[str, str]) -> bool:
    """Write the small files of each partition anew as few large ones, in one snapshot that replaces them.

    Files with deletes of other engines, and those of older partition specs, are left as they are.

    Args:
        table: The table, as it is now; afterwards as it was committed.
        properties: What the snapshot has beside its own: the offsets of the one before it.

    Returns:
        Whether a snapshot was made.

    Raises:
        ConflictError: Others have changed the table; it can be done later.
    """
    from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

    try:
        bins = _bins(list(table.scan().plan_files()), _most_bytes(table), table.metadata.default_spec_id)
    except ValueError as error:  # such as deletes by equality, which the library does not read
        _log.warning("the files of %s are not compacted: %s", ".".join(table.name()), error)
        return False
    if not bins:
        return False
    metadata, write_uuid, counter = table.metadata, uuid.uuid4(), itertools.count()
    old, new = [], []
    for tasks in bins:
        rows = ArrowScan(metadata, table.io, metadata.schema(), _all_rows()).to_table(tasks)
        old += [task.file for task in tasks]
        new += list(_dataframe_to_data_files(metadata, rows, table.io, write_uuid, counter))
    table.properties[NO_RETRIES[0]] = NO_RETRIES[1]  # of this copy alone
    transaction = table.transaction()
    files = _replacement(transaction, table.io, properties)
    for file in old:
        files.delete_data_file(file)
    for file in new:
        files.append_data_file(file)
    files.commit()
    transaction.commit_transaction()
    return True


def _all_rows() -> Any:
    from pyiceberg.expressions import AlwaysTrue

    return AlwaysTrue()


def _most_bytes(table: Any) -> int:
    name, default = TARGET
    return min(int(table.properties.get(name, default)), MOST_BYTES)


def _bins(tasks: Sequence[Any], most_bytes: int, spec_id: int) -> list[list[Any]]:
    """Return the files that become one each: neighbours in age of one partition, small ones, two at least."""
    by_partition: dict[Any, list[Any]] = {}
    for task in tasks:
        if task.file.spec_id == spec_id and not task.delete_files and task.file.file_size_in_bytes < most_bytes // 2:
            by_partition.setdefault(task.file.partition, []).append(task)
    bins: list[list[Any]] = []
    for partition in by_partition.values():
        current: list[Any] = []
        size = 0
        for task in partition:
            if current and size + task.file.file_size_in_bytes > most_bytes:
                bins.append(current)
                current, size = [], 0
            current.append(task)
            size += task.file.file_size_in_bytes
        bins.append(current)
    return [each for each in bins if len(each) > 1]


def _replacement(transaction: Any, io: Any, properties: Mapping[str, str]) -> Any:
    """Return what makes a snapshot of the operation ``replace``: readers of new rows pass it over."""
    from pyiceberg.table.snapshots import Operation, Summary
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    class Replacement(_OverwriteFiles):
        def _summary(self, snapshot_properties: Mapping[str, str] = properties) -> Summary:
            summary = super()._summary(dict(snapshot_properties))
            return Summary(operation=Operation.REPLACE, **summary.additional_properties)

    return Replacement(
        operation=Operation.OVERWRITE, transaction=transaction, io=io, snapshot_properties=dict(properties)
    )


TRANSFORM = re.compile(
    r"""\s*(?: (year|month|day|hour) \(\s*([^(),]+?)\s*\)
             | (bucket|truncate) \(\s*([^(),]+?)\s*,\s*(\d+)\s*\)
             | ([^(),]+?) )\s*(?:,|$)""",
    re.VERBOSE,
)


def partition_fields(text: str) -> list[tuple[str, str]]:
    """Return the columns and transforms of a partition spec.

    >>> partition_fields("day(at), bucket(user, 16), country")
    [('at', 'day'), ('user', 'bucket[16]'), ('country', 'identity')]
    """
    fields, at = [], 0
    while at < len(text.rstrip()):
        match = TRANSFORM.match(text, at)
        if match is None:
            raise ValueError(text)
        of_time, time_column, sized, column, size, plain = match.groups()
        fields.append(
            (time_column, of_time) if of_time else (column, f"{sized}[{size}]") if sized else (plain, "identity")
        )
        at = match.end()
    return fields


def _check_partitions(name: str, value: object) -> None:
    try:
        partition_fields(str(value))
    except ValueError as error:
        reason = "columns, or year, month, day, hour(column), bucket(column, n), truncate(column, n)"
        raise SettingError.invalid(name, value, reason) from error


CATALOG_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="catalog.options",
        kind=Kind.LIST,
        default="",
        rule=NamedValues(),
        importance=Importance.HIGH,
        doc="Properties of PyIceberg's catalog as name:value, such as type:rest, uri:https://catalog.example.com, or "
        "type:sql, uri:postgresql+psycopg://host/db, warehouse:s3://bucket/tables. Credentials of the store are those "
        "of the environment.",
    ),
    Setting(name="catalog.name", kind=Kind.STRING, default="default", doc="The name of the catalog."),
    Setting(
        name="catalog.credential",
        kind=Kind.PASSWORD,
        default=Password(""),
        doc="For a REST catalog: the credential of the client, as id:secret.",
    ),
    Setting(name="catalog.token", kind=Kind.PASSWORD, default=Password(""), doc="For a REST catalog: a bearer token."),
)

ICEBERG_SINK = ConfigDef(
    [
        Setting(
            name="table",
            kind=Kind.STRING,
            importance=Importance.HIGH,
            doc="The table with its namespace, such as lake.${topic}: the record's topic, with _ for dots.",
        ),
        *CATALOG_SETTINGS,
        Setting(
            name="partition.by",
            kind=Kind.STRING,
            default="",
            rule=Check(_check_partitions, "list of columns and transforms"),
            doc="How a table that is made is partitioned: columns, year, month, day or hour(column), "
            "bucket(column, n), truncate(column, n).",
        ),
        *SINK_SETTINGS,
        Setting(
            name="expire.commits",
            kind=Kind.INT,
            default=100,
            rule=Range(0),
            doc="After so many commits of its own the first task expires old snapshots; 0: never.",
        ),
        Setting(
            name="snapshot.retention.hours",
            kind=Kind.INT,
            default=-1,
            rule=Range(-1),
            doc="The age of snapshots that are expired: they cannot be read any more; -1: none are.",
        ),
    ]
)


def open_catalog(parsed: Mapping[str, Any]) -> Any:
    """Open the catalog of `CATALOG_SETTINGS`.

    Raises:
        ConnectError: PyIceberg is missing, or the settings are wrong.
        RetriableError: The catalog is away.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise ConnectError("PyIceberg is not installed", hint='Run: pip install "penstock[iceberg]"') from error
    options = named_values(parsed["catalog.options"])
    secrets = {name: parsed[f"catalog.{name}"].secret for name in ("credential", "token")}
    options |= {name: value for name, value in secrets.items() if value}
    hint = "Check catalog.options: type (rest, sql, glue, hive), uri, warehouse."
    with iceberg_errors(f"catalog {parsed['catalog.name']}", hint):
        return load_catalog(parsed["catalog.name"], **options)


class IcebergFormat(LakeFormat):
    """Tables of a catalog.

    Args:
        catalog: The catalog.
        connector: The name of the connector that the offsets belong to.
        log: The log that they belong to.
        properties: The properties of tables that are made.
        partition_by: Their partitions, as columns and transforms.
        retention_hours: The age of snapshots that a maintenance expires; negative: none.
    """

    def __init__(
        self,
        catalog: Any,
        connector: str,
        log: str,
        properties: Mapping[str, str],
        partition_by: Sequence[tuple[str, str]],
        retention_hours: int,
    ) -> None:
        self.catalog, self.property, self.log = catalog, f"penstock.offsets.{connector}", log
        self.retention_hours = retention_hours
        self._properties, self._partition_by = dict(properties), partition_by

    def column_type(self, incoming: pa.DataType) -> pa.DataType | None:
        types = pa.types
        if types.is_int8(incoming) or types.is_int16(incoming):
            return pa.int32()
        if types.is_time(incoming):
            return pa.time64("us")
        if types.is_timestamp(incoming):
            return pa.timestamp("us", incoming.tz and "UTC")
        if types.is_unsigned_integer(incoming) or types.is_duration(incoming) or types.is_float16(incoming):
            return None
        return incoming

    def widened(self, current: pa.DataType, incoming: pa.DataType) -> pa.DataType:
        wider = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}
        return incoming if wider.get(current) == incoming else current

    def load(self, name: str) -> LakeTable | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with iceberg_errors(name):
            try:
                return _IcebergTable(self, name, self.catalog.load_table(name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def create(self, name: str, schema: pa.Schema) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.transforms import parse_transform

        require_columns((column for column, _ in self._partition_by), schema)
        hint = "Correct partition.by, or warehouse in catalog.options, or make the table."
        with iceberg_errors(name, hint):
            self.catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            try:
                with self.catalog.create_table_transaction(name, schema, properties=self._properties) as transaction:
                    if self._partition_by:
                        with transaction.update_spec() as spec:
                            for column, transform in self._partition_by:
                                shown = column if transform == "identity" else f"{column}_{transform.split('[')[0]}"
                                spec.add_field(column, parse_transform(transform), shown)
            except TableAlreadyExistsError as error:
                raise ConflictError(str(error)) from error


class _IcebergTable(LakeTable):
    def __init__(self, form: IcebergFormat, name: str, table: Any) -> None:
        self._form, self._name, self._table = form, name, table
        self._looked_at: int | None = None  # the snapshot whose offsets are known
        self._offsets: dict[str, int] = {}

    @property
    def schema(self) -> pa.Schema:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        return schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    def refresh(self) -> bool:
        before = self._table.metadata_location
        with iceberg_errors(self._name):
            self._table.refresh()
        return bool(self._table.metadata_location != before)

    def next_offset(self, tp: TopicPartition) -> int | None:
        return self._stored().get(f"{tp.topic}-{tp.partition}")

    def _stored(self) -> dict[str, int]:
        """Return the offsets of the newest snapshot of this connector and log, from the current one back."""
        snapshot = self._table.current_snapshot()
        current = None if snapshot is None else snapshot.snapshot_id
        if current != self._looked_at:  # as many snapshots as others have made since may have to be looked through
            self._looked_at, self._offsets = current, self._looked_for(snapshot)
        return self._offsets

    def _looked_for(self, snapshot: Any) -> dict[str, int]:
        while snapshot is not None:
            summary = snapshot.summary
            text = None if summary is None else summary.additional_properties.get(self._form.property)
            if text is not None:
                stored = json.loads(text)
                if stored["log"] == self._form.log:
                    return dict(stored["offsets"])
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
        return {}

    def append(self, rows: pa.Table, offsets: Mapping[TopicPartition, int]) -> None:
        with self._transaction(rows.schema) as transaction:
            transaction.append(rows, snapshot_properties=self._properties(offsets))

    def upsert(self, rows: Upsert, offsets: Mapping[TopicPartition, int]) -> None:
        from pyiceberg.table.upsert_util import create_match_filter

        properties = self._properties(offsets)
        keys = pa.concat_tables([rows.rows.select(rows.key), rows.deleted.select(rows.key)])
        with self._transaction(rows.rows.schema) as transaction:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Delete operation did not match")  # the keys are new
                warnings.filterwarnings("ignore", "Merge on read is not yet supported")  # it copies, as documented
                transaction.delete(create_match_filter(keys, list(rows.key)), snapshot_properties=properties)
            if rows.rows.num_rows:
                transaction.append(rows.rows, snapshot_properties=properties)

    def compact(self) -> None:
        with iceberg_errors(self._name):
            self._table.refresh()
            if compact_files(self._table, self._properties({})):
                self._looked_at = None

    def expire(self) -> None:
        if self._form.retention_hours < 0:
            return
        before = datetime.now(UTC) - timedelta(hours=self._form.retention_hours)
        with iceberg_errors(self._name):
            self._table.maintenance.expire_snapshots().older_than(before).commit()

    @contextmanager
    def _transaction(self, schema: pa.Schema) -> Iterator[Any]:
        """Commit on top of the snapshot that was looked at, or fail.

        The library would put rows on top of any newer snapshot, also of one that has them already.
        """
        name, none = NO_RETRIES
        self._table.properties[name] = none  # of this copy alone: nothing of it is written
        with iceberg_errors(self._name):
            transaction = self._table.transaction()
            if schema != self.schema:
                with transaction.update_schema() as update:
                    update.union_by_name(schema)
            yield transaction
            transaction.commit_transaction()

    def _properties(self, offsets: Mapping[TopicPartition, int]) -> dict[str, str]:
        merged = self._stored() | {f"{tp.topic}-{tp.partition}": offset for tp, offset in offsets.items()}
        return {self._form.property: json.dumps({"log": self._form.log, "offsets": merged})}


@contextmanager
def iceberg_errors(name: str, hint: str = "Correct the settings, or the table.") -> Iterator[None]:
    """Raise Connect's errors for those of the library.

    Args:
        name: The table or the catalog.
        hint: What to do about values that the library refuses.
    """
    from pyiceberg import exceptions

    final = (
        exceptions.UnauthorizedError,
        exceptions.ForbiddenError,
        exceptions.BadRequestError,
        exceptions.NoSuchPropertyException,
        exceptions.ValidationError,
    )
    changed = (
        exceptions.CommitFailedException,
        exceptions.CommitStateUnknownException,
        exceptions.NoSuchTableError,
        exceptions.NoSuchNamespaceError,
    )
    try:
        yield
    except changed as error:
        raise ConflictError(str(error)) from error
    except (ConnectError, ConflictError):
        raise
    except exceptions.NotInstalledError as error:  # which names its extra, although it may be another package
        missing = error.__cause__ or error
        raise ConnectError(f"{name} cannot be used: {first_line(missing)}", hint=f"{first_line(error)}.") from error
    except final as error:
        raise ConnectError(f"{name} cannot be used: {first_line(error)}", hint="Check catalog.* and rights.") from error
    except (ValueError, TypeError) as error:
        raise ConnectError(f"{name} cannot be used: {first_line(error)}", hint=hint) from error
    except Exception as error:
        raise RetriableError(
            f"{name} cannot be reached: {first_line(error)}",
            hint="Check whether the catalog and the store run, and the addresses in catalog.options, and credentials.",
        ) from error


class IcebergSinkTask(LakeSinkTask):
    """A task of the sink to Iceberg tables."""

    java_class: ClassVar[str] = "IcebergSinkTask"
    config: ClassVar[ConfigDef] = ICEBERG_SINK
    table_setting: ClassVar[str] = "table"
    expiry_setting: ClassVar[str] = "expire.commits"

    def open_format(self, parsed: Mapping[str, Any], settings: Mapping[str, str]) -> LakeFormat:
        return IcebergFormat(
            open_catalog(parsed),
            settings.get("name", ""),
            self.context.log_identity,
            named_values(parsed["table.properties"]),
            partition_fields(parsed["partition.by"]),
            parsed["snapshot.retention.hours"],
        )

    def table_name(self, topic: str) -> str:
        return super().table_name(topic.replace(".", "_"))


class IcebergSinkConnector(LakeSinkConnector):
    """Records as rows of Apache Iceberg tables, appended or upserted by key, each record once.

    The snapshot that a commit makes has the offsets behind its rows as a property. A task that starts looks for the
    newest one and goes on from there, wherever it or its worker was killed; a task that was cut off cannot commit what
    its successor has. Upserts rewrite the files that hold the keys (copy on write). Small files are compacted by a
    snapshot of the operation ``replace``, which has the offsets of the one before it.

    Tried with SQL catalogs and with a REST catalog of Iceberg's own handlers, also where its answers are lost, and over
    a store whose requests fail; not with Glue and Hive.
    """

    java_class: ClassVar[str] = "IcebergSink"
    task_class: ClassVar[type[SinkTask]] = IcebergSinkTask
    config: ClassVar[ConfigDef] = ICEBERG_SINK

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        yield from contradictions(parsed)
        if "." not in parsed["table"]:
            yield "table", "names a namespace and a table, such as lake.hits"
