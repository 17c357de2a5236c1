"""The task of sources that read lakehouse tables, for any format: all rows, then what comes, version by version."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Importance, Kind, OneOf, Range, Setting
from penstock.connect.connectors.arrow_values import schema_of, value_of
from penstock.connect.data import Schema, SettingError, SourceBatch, SourceRecord, Struct, struct
from penstock.errors import ConnectError

__all__ = [
    "BEFORE_ALL",
    "SOURCE_SETTINGS",
    "LakeChange",
    "LakeReader",
    "LakeSourceConnector",
    "LakeSourceTask",
    "RowFile",
]

BEFORE_ALL = -1
"""The version before the first one of a table."""

CHANGE = "_change_type"
"""The column of a change feed that says what has happened to a row."""

_OLD = ("delete", "update_preimage")

SOURCE_SETTINGS: tuple[Setting, ...] = (
    Setting(name="topic", kind=Kind.STRING, importance=Importance.HIGH, doc="The topic of the records."),
    Setting(
        name="read.mode",
        kind=Kind.STRING,
        default="append",
        rule=OneOf(("append", "changes")),
        importance=Importance.HIGH,
        doc="append: each row that is added is a record, and a version that changes or deletes rows is an error. "
        "changes: a row that is new or has changed is a record with its key, one that is gone a tombstone.",
    ),
    Setting(
        name="key.fields",
        kind=Kind.LIST,
        default="",
        importance=Importance.HIGH,
        doc="The columns of the records' keys: the value of one column, a struct of several; empty: no keys. For "
        "read.mode=changes they identify a row.",
    ),
    Setting(
        name="start.at",
        kind=Kind.STRING,
        default="snapshot",
        rule=OneOf(("snapshot", "earliest", "latest")),
        doc="Where a connector without offsets begins. snapshot: with all rows of the newest version; earliest: with "
        "the table's first version, which must be there; latest: with what comes from now on.",
    ),
    Setting(
        name="batch.max.rows", kind=Kind.INT, default=10_000, rule=Range(1), doc="The most records of one transaction."
    ),
    Setting(
        name="poll.interval.ms",
        kind=Kind.LONG,
        default=1000,
        rule=Range(1),
        doc="The time after which a table that had nothing new is looked at again.",
    ),
)


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file with rows of a table, which never changes.

    Attributes:
        rows: Their number, if it is known without reading it.
        read: Reads them, always in the same order.
    """

    rows: int | None
    read: Callable[[], pa.Table]


@dataclass(frozen=True, slots=True)
class LakeChange:
    """What came between two versions of a table.

    Attributes:
        version: The version behind it.
        added: Files with rows that are new, or were written anew.
        removed: Files with rows that are gone, or were written anew.
        feed: Files with what has happened to rows; where there are any, the others say nothing more.
    """

    version: int
    added: Sequence[RowFile] = ()
    removed: Sequence[RowFile] = ()
    feed: Sequence[RowFile] = ()


class LakeReader(Protocol):
    """A table as a source reads it. All methods raise a RetriableError if it is out of reach."""

    def newest(self) -> int:
        """Return the newest version.

        Raises:
            ConnectError: There is no such table, or it needs what the library cannot do.
        """
        ...

    def files(self, version: int) -> Sequence[RowFile]:
        """Return the files of a version, always in the same order.

        Raises:
            ConnectError: The version is gone.
        """
        ...

    def change(self, version: int, until: int | None, *, appends: bool) -> LakeChange | None:
        """Return what came behind a version, always the same for the same end; None: nothing yet.

        Args:
            version: The version.
            until: The version that it ends with; None: the reader chooses.
            appends: Whether a change of rows is an error.

        Raises:
            ConnectError: The version is gone, or rows have changed that must not.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """Records of one stretch: rows, or the keys of rows that are gone."""

    table: pa.Table
    is_gone: bool = False


class LakeSourceTask(SourceTask):
    """The task: all rows of a version, then version by version what has changed.

    The offset is a version whose rows are written, or the two ends of a stretch with the number of its records that
    are. A stretch has the same records in the same order whenever it is read: versions and files never change.
    """

    config: ClassVar[ConfigDef]
    table_setting: ClassVar[str]

    def open_reader(self, parsed: Mapping[str, Any]) -> LakeReader:
        """Open the table.

        Raises:
            ConnectError: A package is missing, or a setting is wrong.
        """
        raise NotImplementedError

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = parsed = self.config.parse(settings)
        self._stopped = threading.Event()
        self._partition = {"table": parsed[self.table_setting]}
        self._appends = parsed["read.mode"] == "append"
        self._reader = self.open_reader(parsed)
        self._moved: dict[str, int] | None = None
        self._stretch: Iterator[SourceBatch] | None = None
        stored = self.context.offset_reader.offset(self._partition)
        self._offset = {name: int(number) for name, number in (stored or {}).items()}

    def poll(self) -> Sequence[SourceRecord] | None:
        if self._stretch is None:
            self._stretch = self._next_stretch()
        batch = None if self._stretch is None else next(self._stretch, None)
        if batch is None:
            is_idle, self._stretch = self._stretch is None, None
            if is_idle:
                self._stopped.wait(self._parsed["poll.interval.ms"] / 1000)
            return None
        self._moved = None
        if not batch.more:
            self._stretch = None
        return batch

    def moved_offsets(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        moved, self._moved = self._moved, None
        return [] if moved is None else [(self._partition, moved)]

    def stop(self) -> None:
        self._stopped.set()

    # Stretches

    def _next_stretch(self) -> Iterator[SourceBatch] | None:
        """Return the next stretch, from its first record that is not written; None: there is nothing new."""
        offset = self._offset
        if not offset:
            start = self._parsed["start.at"]
            if start == "snapshot":
                offset = {"snapshot": self._reader.newest(), "rows": 0}
            else:
                self._pass_to(BEFORE_ALL if start == "earliest" else self._reader.newest())
                return iter(()) if start == "latest" else self._next_stretch()
        if "snapshot" in offset:
            version = offset["snapshot"]
            files = self._reader.files(version)
            return self._batches(self._of_files(files, offset["rows"]), offset, version)
        before = offset["version"]
        change = self._reader.change(before, offset.get("until"), appends=self._appends)
        if change is None:
            return None
        done = offset.get("rows", 0)
        begun = {"version": before, "until": change.version, "rows": done}
        rewrites = change.removed or change.feed
        parts = self._of_changes(change, done) if rewrites else self._of_files(change.added, done)
        return self._batches(parts, begun, change.version)

    def _pass_to(self, version: int) -> None:
        self._offset = {"version": version}
        self._moved = self._offset

    def _of_files(self, files: Sequence[RowFile], done: int) -> Iterator[_Part]:
        """Yield the rows of files behind those that are written."""
        for file in files:
            if file.rows is not None and file.rows <= done:
                done -= file.rows
                continue
            rows = file.read()
            yield _Part(rows.slice(done))
            done = max(0, done - rows.num_rows)

    def _of_changes(self, change: LakeChange, done: int) -> Iterator[_Part]:
        """Yield the keys of rows that are gone, then those that are new or have changed."""
        key = self._parsed["key.fields"]
        old, new = _feed(change) if change.feed else _files_of(change)
        for table in (old, new):
            self._require_key(table.schema)
        old_keys, new_keys = _keys(old, key), _keys(new, key)
        old_rows = dict(zip(old_keys, old.to_pylist(), strict=True))
        still = set(new_keys)
        last = {each: at for at, each in enumerate(old_keys)}
        gone = sorted(at for each, at in last.items() if each not in still)
        changed = [
            at
            for at, (each, row) in enumerate(zip(new_keys, new.to_pylist(), strict=True))
            if each not in old_rows or old_rows[each] != row
        ]
        of_gone, of_changed = (table.take(pa.array(at, pa.int64())) for table, at in ((old, gone), (new, changed)))
        yield _Part(of_gone.slice(done), is_gone=True)
        yield _Part(of_changed.slice(max(0, done - of_gone.num_rows)))

    def _batches(self, parts: Iterable[_Part], begun: Mapping[str, int], version: int) -> Iterator[SourceBatch]:
        """Yield the records of a stretch in pieces, the last of which ends it."""
        size = self._parsed["batch.max.rows"]
        pieces = (
            _Part(part.table.slice(at, size), part.is_gone)
            for part in parts
            for at in range(0, part.table.num_rows, size)
        )
        done, piece = begun["rows"], next(pieces, None)
        if piece is None:
            self._pass_to(version)
        while piece is not None:
            following = next(pieces, None)
            after = done + piece.table.num_rows
            end = {"version": version} if following is None else {**begun, "rows": after}
            self._offset = end
            yield self._batch(piece, {**begun, "rows": done}, end, more=following is not None)
            done, piece = after, following

    def _batch(self, piece: _Part, begun: Mapping[str, int], end: Mapping[str, int], *, more: bool) -> SourceBatch:
        table, last = piece.table, piece.table.num_rows - 1
        keys, key_schema = self._key_column(table)
        schema = None if piece.is_gone else struct({field.name: schema_of(field.type) for field in table.schema})
        return SourceBatch(
            self._parsed["topic"],
            [None] * table.num_rows if schema is None else _structs(table, schema),
            schema,
            self._partition,
            lambda row: end if row == last else {**begun, "rows": begun["rows"] + row + 1},
            keys=keys,
            key_schema=key_schema,
            more=more,
        )

    def _key_column(self, table: pa.Table) -> tuple[Sequence[Any] | None, Schema | None]:
        names = self._parsed["key.fields"]
        if not names:
            return None, None
        self._require_key(table.schema)
        if len(names) == 1:
            schema = schema_of(table.schema.field(names[0]).type)
            return [value_of(each, schema) for each in table.column(names[0]).to_pylist()], schema
        schema = struct({name: schema_of(table.schema.field(name).type) for name in names})
        return _structs(table.select(names), schema), schema

    def _require_key(self, columns: pa.Schema) -> None:
        for name in self._parsed["key.fields"]:
            if name not in columns.names:
                raise SettingError.invalid("key.fields", name, f"the columns are {', '.join(columns.names)}")


def _structs(table: pa.Table, schema: Schema) -> list[Struct]:
    return [
        Struct(schema, {part.name: value_of(row[part.name], part.schema) for part in schema.fields})
        for row in table.to_pylist()
    ]


def _keys(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _rows(files: Sequence[RowFile]) -> pa.Table:
    tables = [file.read() for file in files]
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})


def _files_of(change: LakeChange) -> tuple[pa.Table, pa.Table]:
    """Return the rows of files that are gone, and of those that came; there may be none of either kind."""
    old, new = _rows(change.removed), _rows(change.added)
    return (old if change.removed else new.slice(0, 0)), (new if change.added else old.slice(0, 0))


def _feed(change: LakeChange) -> tuple[pa.Table, pa.Table]:
    """Return the rows of a change feed as they were before, and as they are."""
    rows = _rows(change.feed)
    is_old = [kind in _OLD for kind in rows.column(CHANGE).to_pylist()]
    rows = rows.drop_columns([CHANGE])
    return rows.filter(pa.array(is_old)), rows.filter(pa.array([not each for each in is_old]))


class LakeSourceConnector(SourceConnector):
    """A source that reads one table in one task."""

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.parse(settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:  # noqa: ARG002 - one order of versions
        return [self._settings]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:  # noqa: ARG002
        return ExactlyOnce.SUPPORTED

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        if parsed["read.mode"] == "changes" and not parsed["key.fields"]:
            yield "key.fields", "must name the columns that identify a row with read.mode=changes"


def changed_rows(table: str, version: int) -> ConnectError:
    """Return the error for a version that changes rows where only new ones are read."""
    return ConnectError(
        f"version {version} of {table} changes or deletes rows, and read.mode=append reads new ones only",
        hint="Set read.mode=changes and key.fields.",
    )


def version_is_gone(table: str, version: int, error: str = "") -> ConnectError:
    """Return the error for a version that cannot be read any more."""
    return ConnectError(
        f"version {version} of {table} is gone{': ' + error if error else ''}",
        hint="Reset the connector's offsets: it begins again by start.at. Keep versions longer than it may be stopped.",
    )
