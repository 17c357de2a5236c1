"""The SQL source: rows of tables or of a query as records, new ones by a growing number, a time, or both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Importance, Kind, OneOf, Range, Setting
from penstock.connect.connectors.sql_values import CONNECTION, DatabaseFile, connect_schema, connect_value, open_engine
from penstock.connect.data import Moment, RetriableError, Schema, SourceRecord, Struct, struct
from penstock.errors import ConnectError

if TYPE_CHECKING:
    from sqlalchemy import RowMapping, Select, Table

__all__ = ["SqlSourceConnector", "SqlSourceTask"]

MODES = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")
CONFIG = ConfigDef(
    [
        *CONNECTION,
        Setting(
            name="mode",
            kind=Kind.STRING,
            rule=OneOf(MODES),
            importance=Importance.HIGH,
            doc="How new rows are found: incrementing (a number that grows), timestamp (a time that grows, so changes "
            "are seen too), timestamp+incrementing (both: no row is missed at equal times), bulk (all rows each time).",
        ),
        Setting(name="incrementing.column.name", kind=Kind.STRING, default="", doc="The column that grows."),
        Setting(name="timestamp.column.name", kind=Kind.STRING, default="", doc="The column of the last change."),
        Setting(
            name="table.whitelist",
            kind=Kind.LIST,
            default="",
            importance=Importance.HIGH,
            doc="The tables; or a query.",
        ),
        Setting(name="query", kind=Kind.STRING, default="", doc="A SELECT without WHERE, in place of tables."),
        Setting(
            name="topic.prefix",
            kind=Kind.STRING,
            importance=Importance.HIGH,
            doc="The topic is this and the table's name; of a query, this alone.",
        ),
        Setting(name="poll.interval.ms", kind=Kind.INT, default=5000, rule=Range(0), doc="Time between two looks."),
        Setting(name="batch.max.rows", kind=Kind.INT, default=1000, rule=Range(1), doc="The most rows of a look."),
        Setting(
            name="timestamp.delay.interval.ms",
            kind=Kind.LONG,
            default=0,
            rule=Range(0),
            doc="Rows younger than this are left for later, as transactions with earlier times may still commit.",
        ),
    ]
)


class SqlSourceTask(SourceTask):
    """A task: it looks at its tables one after another."""

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.source.JdbcSourceTask"
    _engine: Any = None

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = CONFIG.parse(settings)
        self._stopped = threading.Event()
        self._engine = open_engine(self._parsed)
        self._file = DatabaseFile(self._engine, has_been=True)
        query = self._parsed["query"]
        self._names: list[str] = ["query"] if query else list(self._parsed["table.whitelist"])
        self._tables: dict[str, Any] = {}
        self._schemas: dict[str, Schema] = {}
        self._offsets = {name: self.context.offset_reader.offset(self._partition(name)) or {} for name in self._names}
        self._due = dict.fromkeys(self._names, 0.0)

    def poll(self) -> Sequence[SourceRecord] | None:
        from sqlalchemy.exc import SQLAlchemyError

        name = min(self._due, key=lambda each: self._due[each])
        wait = self._due[name] - time.monotonic()
        if wait > 0:
            self._stopped.wait(min(wait, 0.5))
            return None
        try:
            records = self._look(name)
        except RetriableError:
            self._due[name] = time.monotonic() + 1
            raise
        except SQLAlchemyError as error:
            self._due[name] = time.monotonic() + 1
            text = str(getattr(error, "orig", None) or error).splitlines()[0]
            raise RetriableError(f"the database fails at {name}: {text}") from error
        if len(records) < self._parsed["batch.max.rows"]:  # else there are more
            self._due[name] = time.monotonic() + self._parsed["poll.interval.ms"] / 1000
        return records

    def stop(self) -> None:
        if self._engine is not None:
            self._stopped.set()
            self._engine.dispose()

    def _partition(self, name: str) -> dict[str, str]:
        return {"query": "query"} if self._parsed["query"] else {"protocol": "1", "table": name}

    def _look(self, name: str) -> list[SourceRecord]:
        from sqlalchemy import select

        self._file.check()
        with self._engine.connect() as connection:
            table = self._table(name)
            found = connection.execute(self._limited(select(table), table, self._offsets[name])).mappings().all()
        topic = self._parsed["topic.prefix"] + ("" if self._parsed["query"] else name.rpartition(".")[2])
        records = [self._record(name, topic, row) for row in found]
        if records and records[-1].source_offset:
            self._offsets[name] = dict(records[-1].source_offset)
        return records

    def _table(self, name: str) -> Any:
        from sqlalchemy import MetaData, Table, text

        if name in self._tables:
            return self._tables[name]
        if not self._parsed["query"]:
            schema, _, table = name.rpartition(".")
            made: Any = Table(table, MetaData(), schema=schema or None, autoload_with=self._engine)
        else:
            with self._engine.connect() as connection:
                given = self._parsed["query"].rstrip("; \n")
                first = connection.execute(text(f"SELECT * FROM ({given}) AS penstock_query LIMIT 1"))  # noqa: S608
                names, row = list(first.keys()), first.mappings().first()
            from penstock.connect.connectors.sql_values import sql_type

            columns = [_column(each, None if row is None else sql_type(None, row[each])) for each in names]
            made = text(given).columns(*columns).subquery("penstock_query")
        self._tables[name] = made
        parts = {c.name: connect_schema(c.type, nullable=bool(c.nullable)) for c in made.columns}
        self._schemas[name] = struct(parts, name=None if self._parsed["query"] else name.rpartition(".")[2])
        return made

    def _limited(self, query: Select[Any], table: Table, offset: Mapping[str, Any]) -> Select[Any]:
        """The rows behind an offset, in the order in which offsets grow."""
        from sqlalchemy import and_, or_

        mode, most = self._parsed["mode"], self._parsed["batch.max.rows"]
        if mode == "bulk":
            return query
        number = _named(table, self._parsed["incrementing.column.name"]) if "incrementing" in mode else None
        moment = _named(table, self._parsed["timestamp.column.name"]) if "timestamp" in mode else None
        if moment is None:
            assert number is not None  # noqa: S101 - by the mode
            after = query.where(number > offset["incrementing"]) if "incrementing" in offset else query
            return after.order_by(number).limit(most)
        now = datetime.now(UTC).replace(tzinfo=None) - timedelta(
            milliseconds=self._parsed["timestamp.delay.interval.ms"]
        )
        query = query.where(moment < now)
        last = _time_of(offset)
        if number is None:
            after = query if last is None else query.where(moment > last)
            return after.order_by(moment).limit(most)
        if last is not None:
            same = and_(moment == last, number > offset.get("incrementing", -1))
            query = query.where(or_(moment > last, same))
        return query.order_by(moment, number).limit(most)

    def _record(self, name: str, topic: str, row: RowMapping) -> SourceRecord:
        schema = self._schemas[name]
        value = Struct(schema, {part.name: connect_value(part.schema, row[part.name]) for part in schema.fields})
        offset: dict[str, Any] = {}
        mode = self._parsed["mode"]
        if "timestamp" in mode:
            moment = row[self._parsed["timestamp.column.name"]]
            offset |= {"timestamp": Moment.of(moment).ms, "timestamp_nanos": moment.microsecond * 1000}
        if "incrementing" in mode:
            offset["incrementing"] = row[self._parsed["incrementing.column.name"]]
        return SourceRecord(
            topic=topic,
            value=value,
            value_schema=schema,
            source_partition=self._partition(name),
            source_offset=offset or None,
        )


def _time_of(offset: Mapping[str, Any]) -> datetime | None:
    if "timestamp" not in offset:
        return None
    whole = Moment(int(offset["timestamp"])).datetime().replace(tzinfo=None)
    return whole.replace(microsecond=int(offset.get("timestamp_nanos", whole.microsecond * 1000)) // 1000)


def _named(table: Any, name: str) -> Any:
    if name not in table.columns:
        raise ConnectError(
            f"{table.name} has no column {name!r}", hint=f"It has {', '.join(c.name for c in table.columns)}."
        )
    return table.columns[name]


def _column(name: str, kind: Any) -> Any:
    from sqlalchemy import Column, Text

    return Column(name, kind if kind is not None else Text())


class SqlSourceConnector(SourceConnector):
    """Rows of a database as records, under the name and the settings of Confluent's JDBC source.

    Offsets are written with the records, so each row comes once, as long as the column that tells new rows only grows.
    Tables are divided among the tasks.
    """

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.JdbcSourceConnector"
    experimental: ClassVar[bool] = True
    config: ClassVar[ConfigDef] = CONFIG
    task_class: ClassVar[type[SourceTask]] = SqlSourceTask

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._tables: list[str] = self.parse(settings)["table.whitelist"]

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        mode = parsed["mode"]
        if bool(parsed["table.whitelist"]) == bool(parsed["query"]):
            yield "table.whitelist", "table.whitelist or query has to be set, and not both"
        for part in ("incrementing", "timestamp"):
            if part in mode and not parsed[f"{part}.column.name"]:
                yield f"{part}.column.name", f"mode={mode} needs the name of this column"

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        if not self._tables:
            return [self._settings]
        count = min(max_tasks, len(self._tables))
        shares = [self._tables[number::count] for number in range(count)]
        return [{**self._settings, "table.whitelist": ",".join(share)} for share in shares]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:
        return ExactlyOnce.UNSUPPORTED if settings.get("mode") == "bulk" else ExactlyOnce.SUPPORTED
