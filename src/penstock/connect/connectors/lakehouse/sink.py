"""The task of sinks to lakehouse tables, for any format: rows and offsets in one commit, so that each is there once."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.log_lines import own_logger
from penstock.connect.api import SinkTask
from penstock.connect.config import ConfigDef
from penstock.connect.connectors.lakehouse.rows import (
    KeyedRows,
    KeyRule,
    Stretch,
    conform,
    last_of_keys,
    merge_columns,
    rows_of,
    stretches_of,
)
from penstock.connect.connectors.lakehouse.tables import ConflictError, LakeFormat, LakeTable, Upsert
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.data import DataError, RetriableError, SinkRecord
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = ["FIRST_TASK", "LakeSinkConnector", "LakeSinkTask"]

FIRST_TASK = "penstock.first.task"
"""In the config of the one task that maintains tables."""

_MOST_CONFLICTS = 20
_COMPACTION = "compact.commits"
_log = own_logger(__name__)


@dataclass(slots=True)
class _Pending:
    """The rows of a table that are not committed yet."""

    table: LakeTable | None
    schema: pa.Schema | None
    parts: list[tuple[Stretch, KeyedRows]] = field(default_factory=list)


class LakeSinkTask(SinkTask):
    """A task: it keeps rows until there are enough, or it is time, and commits them with the offsets behind them.

    A table has the offsets of its rows, of each connector and partition; what is below them is there already. A commit
    fails if another one came between, of a task that had the partition before or of another writer: then the table is
    looked up again, and only what is missing is written.
    """

    config: ClassVar[ConfigDef]
    table_setting: ClassVar[str]
    expiry_setting: ClassVar[str]

    def open_format(self, parsed: Mapping[str, Any], settings: Mapping[str, str]) -> LakeFormat:
        """Open the format of the tables.

        Raises:
            ConnectError: A package is missing, or a setting is wrong.
        """
        raise NotImplementedError

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = parsed = self.config.parse(settings)
        self._format = self.open_format(parsed, settings)
        upserts = parsed["insert.mode"] == "upsert"
        self._key = KeyRule(parsed["pk.mode"] == "record_value", parsed["pk.fields"]) if upserts else None
        self._may_seek = not settings.get("transforms")  # they may spread a partition over tables
        self._maintains = settings.get(FIRST_TASK) == "true"
        self._tables: dict[str, LakeTable] = {}
        self._maintained: dict[tuple[str, str], int] = {}  # commits since, by table and setting
        self._pending: dict[str, _Pending] = {}
        self._taken: dict[TopicPartition, int] = {}
        self._since: float | None = None
        self._broken: ConnectError | None = None

    def open(self, places: Collection[TopicPartition]) -> None:
        self._tables.clear()
        if not self._may_seek:
            self.context.offset({})
            return
        stored: dict[TopicPartition, int] = {}
        for tp in places:
            table = self._table(self.table_name(tp.topic))
            offset = None if table is None else table.next_offset(tp)
            if offset is not None:
                stored[tp] = offset
        self.context.offset(stored)

    def put(self, records: Sequence[SinkRecord]) -> None:
        if self._broken is not None:
            raise self._broken
        for stretch in stretches_of(records):
            self._take(stretch)
        if self._is_due():
            self._flush()

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets that the tables have: those of the first records that they do not."""
        first: dict[TopicPartition, int] = {}
        for pending in self._pending.values():
            for stretch, _ in pending.parts:
                first[stretch.tp] = min(first.get(stretch.tp, stretch.offsets[0]), stretch.offsets[0])
        return {tp: min(offset, first.get(tp, offset)) for tp, offset in offsets.items()}

    def close(self, places: Collection[TopicPartition]) -> None:
        """Commit what is kept. What cannot be written now comes again where the partitions go."""
        if self._broken is None:
            try:
                self._flush()
            except RetriableError as error:
                _log.info("kept rows are left to the next task: %s", error)
        for pending in self._pending.values():
            pending.parts = [part for part in pending.parts if part[0].tp not in places]
        for tp in places:
            self._taken.pop(tp, None)

    # Records that come

    def _take(self, stretch: Stretch) -> None:
        """Keep the rows of records that are neither kept nor in the table."""
        new = stretch.behind(self._taken.get(stretch.tp, 0))
        if not new:
            return
        name = self.table_name(new.topic)
        pending = self._pending.get(name)
        if pending is None:
            table = self._table(name)
            if table is None:
                self._check_creation(name)
            pending = self._pending[name] = _Pending(table, None if table is None else table.schema)
        try:
            stored = 0 if pending.table is None else pending.table.next_offset(new.tp) or 0
        except ConflictError:  # it is gone
            self._look_again(name, pending)
            stored = 0 if pending.table is None else pending.table.next_offset(new.tp) or 0
        pending.parts += self._fitted(pending, self._with_values(new.behind(stored)))
        self._taken[new.tp] = new.offsets[-1] + 1
        if self._since is None:
            self._since = time.monotonic()

    def _with_values(self, stretch: Stretch) -> Stretch:
        """Return a stretch without the records whose missing value means nothing, or is refused."""
        handling = self._parsed["behavior.on.null.values"]
        if handling == "delete" and self._key is not None:
            return stretch
        empty = [row for row, value in enumerate(stretch.values) if value is None]
        if not empty:
            return stretch
        if handling == "fail":
            for row in empty:
                hint = "Set behavior.on.null.values, or filter such records out."
                self._refuse(stretch, row, DataError("it has no value", hint=hint))
        gone = set(empty)
        return stretch.picked([row for row in range(len(stretch)) if row not in gone])

    def _fitted(self, pending: _Pending, stretch: Stretch) -> list[tuple[Stretch, KeyedRows]]:
        """Return the rows of a stretch, without those of records that do not fit, which are refused."""
        if not stretch:
            return []
        try:
            keyed_rows = rows_of(stretch, self._key)
            _check_key(keyed_rows, pending)
            schema = pending.schema
            evolves = self._parsed["auto.evolve"]
            if keyed_rows.rows.num_rows:
                schema = merge_columns(schema, keyed_rows.rows.schema, self._format, evolves=evolves)
                _check_columns(schema)
                conform(keyed_rows.rows, schema)
            elif keyed_rows.key_table is not None and schema is not None:
                key_schema = keyed_rows.key_table.schema
                merge_columns(schema, key_schema, self._format, evolves=False)
                conform(keyed_rows.key_table, pa.schema([schema.field(name) for name in key_schema.names]))
        except DataError as error:
            if len(stretch) == 1:
                self._refuse(stretch, 0, error)
                return []
            middle = len(stretch) // 2
            first = self._fitted(pending, stretch.picked(range(middle)))
            return first + self._fitted(pending, stretch.picked(range(middle, len(stretch))))
        pending.schema = schema
        return [(stretch, keyed_rows)]

    def _refuse(self, stretch: Stretch, row: int, error: DataError) -> None:
        shown = f"the record at {stretch.tp.topic}-{stretch.tp.partition} offset {stretch.offsets[row]}"
        described = DataError(f"{shown} cannot be written: {error.message}", hint=error.hint)
        reporter = self.context.errant_record_reporter
        if reporter is None:
            self._broken = ConnectError(described.message, hint=error.hint)
            raise self._broken from error
        reporter.report(stretch.record_at(row), described)

    # Commits

    def _is_due(self) -> bool:
        if self._since is None:
            return False
        count = sum(len(stretch) for pending in self._pending.values() for stretch, _ in pending.parts)
        age_ms = (time.monotonic() - self._since) * 1000
        return bool(count >= self._parsed["flush.size"] or age_ms >= self._parsed["flush.interval.ms"])

    def _flush(self) -> None:
        """Commit all tables. Those that cannot be written now keep their rows, and are tried again."""
        for name in list(self._pending):
            self._write(name, self._pending[name])
            del self._pending[name]
            self._maintain(name)
        self._since = None
        self.context.request_commit()

    def _write(self, name: str, pending: _Pending) -> None:
        for _ in range(_MOST_CONFLICTS):
            try:
                if pending.table is not None and pending.table.refresh():
                    self._fit_again(pending)
                if not pending.parts or pending.schema is None:
                    return
                if pending.table is None:
                    self._check_creation(name)
                    self._format.create(name, pending.schema)
                else:
                    self._commit(pending.table, pending)
                    self._count_commit(name)
                    return
            except ConflictError as error:
                _log.debug("%s has changed: %s", name, error)
            self._look_again(name, pending)
        raise RetriableError(f"{name} is changed by other writers all the time: {_MOST_CONFLICTS} commits were in vain")

    def _look_again(self, name: str, pending: _Pending) -> None:
        """Look a table up that has changed, or is gone."""
        self._tables.pop(name, None)
        pending.table = self._table(name)
        self._fit_again(pending)

    def _check_creation(self, name: str) -> None:
        if not self._parsed["auto.create"]:
            raise ConnectError(f"there is no table {name}", hint="Make it, or set auto.create=true.")

    def _fit_again(self, pending: _Pending) -> None:
        """Compare kept records with what the table has become."""
        table = pending.table
        pending.schema = None if table is None else table.schema
        stretches = [stretch for stretch, _ in pending.parts]
        pending.parts = []
        for stretch in stretches:
            stored = 0 if table is None else table.next_offset(stretch.tp) or 0
            pending.parts += self._fitted(pending, stretch.behind(stored))

    def _commit(self, table: LakeTable, pending: _Pending) -> None:
        assert pending.schema is not None  # noqa: S101 - _write looks
        offsets = {stretch.tp: stretch.offsets[-1] + 1 for stretch, _ in pending.parts}
        keyed_rows = [rows for _, rows in pending.parts]
        if self._key is None:
            table.append(pa.concat_tables([conform(each.rows, pending.schema) for each in keyed_rows]), offsets)
            return
        alive, dead = last_of_keys(keyed_rows)
        names = next(each.key_table.column_names for each in keyed_rows if each.key_table is not None)
        key_schema = pa.schema([pending.schema.field(name) for name in names])
        rows = [
            conform(each.rows.take(pa.array(at, pa.int64())), pending.schema)
            for each, at in zip(keyed_rows, alive, strict=True)
        ]
        deleted = [
            conform(each.key_table.take(pa.array(at, pa.int64())), key_schema)
            for each, at in zip(keyed_rows, dead, strict=True)
            if each.key_table is not None
        ]
        table.upsert(Upsert(pa.concat_tables(rows), pa.concat_tables(deleted), names), offsets)

    def _count_commit(self, name: str) -> None:
        for setting in {_COMPACTION, self.expiry_setting}:
            self._maintained[name, setting] = self._maintained.get((name, setting), 0) + 1

    def _maintain(self, name: str) -> None:
        if not self._maintains:
            return
        compacts = self._is_maintenance_due(name, _COMPACTION)
        expires = self._is_maintenance_due(name, self.expiry_setting)
        table = self._tables.get(name)
        if table is None:
            return
        try:
            if compacts:
                self._maintained[name, _COMPACTION] = 0
                table.compact()
            if expires:  # behind it: what it has replaced goes at once
                self._maintained[name, self.expiry_setting] = 0
                table.expire()
        except ConflictError as error:
            _log.info("%s is maintained later: %s", name, error)
            self._tables.pop(name, None)

    def _is_maintenance_due(self, name: str, setting: str) -> bool:
        every = self._parsed[setting]
        return bool(every) and self._maintained.get((name, setting), 0) >= every

    def table_name(self, topic: str) -> str:
        """Return the table of a topic."""
        return str(self._parsed[self.table_setting]).replace("${topic}", topic)

    def _table(self, name: str) -> LakeTable | None:
        table = self._tables.get(name)
        if table is None:
            table = self._format.load(name)
            if table is not None:
                self._tables[name] = table
        return table


def _check_key(keyed_rows: KeyedRows, pending: _Pending) -> None:
    """Refuse keys that have other columns than those that are written in the same commit."""
    earlier = next((rows.key_table for _, rows in pending.parts if rows.key_table is not None), None)
    if earlier is None or keyed_rows.key_table is None or keyed_rows.key_table.column_names == earlier.column_names:
        return
    raise DataError(
        f"its key has the fields {', '.join(keyed_rows.key_table.column_names)}, and those before it "
        f"{', '.join(earlier.column_names)}",
        hint="Name the fields that all keys have by pk.fields.",
    )


def _check_columns(schema: pa.Schema) -> None:
    if not schema.names:
        raise DataError(
            "all its fields are null, and there is no table yet that says what they are",
            hint="Make the table first, or send records with schemas.",
        )


class LakeSinkConnector(AlikeTasksSink):
    """A sink to lakehouse tables: one of its tasks also maintains them."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        first, *others = super().task_configs(max_tasks)
        return [{**first, FIRST_TASK: "true"}, *others]
