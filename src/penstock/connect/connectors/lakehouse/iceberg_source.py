"""Iceberg tables as a source: from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from penstock.connect.api import SourceTask
from penstock.connect.config import ConfigDef, Importance, Kind, Setting
from penstock.connect.connectors.lakehouse.iceberg import CATALOG_SETTINGS, iceberg_errors, open_catalog
from penstock.connect.connectors.lakehouse.source import (
    BEFORE_ALL,
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

__all__ = ["ICEBERG_SOURCE", "IcebergReader", "IcebergSourceConnector", "IcebergSourceTask"]

ICEBERG_SOURCE = ConfigDef(
    [
        Setting(
            name="table",
            kind=Kind.STRING,
            importance=Importance.HIGH,
            doc="The table with its namespace, such as lake.countries.",
        ),
        *CATALOG_SETTINGS,
        *SOURCE_SETTINGS,
    ]
)


class IcebergReader(LakeReader):
    """A table of a catalog.

    Args:
        catalog: The catalog.
        name: The table's name.
    """

    def __init__(self, catalog: Any, name: str) -> None:
        self._catalog, self._name = catalog, name
        self._table: Any = None

    def newest(self) -> int:
        snapshot = self._load().current_snapshot()
        return BEFORE_ALL if snapshot is None else int(snapshot.snapshot_id)

    def files(self, version: int) -> Sequence[RowFile]:
        table = self._load()
        if version == BEFORE_ALL:
            return []
        if table.snapshot_by_id(version) is None:
            raise version_is_gone(self._name, version)
        with iceberg_errors(self._name):
            tasks = list(table.scan(snapshot_id=version).plan_files())
        tasks.sort(key=lambda task: str(task.file.file_path))
        return [RowFile(None if task.delete_files else task.file.record_count, self._rows(task)) for task in tasks]

    def change(self, version: int, until: int | None, *, appends: bool) -> LakeChange | None:
        table = self._load()
        end = table.current_snapshot() if until is None else table.snapshot_by_id(until)
        if end is None and until is not None:
            raise version_is_gone(self._name, until)
        if end is None or end.snapshot_id == version:
            return None
        chain = self._between(version, end)
        with iceberg_errors(self._name):
            return self._change(chain, int(end.snapshot_id), appends=appends)

    def _change(self, chain: Sequence[Any], version: int, *, appends: bool) -> LakeChange:
        from pyiceberg.table.snapshots import Operation

        adding = [each for each in chain if _operation(each) == Operation.APPEND]
        changing = [each for each in chain if _operation(each) not in (Operation.APPEND, Operation.REPLACE)]
        if changing and appends:
            raise changed_rows(self._name, changing[0].snapshot_id)
        added: dict[str, Any] = {}
        removed: dict[str, Any] = {}
        # rows that were only written anew are the same: they count where the files of a change must be known
        for snapshot in chain if changing else adding:
            new, gone = self._entries(snapshot)
            removed |= {path: file for path, file in gone.items() if path not in added}
            added = {path: file for path, file in added.items() if path not in gone} | new
        return LakeChange(version, self._files(added.values()), self._files(removed.values()))

    def _entries(self, snapshot: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the files that a snapshot has added and removed, by path."""
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

        new: dict[str, Any] = {}
        gone: dict[str, Any] = {}
        for manifest in snapshot.manifests(self._table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.content != ManifestContent.DATA:
                raise ConnectError(
                    f"snapshot {snapshot.snapshot_id} of {self._name} deletes rows by files of deletes, which this "
                    "source does not follow",
                    hint="Write the table with write.delete.mode=copy-on-write (and update and merge alike).",
                )
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=False):
                if entry.snapshot_id != snapshot.snapshot_id:
                    continue
                if entry.status == ManifestEntryStatus.ADDED:
                    new[entry.data_file.file_path] = entry.data_file
                elif entry.status == ManifestEntryStatus.DELETED:
                    gone[entry.data_file.file_path] = entry.data_file
        return dict(sorted(new.items())), dict(sorted(gone.items()))

    def _between(self, version: int, end: Any) -> list[Any]:
        """Return the snapshots behind a version up to another one, in order.

        Raises:
            ConnectError: The version is none of those before it, or it is not known whether it is.
        """
        chain = [end]
        while True:
            parent = chain[-1].parent_snapshot_id
            if parent == version or (parent is None and version == BEFORE_ALL):
                return chain[::-1]
            snapshot = None if parent is None else self._table.snapshot_by_id(parent)
            if snapshot is None:
                raise version_is_gone(self._name, version, "it was expired, or the table was rolled back")
            chain.append(snapshot)

    def _files(self, files: Iterable[Any]) -> list[RowFile]:
        from pyiceberg.table import FileScanTask

        return [RowFile(file.record_count, self._rows(FileScanTask(file))) for file in files]

    def _rows(self, task: Any) -> Any:
        def read() -> pa.Table:
            from pyiceberg.expressions import AlwaysTrue
            from pyiceberg.io.pyarrow import ArrowScan

            with iceberg_errors(self._name):
                metadata = self._table.metadata
                return ArrowScan(metadata, self._table.io, metadata.schema(), AlwaysTrue()).to_table([task])

        return read

    def _load(self) -> Any:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with iceberg_errors(self._name):
            try:
                self._table = self._catalog.load_table(self._name)
            except (NoSuchTableError, NoSuchNamespaceError) as error:
                raise ConnectError(f"there is no table {self._name}", hint="Make it, or correct table.") from error
        return self._table


def _operation(snapshot: Any) -> Any:
    return None if snapshot.summary is None else snapshot.summary.operation


class IcebergSourceTask(LakeSourceTask):
    """A task of the source that reads Iceberg tables."""

    java_class: ClassVar[str] = "IcebergSourceTask"
    config: ClassVar[ConfigDef] = ICEBERG_SOURCE
    table_setting: ClassVar[str] = "table"

    def open_reader(self, parsed: Mapping[str, Any]) -> LakeReader:
        return IcebergReader(open_catalog(parsed), parsed["table"])


class IcebergSourceConnector(LakeSourceConnector):
    """The rows of an Apache Iceberg table as records, then what is added or changed, each once.

    A connector without offsets begins with all rows of the current snapshot. With ``read.mode=changes`` it follows
    copy on write: the rows of the files that came and went since the last look are compared by ``key.fields``, so that
    of several changes of a row the last one is a record. Compaction makes no records.

    Snapshots that delete rows by files of deletes (merge on read) are refused after the first look.
    """

    java_class: ClassVar[str] = "IcebergSource"
    task_class: ClassVar[type[SourceTask]] = IcebergSourceTask
    config: ClassVar[ConfigDef] = ICEBERG_SOURCE

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        yield from super().contradictions(parsed)
        if "." not in parsed["table"]:
            yield "table", "names a namespace and a table, such as lake.hits"
