"""The SQL sink: records as rows, with the offsets in the same transaction, so that each is there once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connect.api import SinkTask
from penstock.connect.config import ConfigDef, Importance, Kind, OneOf, Setting
from penstock.connect.connectors.alike_tasks import AlikeTasksSink
from penstock.connect.connectors.sql_values import CONNECTION, DatabaseFile, open_engine, sql_type, sql_value
from penstock.connect.data import DataError, RetriableError, Schema, SinkRecord, Struct
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

__all__ = ["SqlSinkConnector", "SqlSinkTask"]

OFFSETS = "penstock_sink_offsets"
CONFIG = ConfigDef(
    [
        *CONNECTION,
        Setting(
            name="insert.mode",
            kind=Kind.STRING,
            default="insert",
            rule=OneOf(("insert", "upsert", "update")),
            importance=Importance.HIGH,
            doc="insert: a row for each record; upsert: the row of a key is replaced; update: it must be there.",
        ),
        Setting(
            name="pk.mode",
            kind=Kind.STRING,
            default="none",
            rule=OneOf(("none", "kafka", "record_key", "record_value")),
            importance=Importance.HIGH,
            doc="The primary key: none, kafka (topic, partition, offset), the record's key, or fields of its value.",
        ),
        Setting(name="pk.fields", kind=Kind.LIST, default="", doc="The key's fields; or a plain key's column."),
        Setting(name="table.name.format", kind=Kind.STRING, default="${topic}", doc="The table of a topic."),
        Setting(name="auto.create", kind=Kind.BOOLEAN, default=False, doc="Create a table that is not there."),
        Setting(name="auto.evolve", kind=Kind.BOOLEAN, default=False, doc="Add columns that a table lacks."),
        Setting(name="delete.enabled", kind=Kind.BOOLEAN, default=False, doc="A null value deletes its key's row."),
        Setting(
            name="exactly.once",
            kind=Kind.BOOLEAN,
            default=True,
            doc=f"Keep offsets in the table {OFFSETS} of the database, in the transaction of the rows.",
        ),
    ]
)
KAFKA_KEY = ("__connect_topic", "__connect_partition", "__connect_offset")


class SqlSinkTask(SinkTask):
    """A task: each batch is one transaction."""

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.sink.JdbcSinkTask"
    _engine: Any = None

    def start(self, settings: Mapping[str, str]) -> None:
        from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table

        self._parsed, self._name = CONFIG.parse(settings), settings.get("name", "")
        self._engine = open_engine(self._parsed)
        self._file = DatabaseFile(self._engine, has_been=False)
        self._tables: dict[str, Table] = {}
        self._offsets = Table(
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
        from sqlalchemy import select

        with self._guarded() as connection:
            self._offsets.create(connection, checkfirst=True)
            mine = {"log": self.context.log_identity, "connector": self._name}
            rows = connection.execute(select(self._offsets).where(*_same(self._offsets, mine))).all()
        stored = {TopicPartition(row.topic, row.partition): row.next_offset for row in rows}
        self.context.offset({place: stored[place] for place in places if place in stored})

    def put(self, records: Sequence[SinkRecord]) -> None:
        if not records:
            return
        with self._guarded() as connection:
            for record in records:
                self._write(connection, record)
            if self._parsed["exactly.once"]:
                last = {TopicPartition(str(r.original_topic), int(r.original_partition or 0)): r for r in records}
                for place, record in last.items():
                    key: dict[str, Any] = {"log": self.context.log_identity, "connector": self._name}
                    key |= {"topic": place.topic, "partition": place.partition}
                    following = int(record.original_offset or 0) + 1
                    self._upsert(connection, self._offsets, {**key, "next_offset": following}, list(key))
        self._file.written()

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def _guarded(self) -> Any:
        """A transaction whose failures are Connect's errors."""
        self._file.check()
        return _Guarded(self._engine)

    def _write(self, connection: Connection, record: SinkRecord) -> None:
        name = self._parsed["table.name.format"].replace("${topic}", str(record.topic))
        key = self._key(record)
        if record.value is None:
            if not self._parsed["delete.enabled"] or not key:
                raise DataError(f"a record without value at {_place(record)}: only delete.enabled with a key takes it")
            table = self._table(
                connection, name, {column: (schema, v) for column, (schema, v) in key.items()}, list(key)
            )
            connection.execute(table.delete().where(*_same(table, {c: v for c, (_, v) in key.items()})))
            return
        cells = {**_cells(record.value, record.value_schema, _place(record)), **key}
        table = self._table(connection, name, cells, list(key))
        row = {column: sql_value(schema, value) for column, (schema, value) in cells.items()}
        match self._parsed["insert.mode"]:
            case "insert":
                connection.execute(table.insert().values(row))
            case "update":
                rest = {column: value for column, value in row.items() if column not in key}
                connection.execute(table.update().where(*_same(table, {c: row[c] for c in key})).values(rest))
            case _:
                self._upsert(connection, table, row, list(key))

    def _key(self, record: SinkRecord) -> dict[str, tuple[Schema | None, Any]]:
        mode, fields = self._parsed["pk.mode"], self._parsed["pk.fields"]
        if mode == "none":
            return {}
        if mode == "kafka":
            values = (record.original_topic, record.original_partition, record.original_offset)
            return {name: (None, value) for name, value in zip(fields or KAFKA_KEY, values, strict=True)}
        if mode == "record_key":
            if isinstance(record.key, Struct | dict):
                found = _cells(record.key, record.key_schema, _place(record))
                return {name: found[name] for name in fields or found}
            if not fields:
                raise DataError("pk.mode is record_key and the key is a plain value: pk.fields has to name its column")
            return {fields[0]: (record.key_schema, record.key)}
        found = {} if record.value is None else _cells(record.value, record.value_schema, _place(record))
        missing = [name for name in fields if name not in found]
        if missing or not fields:
            raise DataError(
                f"the value at {_place(record)} has no field {', '.join(missing) or '(pk.fields is empty)'}"
            )
        return {name: found[name] for name in fields}

    def _table(
        self, connection: Connection, name: str, cells: Mapping[str, tuple[Schema | None, Any]], key: list[str]
    ) -> Table:
        from sqlalchemy import Column, MetaData, Table, inspect
        from sqlalchemy.schema import CreateColumn

        table = self._tables.get(name)
        if table is None:
            schema, _, plain = name.rpartition(".")
            if not inspect(connection).has_table(plain, schema=schema or None):
                if not self._parsed["auto.create"]:
                    raise ConnectError(f"there is no table {name}", hint="Create it, or set auto.create=true.")
                columns = [
                    Column(c, sql_type(*cell), primary_key=c in key, autoincrement=False) for c, cell in cells.items()
                ]
                Table(plain, MetaData(), *columns, schema=schema or None).create(connection)
            table = Table(plain, MetaData(), schema=schema or None, autoload_with=connection)
        missing = [column for column in cells if column not in table.columns]
        if missing:
            if not self._parsed["auto.evolve"]:
                raise ConnectError(
                    f"the table {name} has no column {', '.join(missing)}", hint="Add it, or set auto.evolve=true."
                )
            quoted = connection.dialect.identifier_preparer.format_table(table)
            for column in missing:
                added = CreateColumn(Column(column, sql_type(*cells[column]))).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {quoted} ADD COLUMN {added}")
            table = Table(table.name, MetaData(), schema=table.schema, autoload_with=connection)
        self._tables[name] = table
        return table

    def _upsert(self, connection: Connection, table: Table, row: Mapping[str, Any], key: list[str]) -> None:
        if not key:
            raise DataError("insert.mode is upsert, which needs a key: set pk.mode")
        rest = {column: value for column, value in row.items() if column not in key}
        if connection.dialect.name in ("sqlite", "postgresql"):
            from sqlalchemy.dialects import postgresql, sqlite

            make: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
            statement = make(table).values(dict(row))
            if rest:
                connection.execute(statement.on_conflict_do_update(index_elements=key, set_=rest))
            else:
                connection.execute(statement.on_conflict_do_nothing(index_elements=key))
            return
        same = _same(table, {column: row[column] for column in key})
        if rest and connection.execute(table.update().where(*same).values(rest)).rowcount:
            return
        if not rest and connection.execute(table.select().where(*same)).first() is not None:
            return
        connection.execute(table.insert().values(dict(row)))


class _Guarded:
    def __init__(self, engine: Any) -> None:
        self._begin = engine.begin()

    def __enter__(self) -> Connection:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            connection: Connection = self._begin.__enter__()
        except SQLAlchemyError as error:
            raise _error(error) from error
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self._begin.__exit__(kind, error, trace)
        except SQLAlchemyError as failure:
            raise _error(failure) from failure
        if isinstance(error, SQLAlchemyError):
            raise _error(error) from error


def _error(error: Exception) -> ConnectError:
    from sqlalchemy.exc import DataError as Unfit
    from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError

    text = f"the database refuses: {str(getattr(error, 'orig', None) or error).splitlines()[0]}"
    if isinstance(error, OperationalError | InterfaceError):
        return RetriableError(text)  # it is away, or locked
    kind = DataError if isinstance(error, Unfit | IntegrityError) else ConnectError  # the record's fault
    return kind(text, hint="Correct the record, the table or the settings; nothing of its batch is written.")


def _cells(value: Any, schema: Schema | None, where: str) -> dict[str, tuple[Schema | None, Any]]:
    if isinstance(value, Struct):
        return {part.name: (part.schema, value[part.name]) for part in value.schema.fields}
    if isinstance(value, dict) and schema is None:
        return {str(name): (None, each) for name, each in value.items()}
    raise DataError(f"the record at {where} is no struct or map of columns, but {type(value).__name__}")


def _same(table: Table, key: Mapping[str, Any]) -> list[Any]:
    return [table.columns[column] == value for column, value in key.items()]


def _place(record: SinkRecord) -> str:
    return f"{record.topic}-{record.partition}, offset {record.offset}"


class SqlSinkConnector(AlikeTasksSink):
    """Records as rows of tables, under the name and the settings of Confluent's JDBC sink.

    Each batch is one transaction with the offsets that follow it (`penstock_sink_offsets`): after a crash it goes on
    from there, so each record is written once. The offsets belong to one log: those of another one are not used. Not so
    with ``exactly.once=false``.
    """

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.JdbcSinkConnector"
    experimental: ClassVar[bool] = True
    config: ClassVar[ConfigDef] = CONFIG
    task_class: ClassVar[type[SinkTask]] = SqlSinkTask

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        writing, key, fields = parsed["insert.mode"], parsed["pk.mode"], parsed["pk.fields"]
        if writing != "insert" and key == "none":
            yield "pk.mode", f"insert.mode={writing} finds rows by a key"
        if key == "record_value" and not fields:
            yield "pk.fields", "pk.mode=record_value needs the names of the key's fields"
        if key == "kafka" and len(fields) not in (0, len(KAFKA_KEY)):
            yield "pk.fields", "pk.mode=kafka has three columns: topic, partition and offset"
        if parsed["delete.enabled"] and key != "record_key":
            yield "delete.enabled", "only a record's key says which row goes: pk.mode has to be record_key"
