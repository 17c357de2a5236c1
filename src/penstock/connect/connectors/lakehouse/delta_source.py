"""Delta tables as a source: versions from the table's log, with its change feed where there is one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa

from penstock.connect.api import SourceTask
from penstock.connect.config import ConfigDef, Importance, Kind, NamedValues, Setting, named_values
from penstock.connect.connectors.lakehouse.delta import delta_errors, require_deltalake
from penstock.connect.connectors.lakehouse.source import (
    CHANGE,
    SOURCE_SETTINGS,
    LakeChange,
    LakeReader,
    LakeSourceConnector,
    LakeSourceTask,
    RowFile,
    changed_rows,
    version_is_gone,
)
from penstock.errors import ConnectError

__all__ = ["DELTA_SOURCE", "DeltaReader", "DeltaSourceConnector", "DeltaSourceTask"]

DELTA_SOURCE = ConfigDef(
    [
        Setting(
            name="table.uri",
            kind=Kind.STRING,
            importance=Importance.HIGH,
            doc="The table: a folder, or s3://bucket/path, gs://, az:// and so on. Credentials are those of the "
            "environment, such as AWS_ACCESS_KEY_ID.",
        ),
        Setting(
            name="storage.options",
            kind=Kind.LIST,
            default="",
            rule=NamedValues(),
            doc="Options of the store as name:value, such as AWS_REGION:eu-central-1.",
        ),
        *SOURCE_SETTINGS,
    ]
)


class DeltaReader(LakeReader):
    """A table by its address.

    Args:
        uri: The address.
        storage: The options of the store.
    """

    def __init__(self, uri: str, storage: Mapping[str, str]) -> None:
        self._uri, self._storage = uri, dict(storage) or None
        self._schema = pa.schema([])

    @cached_property
    def _files(self) -> Any:
        self._load(None)  # whether it is there
        with delta_errors(self._uri):
            return self._store({})

    def _store(self, sizes: Mapping[str, int]) -> Any:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self._uri, self._storage, dict(sizes)))

    def _open(self, path: str, size: int | None = None) -> Any:
        """Open a file, whose size is asked for if it is not known.

        The library, which asks for unknown sizes itself, would hold up all threads until the store answers.

        Raises:
            FileNotFoundError: It is gone.
        """
        if size is None:
            info = self._files.get_file_info(path)
            if not info.is_file:
                raise FileNotFoundError(path)
            size = info.size
        return self._store({path: size}).open_input_file(path)

    def newest(self) -> int:
        return int(self._load(None).version())

    def files(self, version: int) -> Sequence[RowFile]:
        try:
            table = self._load(version)
        except ConnectError as error:
            raise version_is_gone(self._uri, version, error.message) from error
        actions = pa.table(table.get_add_actions()).to_pylist()
        return [
            self._file(each["path"], each.get("partition") or {}, each.get("size_bytes"), each.get("num_records"))
            for each in _sorted(actions)
        ]

    def change(self, version: int, until: int | None, *, appends: bool) -> LakeChange | None:  # noqa: ARG002 - one version
        actions = self._actions(version + 1)
        if actions is None:
            return None
        if not self._schema.names or any("metaData" in each for each in actions):
            self._load(None)
        parts = {name: _sorted([each[name] for each in actions if name in each]) for name in ("add", "remove", "cdc")}
        for each in (*parts["add"], *parts["remove"]):
            if each.get("deletionVector"):
                raise ConnectError(
                    f"version {version + 1} of {self._uri} has deletion vectors, which this source does not read",
                    hint="Set delta.enableDeletionVectors=false for the table, and rewrite its files.",
                )
        added, removed = ([each for each in parts[name] if each.get("dataChange", True)] for name in ("add", "remove"))
        if removed and appends:
            raise changed_rows(self._uri, version + 1)
        return LakeChange(
            version + 1,
            [self._file(each["path"], each["partitionValues"], each["size"], _count(each)) for each in added],
            [self._file(each["path"], each.get("partitionValues") or {}, each.get("size")) for each in removed],
            []
            if appends
            else [
                self._file(each["path"], each["partitionValues"], each["size"], is_feed=True) for each in parts["cdc"]
            ],
        )

    def _load(self, version: int | None) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with delta_errors(self._uri):
            try:
                table = DeltaTable(self._uri, version=version, storage_options=self._storage)
            except TableNotFoundError as error:
                raise ConnectError(f"there is no table {self._uri}", hint="Make it, or correct table.uri.") from error
            self._schema = pa.schema(table.schema().to_arrow())
            mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
            features = table.protocol().reader_features or ()
        if mode != "none" or "deletionVectors" in features:
            what = "deletion vectors" if mode == "none" else "mapped columns"
            raise ConnectError(
                f"the table {self._uri} has {what}, which this source does not read",
                hint="Make the table without that feature, or read it by the SparkSourceConnector.",
            )
        return table

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """Return what a version has in the table's log; None: it is not there yet."""
        with delta_errors(self._uri):
            try:
                with self._open(f"_delta_log/{version:020d}.json") as file:
                    text = file.readall()
            except FileNotFoundError:
                newest = self.newest()
                if newest >= version:
                    raise version_is_gone(self._uri, version) from None
                return None
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _file(
        self,
        path: str,
        partition: Mapping[str, Any],
        size: int | None,
        rows: int | None = None,
        *,
        is_feed: bool = False,
    ) -> RowFile:
        return RowFile(rows, lambda: self._read(path, partition, size, is_feed=is_feed))

    def _read(self, path: str, partition: Mapping[str, Any], size: int | None, *, is_feed: bool) -> pa.Table:
        from pyarrow import parquet

        with delta_errors(self._uri):
            try:
                with self._open(unquote(path), size) as file:
                    rows = parquet.ParquetFile(file).read()
            except FileNotFoundError as error:
                raise ConnectError(
                    f"a file of {self._uri} is gone: {path}",
                    hint="It was vacuumed before it was read: reset the connector's offsets, and keep files longer.",
                ) from error
            fields = [*self._schema, *([pa.field(CHANGE, pa.string())] if is_feed else [])]
            columns = [self._column(rows, field, partition) for field in fields]
        return pa.Table.from_arrays(columns, schema=pa.schema([pa.field(each.name, each.type) for each in fields]))

    @staticmethod
    def _column(rows: pa.Table, field: pa.Field, partition: Mapping[str, Any]) -> pa.ChunkedArray | pa.Array:
        at = rows.schema.get_field_index(field.name)
        if at >= 0:
            return rows.column(at).cast(field.type)
        value = partition.get(field.name)
        if value is None or (value == "" and not pa.types.is_string(field.type)):
            return pa.nulls(rows.num_rows, field.type)
        one = pa.array([value])
        if isinstance(value, str) and pa.types.is_timestamp(field.type) and field.type.tz:
            one = pa.array([value.replace("Z", "").replace("T", " ")]).cast(pa.timestamp("us"))
        return pa.repeat(one.cast(field.type)[0], rows.num_rows)


def _sorted(actions: Sequence[Mapping[str, Any]]) -> list[Any]:
    return sorted(actions, key=lambda each: str(each["path"]))


def _count(action: Mapping[str, Any]) -> int | None:
    """Return the number of a file's rows, as the log has it."""
    try:
        return int(json.loads(action.get("stats") or "{}")["numRecords"])
    except (KeyError, ValueError, TypeError):
        return None


class DeltaSourceTask(LakeSourceTask):
    """A task of the source that reads Delta tables."""

    java_class: ClassVar[str] = "DeltaSourceTask"
    config: ClassVar[ConfigDef] = DELTA_SOURCE
    table_setting: ClassVar[str] = "table.uri"

    def open_reader(self, parsed: Mapping[str, Any]) -> LakeReader:
        require_deltalake()
        return DeltaReader(parsed["table.uri"], named_values(parsed["storage.options"]))


class DeltaSourceConnector(LakeSourceConnector):
    """The rows of a Delta Lake table as records, then what is added or changed, version by version, each once.

    A connector without offsets begins with all rows of the newest version. With ``read.mode=changes`` it follows
    updates and deletes: by the change feed of a version that has one (``delta.enableChangeDataFeed``), else by a
    comparison, by ``key.fields``, of the files that the version has removed and added. Compaction makes no records.

    Tables with deletion vectors or mapped columns are refused.
    """

    java_class: ClassVar[str] = "DeltaSource"
    task_class: ClassVar[type[SourceTask]] = DeltaSourceTask
    config: ClassVar[ConfigDef] = DELTA_SOURCE
