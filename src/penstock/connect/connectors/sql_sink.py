"""The SQL sink: records as rows, with the offsets in the same transaction, so that each is there once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connect.api import SinkTask
from penstock.connect.config import ConfigDef, Model
from penstock.connect.connectors.confluent_settings import SQL_SINK_MODEL
from penstock.connect.connectors.postgres.types import PgType
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.connectors.sql_columns import ColumnRules
from penstock.connect.connectors.sql_databases import (
    DatabaseFile,
    database_error,
    is_missing_table,
    open_engine,
    reader_for,
)
from penstock.connect.connectors.sql_reading import TableName
from penstock.connect.connectors.sql_settings import SINK, zone_of
from penstock.connect.connectors.sql_urls import address_problems
from penstock.connect.connectors.sql_writing import (
    Cell,
    TargetTable,
    ValueRules,
    array_of_texts,
    array_type,
    column_default,
    column_type,
    described_table,
    written_value,
    written_values,
)
from penstock.connect.data import (
    INT32,
    INT64,
    STRING,
    DataError,
    RetriableError,
    Schema,
    SinkBatch,
    SinkColumns,
    SinkRecord,
    Struct,
    Type,
    fits,
)
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table, TableClause

__all__ = ["SqlSinkConnector", "SqlSinkTask"]

OFFSETS = "penstock_sink_offsets"
LEAST_OF_ARRAYS = 8  # rows, for which a statement of its own pays
KAFKA_KEY = ("__connect_topic", "__connect_partition", "__connect_offset")


class _TableChangedError(Exception):
    """The table is no longer as it was when it was looked up."""


@dataclass(slots=True)
class _Writes:
    """Rows that one statement writes or deletes, in order."""

    target: TargetTable
    columns: tuple[str, ...]
    key: tuple[str, ...]
    deletes: bool
    rows: list[tuple[Any, ...]]

    def goes_with(self, other: _Writes) -> bool:
        """Return whether the same statement writes the other rows."""
        return (
            self.target is other.target
            and self.deletes is other.deletes
            and (self.columns, self.key) == (other.columns, other.key)
        )


class SqlSinkTask(SinkTask):
    """A task: each batch is one transaction."""

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.sink.JdbcSinkTask"
    _engine: Any = None
    _with_arrays = True

    def start(self, settings: Mapping[str, str]) -> None:
        from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

        self._parsed, self._name = SINK.parse(settings), settings.get("name", "")
        parsed = self._parsed
        zone = zone_of(parsed["db.timezone"])
        self._rules = ValueRules(
            zone=zone,
            date_zone=zone if parsed["date.timezone"] == "DB_TIMEZONE" else zone_of("UTC"),
            timestamp_fields=frozenset(parsed["timestamp.fields.list"]),
            nanoseconds=parsed["timestamp.precision.mode"] == "nanoseconds",
        )
        self._engine = open_engine(parsed)
        self._quotes = parsed["quote.sql.identifiers"].lower() == "always"
        self._reader = reader_for(self._engine, ColumnRules(), quotes=self._quotes)
        self._file = DatabaseFile(self._engine, has_been=False)
        self._targets: dict[str, TargetTable] = {}
        self._retries = 0
        self._next: dict[TopicPartition, int] = {}  # the offsets that the database has, as this task knows them
        self._doubted: set[TopicPartition] = set()  # where it may have others
        self._written: dict[TopicPartition, int] = {}  # what is below came there without an answer, or by another run
        self._offsets: Table = Table(
            OFFSETS,
            MetaData(),
            Column("log", String(64), primary_key=True),
            Column("connector", String(255), primary_key=True),
            Column("topic", String(249), primary_key=True),
            Column("partition", Integer, autoincrement=False, primary_key=True),
            Column("next_offset", BigInteger, nullable=False),
        )

    def open(self, places: Collection[TopicPartition]) -> None:
        if not self._parsed["exactly.once"]:
            return
        try:
            self._create_offsets()
        except ConnectError:  # another task may have made it meanwhile
            self._create_offsets()
        self.context.offset(self._look_up(places))
        self._written = {tp: offset for tp, offset in self._written.items() if tp not in places}

    def _look_up(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of these partitions that the database has, and know them from now on."""
        from sqlalchemy import select

        with self._guarded() as connection:
            mine = {"log": self.context.log_identity, "connector": self._name}
            rows = connection.execute(select(self._offsets).where(*_same(self._offsets, mine))).all()
        stored = {tp: row.next_offset for row in rows if (tp := TopicPartition(row.topic, row.partition)) in places}
        self._next = {tp: offset for tp, offset in self._next.items() if tp not in places} | stored
        return stored

    def _create_offsets(self) -> None:
        with self._guarded() as connection:
            self._offsets.create(connection, checkfirst=True)

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        try:
            self._put_or_look_again(records)
        except RetriableError as error:
            self._note_retry(error)
            raise
        self._retries = 0
        self._file.written()

    def _put_or_look_again(self, records: Sequence[SinkRecord]) -> None:
        """Write; once more if a column or a table came or went."""
        try:
            self._put(records)
        except _TableChangedError:
            self._targets.clear()
            self._with_arrays = False
            try:
                self._put(records)
            except _TableChangedError as error:
                raise error.args[0] from error
            finally:
                self._with_arrays = True

    def _note_retry(self, error: RetriableError) -> None:
        self._retries += 1
        most = self._parsed["max.retries"]
        if most is not None and self._retries > most:
            raise ConnectError(
                f"{error.message}, after {most} retries", hint="Restart the task, or raise max.retries."
            ) from error
        if self._parsed["retry.backoff.ms"] is not None:
            self.context.timeout(self._parsed["retry.backoff.ms"])

    def _put(self, records: Sequence[SinkRecord]) -> None:
        records, following = self._new(records) if self._parsed["exactly.once"] else (records, {})
        self._doubted |= following.keys()  # until the commit is answered
        with self._guarded() as connection:
            self._write_all(connection, records)
            for tp in sorted(following):
                self._move(connection, tp, following[tp])
        self._next |= following
        self._doubted.clear()

    def _new(self, records: Sequence[SinkRecord]) -> tuple[Sequence[SinkRecord], dict[TopicPartition, int]]:
        """Return the records that the database does not have, and the offsets behind them."""
        if self._doubted:  # else even records below the stored offset are new: of a topic that was made again
            before, stored = self._next, self._look_up(self._doubted)
            self._written |= {tp: offset for tp, offset in stored.items() if offset != before.get(tp)}
        tps = [TopicPartition(str(each.original_topic), int(each.original_partition or 0)) for each in records]
        rows = [(tp, int(each.original_offset or 0), each) for tp, each in zip(tps, records, strict=True)]
        new = [row for row in rows if row[1] >= self._written.get(row[0], 0)]
        return [row[2] for row in new], {tp: offset + 1 for tp, offset, _ in new}

    def _move(self, connection: Connection, tp: TopicPartition, following: int) -> None:
        """Move a partition's offset, unless another run has moved it."""
        from sqlalchemy import exc, insert, update

        key = {"log": self.context.log_identity, "connector": self._name, "topic": tp.topic, "partition": tp.partition}
        with suppress(exc.IntegrityError):
            if tp not in self._next:
                connection.execute(insert(self._offsets).values(**key, next_offset=following))
                return
            here = [*_same(self._offsets, key), self._offsets.c.next_offset == self._next[tp]]
            if connection.execute(update(self._offsets).where(*here).values(next_offset=following)).rowcount:
                return
        raise RetriableError(f"another run of connector {self._name} has written records of {tp.topic}-{tp.partition}")

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _guarded(self) -> _Guarded:
        """Return a transaction whose failures are Connect's errors."""
        self._file.check()
        return _Guarded(self._engine, trimmed=self._parsed["trim.sensitive.log"])

    # From records to rows

    def _write_all(self, connection: Connection, records: Sequence[SinkRecord]) -> None:
        """Write in order: neighbours that the same statement writes, up to the batch size, go together.

        Tables are made and altered before the first row is written: MariaDB commits with that what was written before.
        """
        parts = records.parts() if isinstance(records, SinkBatch) else records
        waiting: list[_Writes] = []
        for writes in [each for part in parts for each in self._writes(connection, part)]:
            if waiting and waiting[-1].goes_with(writes):
                waiting[-1].rows += writes.rows
            else:
                waiting.append(writes)
        most = self._parsed["batch.size"] or 1
        for writes in waiting:
            for at in range(0, len(writes.rows), most):
                self._execute(connection, replace(writes, rows=writes.rows[at : at + most]))

    def _writes(self, connection: Connection, part: SinkColumns | SinkRecord) -> Iterable[_Writes]:
        if isinstance(part, SinkRecord):
            return filter(None, [self._write(connection, part)])
        at_once = self._writes_of_structs(connection, part)
        return filter(None, [self._write(connection, each) for each in part.records()]) if at_once is None else at_once

    def _writes_of_structs(self, connection: Connection, part: SinkColumns) -> list[_Writes] | None:
        """Return the rows of structs of one schema; None: each record has to be looked at.

        The first record decides about the table and its columns. What is wrong with a later one is found one by one.
        """
        schema, values = part.value_schema, part.values
        if schema is None or schema.type is not Type.STRUCT or not values or not _are_of(schema, values):
            return None
        by_key = self._parsed["pk.mode"] == "record_key"
        if (by_key or self._parsed["delete.enabled"]) and None in part.keys:
            return None
        if by_key and not _are_of(part.key_schema, part.keys):
            return None
        cells, key, target = self._first(connection, part.record_at(0))
        try:
            columns = {each: target.column(each) for each in cells}
            if None in columns.values() or len(set(columns.values())) < len(columns):
                return None
            written = [
                written_values(target, str(columns[name]), cell_schema, column, self._rules, field_name=name)
                for name, (cell_schema, column) in self._columns(part, cells, key).items()
            ]
        except DataError:
            return None
        names = tuple(str(each) for each in columns.values())
        key_columns = tuple(str(columns[each]) for each in key)
        return [_Writes(target, names, key_columns, deletes=False, rows=list(zip(*written, strict=True)))]

    def _columns(
        self, part: SinkColumns, cells: Iterable[str], key: Collection[str]
    ) -> dict[str, tuple[Schema, Sequence[Any]]]:
        """Return the schema and the values of each field that is written."""
        size, mode = len(part.offsets), self._parsed["pk.mode"]
        of_key: dict[str, tuple[Schema, Sequence[Any]]] = {}
        if mode == "kafka":
            places = ((STRING, [part.topic] * size), (INT32, [part.partition] * size), (INT64, part.offsets))
            of_key = dict(zip(self._parsed["pk.fields"] or KAFKA_KEY, places, strict=True))
        elif mode == "record_key" and part.key_schema is not None and part.key_schema.type is not Type.STRUCT:
            of_key = dict.fromkeys(key, (part.key_schema, part.keys))
        elif key:
            schema, values = (part.key_schema, part.keys) if mode == "record_key" else (part.value_schema, part.values)
            of_key = {name: _field_of(schema, values, name, with_default=True) for name in key}
        default = self._parsed["replace.null.with.default"]
        return {
            name: of_key.get(name) or _field_of(part.value_schema, part.values, name, with_default=default)
            for name in cells
        }

    def _write(self, connection: Connection, record: SinkRecord) -> _Writes | None:
        self._check(record)
        name = self._table_of(record)
        key = self._key(record, name)
        if record.value is None:
            existing = self._target(connection, name)
            if existing is None and self._parsed["auto.create"]:
                return None  # where no table is, there is nothing to delete
            target = existing or self._created(connection, name, key, list(key))
            return self._made(target, key, list(key), deletes=True)
        cells, key_names, target = self._first(connection, record)
        return self._made(target, cells, key_names)

    def _first(self, connection: Connection, record: SinkRecord) -> tuple[dict[str, Cell], list[str], TargetTable]:
        """Return what is written of a record, the names of its key, and the table, which is made to fit."""
        self._check(record)
        name = self._table_of(record)
        key = self._key(record, name)
        cells = _in_order(self._cells(record, key), key, record.value)
        if not cells:
            raise DataError(f"No fields found using key and value schemas for table: {name}")
        return cells, list(key), self._fitting(connection, name, cells, list(key))

    def _table_of(self, record: SinkRecord) -> str:
        return str(self._parsed["table.name.format"].replace("${topic}", str(record.topic)))

    def _check(self, record: SinkRecord) -> None:
        """Refuse a record that lacks what the settings need: a key, a value."""
        deletes, mode = self._parsed["delete.enabled"], self._parsed["pk.mode"]
        if (deletes or mode == "record_key") and record.key is None:
            raise self._unfit(
                record, "key and non-null Struct or primitive key", (record.key, record.key_schema, "key")
            )
        if deletes and mode not in ("record_value", "none") and record.value is None:
            return
        if not isinstance(record.value, Struct | dict | str) or (
            record.value_schema is not None and record.value_schema.type not in (Type.STRUCT, Type.STRING)
        ):
            part = (record.value, record.value_schema, "value")
            raise self._unfit(record, "Struct or String value and non-null Struct or String", part)
        fields = [each for each in ("fields.whitelist", "timestamp.fields.list") if self._parsed[each]]
        if fields and isinstance(record.value, str):
            raise ConnectError(
                f"Sink connector '{self._name}' is configured with field-level options that are not applicable to "
                f"String values: {', '.join(fields)}",
                hint="Remove these options, or write structs to the topic.",
            )

    def _unfit(self, record: SinkRecord, needed: str, part: tuple[Any, Schema | None, str]) -> DataError:
        value, schema, what = part
        value_type = "null" if value is None else type(value).__name__
        schema_type = "null" if schema is None else "Struct" if schema.type is Type.STRUCT else schema.type.value
        return DataError(
            f"Sink connector '{self._name}' is configured with "
            f"'delete.enabled={str(self._parsed['delete.enabled']).lower()}' and 'pk.mode={self._parsed['pk.mode']}' "
            f"and therefore requires records with a non-null {needed} schema, but found record at "
            f"(topic='{record.topic}',partition={record.partition},offset={record.offset},"
            f"timestamp={record.timestamp}) with a {value_type} {what} and {schema_type} {what} schema."
        )

    def _made(
        self, target: TargetTable, cells: Mapping[str, Cell], key: list[str], *, deletes: bool = False
    ) -> _Writes:
        places = {each: target.column(each) for each in cells}
        missing = [each for each, column in places.items() if column is None]
        if missing:
            raise self._lacks(target, missing)
        row = {
            str(column): written_value(target, str(column), cells[each], self._rules, field_name=each)
            for each, column in places.items()
        }
        key_columns = tuple(str(places[each]) for each in key)
        return _Writes(target, tuple(row), key_columns, deletes, [tuple(row.values())])

    def _cells(self, record: SinkRecord, key: Mapping[str, Cell]) -> dict[str, Cell]:
        """Return the fields of a record's value that are written."""
        schema = record.value_schema
        if isinstance(record.value, str) and schema is not None and schema.type is Type.STRING:
            column = self._parsed["string.output.value.column.name"]
            if column in key:
                raise DataError(f"string.output.value.column.name is {column}, which is a column of the key")
            return {column: (schema.as_optional(), record.value)}
        cells = _cells(record.value, schema, _place(record), with_default=self._parsed["replace.null.with.default"])
        chosen = self._parsed["fields.whitelist"]
        return {name: cell for name, cell in cells.items() if not chosen or name in chosen}

    def _key(self, record: SinkRecord, table: str) -> dict[str, Cell]:
        mode, fields = self._parsed["pk.mode"], self._parsed["pk.fields"]
        if mode == "none":
            return {}
        if mode == "kafka":
            values = (record.original_topic, record.original_partition, record.original_offset)
            schemas = (STRING, INT32, INT64)
            return dict(zip(fields or KAFKA_KEY, zip(schemas, values, strict=True), strict=True))
        if mode == "record_key":
            if not isinstance(record.key, Struct | dict):
                if len(fields) != 1:
                    raise DataError(
                        "Need exactly one PK column defined since the key schema for records is a primitive type, "
                        f"defined columns are: [{', '.join(fields)}]"
                    )
                return {fields[0]: (record.key_schema, record.key)}
            what, cells = "key", _cells(record.key, record.key_schema, _place(record))
        elif record.value is None:
            return {}
        else:
            what, cells = "value", _cells(record.value, record.value_schema, _place(record))
        missing = [name for name in fields if name not in cells]
        if missing:
            raise DataError(
                f"PK mode for table '{table}' is {mode.upper()} with configured PK fields [{', '.join(fields)}], but "
                f"record {what} schema does not contain field: {missing[0]}"
            )
        return {name: cells[name] for name in fields or cells}

    # Tables

    def _target(self, connection: Connection, name: str) -> TargetTable | None:
        if name not in self._targets:
            target = described_table(connection, self._reader, TableName.parse(name))
            if target is None:
                return None
            self._check_kind(target)
            self._targets[name] = target
        return self._targets[name]

    def _check_kind(self, target: TargetTable) -> None:
        kinds = {
            "TABLE" if each.upper() == "PARTITIONED TABLE" else each.upper() for each in self._parsed["table.types"]
        }
        if target.kind not in kinds:
            raise ConnectError(
                f"{target.name} is a {target.kind}, and table.types is {','.join(self._parsed['table.types'])}",
                hint=f"Set table.types=TABLE,{target.kind} to write to it.",
            )

    def _fitting(self, connection: Connection, name: str, cells: Mapping[str, Cell], key: list[str]) -> TargetTable:
        """Return the table with a column for each field; it is looked up again before anything is missed."""
        target = self._target(connection, name)
        if target is None:
            return self._created(connection, name, cells, key)
        if not _missing(target, cells):
            return target
        del self._targets[name]
        target = self._target(connection, name)
        if target is None:
            return self._created(connection, name, cells, key)
        missing = _missing(target, cells)
        if not missing:
            return target
        if target.kind != "TABLE" or not self._parsed["auto.evolve"]:
            raise self._lacks(target, missing)
        required = [each for each in missing if _is_required(cells[each])]
        if required:
            raise ConnectError(
                f"Cannot ALTER TABLE {target.name} to add missing field {', '.join(required)}, as the field is not "
                "optional and does not have a default value",
                hint="Add the column yourself, or make the field optional.",
            )
        for each in missing:
            self._ddl(
                connection, f"ALTER TABLE {self._quoted(target.name)} ADD COLUMN {self._column(each, cells[each])}"
            )
        del self._targets[name]
        altered = self._target(connection, name)
        assert altered is not None  # noqa: S101 - it was altered just now
        return altered

    def _lacks(self, target: TargetTable, missing: Sequence[str]) -> ConnectError:
        what, names = target.kind.capitalize(), ", ".join(missing)
        if target.kind != "TABLE":
            return ConnectError(
                f"{what} {target.name} is missing fields ({names}) and ALTER {target.kind} is unsupported",
                hint="Change the view, or leave the fields out with fields.whitelist.",
            )
        return ConnectError(
            f"{what} {target.name} is missing fields ({names}) and auto-evolution is disabled",
            hint="Add the columns, or set auto.evolve=true.",
        )

    def _created(self, connection: Connection, name: str, cells: Mapping[str, Cell], key: list[str]) -> TargetTable:
        if not self._parsed["auto.create"]:
            raise ConnectError(
                f"Table {name} is missing and auto-creation is disabled: there is no table {name}",
                hint="Create it, or set auto.create=true.",
            )
        parts = [self._column(each, cell, is_key=each in key) for each, cell in cells.items()]
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(self._reader.quoted(each) for each in cells if each in key)})")
        table = TableName.parse(name)
        self._ddl(connection, f"CREATE TABLE {self._quoted(table)} ({', '.join(parts)})")
        target = self._target(connection, name)
        assert target is not None  # noqa: S101 - it was made just now
        return target

    def _column(self, name: str, cell: Cell, *, is_key: bool = False) -> str:
        kind = column_type(self._engine.dialect.name, name, cell, self._rules)
        if is_key and kind in ("TEXT", "BLOB", "LONGBLOB") and self._engine.dialect.name in ("mysql", "mariadb"):
            kind = "VARCHAR(256)" if kind == "TEXT" else "VARBINARY(256)"
        default = column_default(self._engine.dialect.name, name, cell[0], self._rules)
        if default is not None and (kind not in ("TEXT", "LONGBLOB") or self._has_defaults_of_texts):
            return f"{self._reader.quoted(name)} {kind} DEFAULT {default}{' NOT NULL' if is_key else ''}"
        is_never_null = is_key or (_is_required(cell) and cell[0] is not None)
        return f"{self._reader.quoted(name)} {kind} {'NOT NULL' if is_never_null else 'NULL'}"

    @property
    def _has_defaults_of_texts(self) -> bool:
        """Whether columns of texts and bytes may have defaults: in MySQL, other than in MariaDB, they cannot."""
        dialect = self._engine.dialect
        return dialect.name != "mysql" or bool(dialect.is_mariadb)

    def _quoted(self, table: TableName) -> str:
        return ".".join(self._reader.quoted(each) for each in (table.schema, table.name) if each is not None)

    def _ddl(self, connection: Connection, statement: str) -> None:
        from sqlalchemy.exc import DBAPIError

        try:
            self._reader.run(connection, statement)
        except DBAPIError as error:
            if _is_there_already(error):  # another task has made it meanwhile
                raise _TableChangedError(self._failure(error)) from error
            raise

    # Statements

    def _execute(self, connection: Connection, writes: _Writes) -> None:
        from sqlalchemy.exc import OperationalError, ProgrammingError

        try:
            self._run(connection, writes)
        except (ProgrammingError, OperationalError) as error:
            if _is_about_columns(error):
                raise _TableChangedError(self._failure(error)) from error
            raise

    def _failure(self, error: Exception) -> ConnectError:
        return database_error(error, "to write", trimmed=self._parsed["trim.sensitive.log"])

    def _run(self, connection: Connection, first: _Writes) -> None:
        from sqlalchemy import bindparam

        if self._with_arrays and self._run_with_arrays(connection, first):
            return
        rows = [dict(zip(first.columns, each, strict=True)) for each in first.rows]
        table = self._clause(first)
        matching = [table.c[column] == bindparam(f"key_{at}") for at, column in enumerate(first.key)]
        mode = self._parsed["insert.mode"]
        if first.deletes or mode == "update":
            keyed = [{f"key_{at}": row[column] for at, column in enumerate(first.key)} for row in rows]
            if first.deletes:
                connection.execute(table.delete().where(*matching), keyed)
                return
            rest = [column for column in first.columns if column not in first.key]
            if not rest:
                return
            values: dict[str, Any] = {column: bindparam(f"value_{at}") for at, column in enumerate(rest)}
            changed = [{f"value_{at}": row[column] for at, column in enumerate(rest)} for row in rows]
            connection.execute(
                table.update().where(*matching).values(values), [k | v for k, v in zip(keyed, changed, strict=True)]
            )
        elif mode == "insert":
            names: dict[str, Any] = {column: bindparam(f"value_{at}") for at, column in enumerate(first.columns)}
            connection.execute(
                table.insert().values(names), [{f"value_{at}": v for at, v in enumerate(row.values())} for row in rows]
            )
        else:
            self._upsert(connection, table, rows, first.key)

    def _run_with_arrays(self, connection: Connection, writes: _Writes) -> bool:
        """Write many rows of PostgreSQL by one statement: an array for each column. Returns whether it could.

        Raises:
            _TableChangedError: The database refuses it, and may take the rows, or all but one, by themselves.
        """
        from sqlalchemy.exc import DBAPIError, OperationalError

        target, mode = writes.target, self._parsed["insert.mode"]
        types = [array_type(target.columns[each]) for each in writes.columns]
        if target.dialect != "postgresql" or writes.deletes or mode == "update" or None in types:
            return False
        stretches = [writes.rows]
        ending = ""
        names = [self._reader.quoted(each).replace("%", "%%") for each in writes.columns]
        if mode == "upsert":
            places = [writes.columns.index(each) for each in writes.key]
            stretches = _without_doubles(writes.rows, places)
            rest = [f"{name} = excluded.{name}" for at, name in enumerate(names) if at not in places]
            changed = f"UPDATE SET {', '.join(rest)}" if rest else "NOTHING"
            ending = f" ON CONFLICT ({', '.join(names[at] for at in places)}) DO {changed}"
        if len(writes.rows) < LEAST_OF_ARRAYS * len(stretches):
            return False
        table = self._quoted(target.name).replace("%", "%%")
        arrays = ", ".join(f"%s::{each}" for each in types)
        statement = f"INSERT INTO {table} ({', '.join(names)}) SELECT * FROM unnest({arrays}){ending}"  # noqa: S608 - quoted
        try:
            for rows in stretches:
                values = tuple(array_of_texts(column) for column in zip(*rows, strict=True))
                connection.exec_driver_sql(statement, values)
        except OperationalError:
            raise
        except DBAPIError as error:
            raise _TableChangedError(self._failure(error)) from error
        self._require_types(connection, writes)
        return True

    def _require_types(self, connection: Connection, writes: _Writes) -> None:
        """Ask whether columns are still of the types whose arrays were written: nobody changes them until the end.

        Raises:
            _TableChangedError: One is not, and an array's element may have lost what the new type keeps.
        """
        target = writes.target
        now = {name: number for name, number, *_ in self._reader.attributes(connection, target.name)}
        kinds = {each: target.columns[each] for each in writes.columns}
        changed = [name for name, kind in kinds.items() if isinstance(kind, PgType) and now.get(name) != kind.number]
        if changed:
            raise _TableChangedError(ConnectError(f"{target.name} has other types of columns: {', '.join(changed)}"))

    def _clause(self, write: _Writes) -> TableClause:
        """Return the table of a statement; its columns have no types, so that values go to the driver as they are."""
        from sqlalchemy import column, table
        from sqlalchemy.sql import quoted_name

        def named(text: str) -> Any:
            return quoted_name(text, self._quotes)

        name = write.target.name
        schema = None if name.schema is None else named(name.schema)
        return table(named(name.name), *(column(named(each)) for each in write.columns), schema=schema)

    def _upsert(
        self, connection: Connection, table: Any, rows: Sequence[Mapping[str, Any]], key: Sequence[str]
    ) -> None:
        from sqlalchemy import bindparam

        rest = [column for column in rows[0] if column not in key]
        if connection.dialect.name in ("sqlite", "postgresql"):
            from sqlalchemy.dialects import postgresql, sqlite

            make: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
            statement = make(table).values({column: bindparam(f"value_{at}") for at, column in enumerate(rows[0])})
            parts = [table.c[column] for column in key]
            if rest:
                changed = {column: statement.excluded[column] for column in rest}
                statement = statement.on_conflict_do_update(index_elements=parts, set_=changed)
            else:
                statement = statement.on_conflict_do_nothing(index_elements=parts)
            connection.execute(statement, [{f"value_{at}": v for at, v in enumerate(row.values())} for row in rows])
            return
        if connection.dialect.name in ("mysql", "mariadb"):
            from sqlalchemy.dialects import mysql

            insert = mysql.insert(table).values({column: bindparam(f"value_{at}") for at, column in enumerate(rows[0])})
            insert = insert.on_duplicate_key_update({column: insert.inserted[column] for column in rest or key})
            connection.execute(insert, [{f"value_{at}": v for at, v in enumerate(row.values())} for row in rows])
            return
        for row in rows:
            same = [table.c[column] == row[column] for column in key]
            existing = connection.execute(table.select().where(*same)).first()
            if existing is None:
                connection.execute(table.insert().values(dict(row)))
            elif rest:
                connection.execute(table.update().where(*same).values({column: row[column] for column in rest}))


class _Guarded:
    def __init__(self, engine: Any, *, trimmed: bool) -> None:
        self._begin, self._trimmed = engine.begin(), trimmed

    def __enter__(self) -> Connection:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            connection: Connection = self._begin.__enter__()
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SET datestyle TO 'ISO, YMD'; SET intervalstyle TO 'postgres'")
        except SQLAlchemyError as error:
            raise self._error(error) from error
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self._begin.__exit__(kind, error, trace)
        except SQLAlchemyError as failure:
            raise self._error(failure) from failure
        if isinstance(error, SQLAlchemyError):
            raise self._error(error) from error

    def _error(self, error: Exception) -> ConnectError:
        return database_error(error, "to write", trimmed=self._trimmed)


def _is_about_columns(error: Exception) -> bool:
    """Return whether the database says that a table or column is not there, or is of another type than before."""
    cause = getattr(error, "orig", error)
    if type(cause).__name__ in ("UndefinedColumn", "DatatypeMismatch") or is_missing_table(cause):
        return True
    return any(part in str(cause) for part in ("no column named", "no such column", "no such table", "Unknown column"))


def _is_there_already(error: Exception) -> bool:
    """Return whether the database says that a table or column that was to be made is there."""
    text = str(getattr(error, "orig", error)).lower()
    return any(part in text for part in ("already exists", "duplicate column", "pg_type_", "pg_class_"))


def _in_order(values: Mapping[str, Cell], key: Mapping[str, Cell], value: Any) -> dict[str, Cell]:
    """Return cells in the order of the columns of a table that is made for them: fields of the value, then keys."""
    cells = {**values, **key}
    fields = [field.name for field in value.schema.fields] if isinstance(value, Struct) else list(values)
    first = [name for name in (*KAFKA_KEY, *fields) if name in cells]
    return {name: cells[name] for name in (*first, *sorted(cells.keys() - set(first)))}


def _missing(target: TargetTable, cells: Mapping[str, Cell]) -> list[str]:
    return [each for each in cells if target.column(each) is None]


def _is_required(cell: Cell) -> bool:
    schema = cell[0]
    return schema is not None and not schema.optional and schema.default is None


def _cells(value: Any, schema: Schema | None, where: str, *, with_default: bool = True) -> dict[str, Cell]:
    if isinstance(value, Struct):
        return {part.name: (part.schema, value.get(part, with_default=with_default)) for part in value.schema.fields}
    if isinstance(value, dict) and schema is None:
        return {str(name): (None, each) for name, each in value.items()}
    raise DataError(f"the record at {where} is not a struct or map of columns, but {type(value).__name__}")


def _are_of(schema: Schema | None, values: Sequence[Any]) -> bool:
    """Return whether all values, of which none is null, are what the schema says."""
    if schema is None:
        return False
    if schema.type is Type.STRUCT:
        return all(type(each) is Struct and each.schema is schema for each in values)
    return all(fits(schema, each) for each in values)


def _field_of(
    schema: Schema | None, values: Sequence[Struct], name: str, *, with_default: bool
) -> tuple[Schema, Sequence[Any]]:
    """Return the schema and the values of a field of structs, which their schema has."""
    part = None if schema is None else schema.field(name)
    assert part is not None  # noqa: S101 - the first record has it
    return part.schema, [each.get(part, with_default=with_default) for each in values]


def _without_doubles(rows: Sequence[tuple[Any, ...]], places: Sequence[int]) -> list[list[tuple[Any, ...]]]:
    """Return the rows in stretches in which each key is there once.

    >>> _without_doubles([(1, "a"), (2, "b"), (1, "c")], [0])
    [[(1, 'a'), (2, 'b')], [(1, 'c')]]
    """
    stretches: list[list[tuple[Any, ...]]] = [[]]
    seen: set[tuple[Any, ...]] = set()
    for row in rows:
        key = tuple(row[each] for each in places)
        if key in seen:
            stretches.append([])
            seen.clear()
        seen.add(key)
        stretches[-1].append(row)
    return stretches


def _same(table: Table, key: Mapping[str, Any]) -> list[Any]:
    return [table.columns[column] == value for column, value in key.items()]


def _place(record: SinkRecord) -> str:
    return f"{record.topic}-{record.partition}, offset {record.offset}"


class SqlSinkConnector(AlikeTasksSink):
    """Records as rows of tables, under the name and the settings of Confluent's JDBC sink.

    Each batch is one transaction with the offsets that follow it (`penstock_sink_offsets`): after a crash the sink
    continues from these offsets, so each record is written once, unless ``exactly.once=false``. The offsets belong to
    one log: those of another log are not used. A table that was altered while the sink runs is looked up again before
    a record is refused.
    """

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.JdbcSinkConnector"
    config: ClassVar[ConfigDef] = SINK
    model: ClassVar[Model] = SQL_SINK_MODEL
    task_class: ClassVar[type[SinkTask]] = SqlSinkTask

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        yield from address_problems(parsed)
        writing, key, fields = parsed["insert.mode"], parsed["pk.mode"], parsed["pk.fields"]
        if writing != "insert" and key == "none":
            yield "pk.mode", f"insert.mode={writing} finds rows by a key"
        if key == "kafka" and len(fields) not in (0, len(KAFKA_KEY)):
            yield "pk.fields", "pk.mode=kafka has three columns: topic, partition and offset"
        if parsed["delete.enabled"] and key != "record_key":
            yield "delete.enabled", "only a record's key says which row goes: pk.mode has to be record_key"
