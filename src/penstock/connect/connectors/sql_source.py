"""The SQL source: rows of tables or of a query as records, new ones by a growing number, a time, or both."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.base.log_lines import own_logger
from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Model
from penstock.connect.connectors.confluent_settings import SQL_SOURCE_MODEL
from penstock.connect.connectors.sql_columns import ColumnRules, SqlColumn
from penstock.connect.connectors.sql_databases import DatabaseFile, database_error, open_engine, reader_for
from penstock.connect.connectors.sql_reading import DatabaseReader, FetchedRows, Relation, TableName
from penstock.connect.connectors.sql_settings import SOURCE, zone_of
from penstock.connect.connectors.sql_urls import address_problems
from penstock.connect.data import RetriableError, Schema, SourceRecord, Struct, Type, struct
from penstock.errors import ConnectError
from penstock.serde.data.logical import DECIMAL_NAME

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["SqlSourceConnector", "SqlSourceTask"]

TABLES = "penstock.tables"
QUERY_PARTITION = {"query": "query"}
LONGEST = (1 << 63) - 1
INTEGERS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64)
_LOG = own_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The columns that find new rows: that of the growing number, and those of the last change."""

    number: SqlColumn | None
    moments: tuple[SqlColumn, ...]


class _Round:
    """One query and its rows, which are read in batches until none is left."""

    def __init__(self, columns: Sequence[SqlColumn], keys: _Keys, schema: Schema, rows: FetchedRows) -> None:
        self.columns, self.keys, self.schema = columns, keys, schema
        self._rows, self._at_end = rows, False
        self._ahead: Sequence[Sequence[Any]] = ()

    def fetch(self, most: int) -> tuple[Sequence[Sequence[Any]], Sequence[Any] | None]:
        """Return the next rows, and the one behind them; None: there is none, and the round is over."""
        rows = list(self._ahead)
        while len(rows) <= most and not self._at_end:
            lacking = most + 1 - len(rows)
            more = self._rows.fetch(lacking)
            self._at_end = len(more) < lacking
            rows += more
        self._ahead = rows[most:]
        return rows[:most], self._ahead[0] if self._ahead else None

    def close(self) -> None:
        self._rows.close()


class _Watched:
    """A table or query with its offset, and the round that is being read."""

    def __init__(self, relation: Relation, topic: str) -> None:
        self.relation, self.topic = relation, topic
        self.partition: dict[str, str] | None = None  # not known before the database was asked for the whole name
        self.offset: dict[str, Any] = {}
        self.number_name = ""
        self.moment_names: Sequence[str] = ()
        self.round: _Round | None = None
        self.due, self.failures = 0.0, 0


class SqlSourceTask(SourceTask):
    """A task: it looks at its tables one after another.

    The rows of a query are read through one cursor, in as many batches as they need. The offset of a row in mode
    timestamp is the last time all of whose rows were read, so a restart between rows of one time reads them again.
    """

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.source.JdbcSourceTask"
    _engine: Any = None
    _watched: Sequence[_Watched] = ()

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = parsed = SOURCE.parse(settings)
        self._stopped = threading.Event()
        self._engine = open_engine(parsed)
        self._file = DatabaseFile(self._engine, has_been=True)
        self._reader = _reader(self._engine, parsed)
        query = _query_of(parsed)
        listed = json.loads(settings[TABLES]) if TABLES in settings else parsed["table.whitelist"]
        self._watched = [self._watch(name) for name in ([None] if query else listed)]
        try:
            for each in self._watched:
                self._check_at_start(each)
        except BaseException:
            self._engine.dispose()
            raise

    def _watch(self, name: str | None) -> _Watched:
        parsed = self._parsed
        if name is None:
            label = "the query" if parsed["query.masked"] else "query"
            relation = Relation(label, query=_query_of(parsed).rstrip("; \n\t"))
            watched = _Watched(relation, parsed["topic.prefix"])
        else:
            table = TableName.parse(name)
            watched = _Watched(Relation(name, table), parsed["topic.prefix"] + table.name)
        mode = parsed["mode"]
        watched.number_name = _mapped(parsed, "incrementing", name) if "incrementing" in mode else ""
        watched.moment_names = _mapped(parsed, "timestamp", name) if "timestamp" in mode else ()
        return watched

    def _resume(self, connection: Connection, watched: _Watched) -> None:
        """Find the offset of a table under its whole name, or under one of older versions."""
        if watched.partition is not None:
            return
        table, read = watched.relation.table, self.context.offset_reader.offset
        older: Sequence[dict[str, str]] = ()
        if table is None:
            partition = QUERY_PARTITION
        elif self._parsed["mode"] == "bulk":
            partition = {"table": table.name}
        else:
            partition = {"protocol": "1", "table": self._reader.qualified(connection, table)}
            older = ({"protocol": "1", "table": watched.relation.label}, {"table": table.name})
        watched.offset = dict(next(filter(None, map(read, (partition, *older))), {}))
        watched.partition = partition

    def _check_at_start(self, watched: _Watched) -> None:
        """Refuse at the start what no later look can read; a database that is away is asked later."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self._file.check()
            with self._reader.connect() as connection:
                self._described(connection, watched)
        except RetriableError:
            return
        except SQLAlchemyError as error:
            failure = database_error(error, f"at {watched.relation.label}")
            if not isinstance(failure, RetriableError):
                raise failure from error

    def poll(self) -> Sequence[SourceRecord] | None:
        from sqlalchemy.exc import SQLAlchemyError

        watched = min(self._watched, key=lambda each: (each.round is None, each.due))
        wait = watched.due - time.monotonic()
        if watched.round is None and wait > 0:
            self._stopped.wait(min(wait, 0.5))
            return None
        try:
            records = self._look(watched)
        except SQLAlchemyError as error:
            self._end(watched, 1)
            failure = database_error(error, f"at {watched.relation.label}")
            raise self._counted(watched, failure) from error
        except RetriableError as error:
            self._end(watched, 1)
            raise self._counted(watched, error) from error
        except BaseException:
            self._end(watched, 1)
            raise
        watched.failures = 0
        return records

    def _counted(self, watched: _Watched, failure: ConnectError) -> ConnectError:
        """Return the failure, which is for good once it has come too often."""
        watched.failures += 1
        most = self._parsed["query.retry.attempts"]
        if isinstance(failure, RetriableError) and 0 < most <= watched.failures:
            return ConnectError(
                f"Failed to query table after retries: {failure.message}",
                hint="Restart the task when the database answers, or raise query.retry.attempts.",
            )
        return failure

    def _end(self, watched: _Watched, wait: float) -> None:
        if watched.round is not None:
            watched.round.close()
            watched.round = None
        watched.due = time.monotonic() + wait

    def stop(self) -> None:
        if self._engine is not None:
            self._stopped.set()
            for each in self._watched:
                self._end(each, 0)
            self._engine.dispose()

    def _look(self, watched: _Watched) -> list[SourceRecord]:
        """Return the records of the next batch."""
        self._file.check()
        if watched.round is None:
            watched.round = self._begin(watched)
        current_round = watched.round
        rows, behind = current_round.fetch(self._parsed["batch.max.rows"])
        records = self._records(watched, current_round, rows, behind)
        if behind is None:
            self._end(watched, self._parsed["poll.interval.ms"] / 1000)
        return records

    # The query

    def _begin(self, watched: _Watched) -> _Round:
        reader, relation = self._reader, watched.relation
        with reader.connect() as connection:
            columns, keys = self._described(connection, watched)
            self._resume(connection, watched)
            if keys.moments and not watched.offset and self._parsed["timestamp.initial"] is not None:
                watched.offset = self._initial(connection)
            conditions, order = self._conditions(connection, watched.offset, keys)
        names = ", ".join(  # names of their own: ORDER BY means the table's columns
            f"{reader.selected(column)} AS penstock_{at}" for at, column in enumerate(columns)
        )
        statement = f"SELECT {names} FROM {reader.source(relation)}"  # noqa: S608 - names are quoted
        if conditions:
            statement += f" WHERE {conditions} ORDER BY {order}"
        suffix = self._parsed["query.suffix"].strip()
        schema = struct(
            [(column.name, column.schema) for column in columns],
            name=None if relation.table is None else relation.table.name,
        )
        return _Round(columns, keys, schema, reader.start(f"{statement} {suffix}".strip()))

    def _initial(self, connection: Connection) -> dict[str, Any]:
        initial = int(self._parsed["timestamp.initial"])
        return _moment_offset(self._reader.now(connection) if initial == -1 else initial * 1000)

    def _conditions(self, connection: Connection, offset: Mapping[str, Any], keys: _Keys) -> tuple[str, str]:
        """Return the rows behind an offset, and the order in which offsets grow."""
        reader, number = self._reader, keys.number
        counter = "" if number is None else reader.quoted(number.name)
        last_number = int(offset["incrementing"]) if "incrementing" in offset else None
        if not keys.moments:
            if number is None:
                return "", ""
            return f"{counter} > {last_number}" if last_number is not None else f"{counter} IS NOT NULL", counter
        moment = reader.moment(keys.moments)
        until = reader.now(connection) - self._parsed["timestamp.delay.interval.ms"] * 1000
        conditions = f"{moment} < {reader.literal(until, keys.moments)}"
        last = _moment_of(offset)
        if last is not None:
            since = reader.literal(last, keys.moments)
            if number is None:
                conditions += f" AND {moment} > {since}"
            else:
                same = f"{moment} = {since} AND {counter} > {-1 if last_number is None else last_number}"
                conditions += f" AND (({same}) OR {moment} > {since})"
        return conditions, moment if number is None else f"{moment}, {counter}"

    def _described(self, connection: Connection, watched: _Watched) -> tuple[list[SqlColumn], _Keys]:
        """Return the columns as they are now, with those that find new rows.

        Raises:
            ConnectError: They cannot.
        """
        relation, reader = watched.relation, self._reader
        if relation.table is not None:
            self._check_kind(connection, relation.table, relation.label)
        columns = reader.columns(connection, relation)
        if "incrementing" in self._parsed["mode"] and not watched.number_name and relation.table is not None:
            watched.number_name = self._found_number(connection, relation.table, relation.label)
        number, moments = _keys_of(columns, watched)
        for each in moments:
            if each.micros is None:
                raise ConnectError(
                    f"the timestamp column {each.name} of {relation.label} has the type {each.kind}, "
                    f"which is not a timestamp",
                    hint="Choose a column of type TIMESTAMP, or convert it in a query.",
                )
        if number is not None and not _counts(number.schema):
            raise ConnectError(
                f"Invalid type for incrementing column: {number.schema.type.name}: {number.name} of {relation.label} "
                f"has the type {number.kind}",
                hint="Choose a column of whole numbers.",
            )
        if relation.table is not None and self._parsed["validate.non.null"]:
            _check_never_null(number, moments, relation.label)
        return columns, _Keys(number, moments)

    def _found_number(self, connection: Connection, table: TableName, label: str) -> str:
        name = self._reader.counting_column(connection, table)
        if name is None:
            raise ConnectError(
                f"{label} has no column whose numbers the database counts up",
                hint="Set incrementing.column.name to the column that grows.",
            )
        return name

    def _check_kind(self, connection: Connection, table: TableName, label: str) -> None:
        relation = self._reader.found(connection, table)
        if relation is None:
            raise RetriableError(f"there is no table {label}")
        if relation.kind not in _kinds(self._parsed):
            raise ConnectError(
                f"{label} is a {relation.kind}, and table.types is {','.join(self._parsed['table.types'])}",
                hint=f"Set table.types=TABLE,VIEW to read {relation.kind}s too.",
            )

    # The records

    def _records(
        self, watched: _Watched, current_round: _Round, rows: Sequence[Sequence[Any]], behind: Sequence[Any] | None
    ) -> list[SourceRecord]:
        label, schema, offset = watched.relation.label, current_round.schema, watched.offset
        places = {column.name: at for at, column in enumerate(current_round.columns)}
        moments = (
            [_moment(current_round.keys, row, places, label) for row in rows] if current_round.keys.moments else []
        )
        if moments and behind is not None:
            moments.append(_moment(current_round.keys, behind, places, label))
        records: list[SourceRecord] = []
        has_keys = bool(moments) or current_round.keys.number is not None
        for at, row in enumerate(rows):
            values = [column.value(cell, label) for column, cell in zip(current_round.columns, row, strict=True)]
            if current_round.keys.number is not None:
                number = _number(current_round.keys.number, values[places[current_round.keys.number.name]])
                offset = {**(_moment_offset(moments[at]) if moments else {}), "incrementing": number}
            elif moments and (at + 1 == len(moments) or moments[at] < moments[at + 1]):
                offset = _moment_offset(moments[at])
            records.append(
                SourceRecord(
                    topic=watched.topic,
                    value=Struct(schema, dict(zip(places, values, strict=True))),
                    value_schema=schema,
                    source_partition=watched.partition,
                    source_offset=offset if has_keys else None,
                )
            )
        watched.offset = offset
        return records


def _reader(engine: Any, parsed: Mapping[str, Any]) -> DatabaseReader:
    numerics = parsed["numeric.mapping"] or ("precision_only" if parsed["numeric.precision.mapping"] else "none")
    rules = ColumnRules(numerics, parsed["timestamp.granularity"], zone_of(parsed["db.timezone"]))
    return reader_for(
        engine,
        rules,
        quotes=parsed["quote.sql.identifiers"].lower() == "always",
        isolation=parsed["transaction.isolation.mode"],
    )


def _query_of(parsed: Mapping[str, Any]) -> str:
    masked = parsed["query.masked"]
    return str(masked.secret) if masked else str(parsed["query"])


def _mapped(parsed: Mapping[str, Any], which: str, table: str | None) -> Any:
    """Return the columns of a table by the mappings, or those that count for all tables."""
    is_several = which == "timestamp"
    mapping = parsed["timestamp.columns.mapping" if is_several else "incrementing.column.mapping"]
    if not mapping or table is None:
        return parsed[f"{which}.column.name"]
    name = TableName.parse(table)
    matching = [
        columns.strip()
        for pattern, _, columns in (each.rpartition(":") for each in mapping)
        if re.fullmatch(pattern.strip(), str(name))
    ]
    if len(matching) != 1:
        what = "no regular expression" if not matching else f"{len(matching)} regular expressions"
        raise ConnectError(
            f"the table {name} matches {what} of "
            f"{'timestamp.columns.mapping' if is_several else 'incrementing.column.mapping'}",
            hint="Each table has to match exactly one.",
        )
    return [each.strip() for each in matching[0][1:-1].split("|")] if is_several else matching[0]


def _keys_of(columns: Sequence[SqlColumn], watched: _Watched) -> tuple[SqlColumn | None, tuple[SqlColumn, ...]]:
    """Return the columns that find new rows, by the names in the settings.

    Raises:
        ConnectError: There is none of such a name.
    """
    label = watched.relation.label
    hint = f"It has {', '.join(column.name for column in columns)}."
    number = _named(columns, watched.number_name) if watched.number_name else None
    if watched.number_name and number is None:
        raise ConnectError(f"Incrementing column: {watched.number_name} does not exist in table '{label}'", hint=hint)
    moments = [_named(columns, name) for name in watched.moment_names]
    missing = [name for name, column in zip(watched.moment_names, moments, strict=True) if column is None]
    if missing:
        raise ConnectError(f"Timestamp columns: {', '.join(missing)} do not exist in table '{label}'", hint=hint)
    return number, tuple(each for each in moments if each is not None)


def _named(columns: Sequence[SqlColumn], name: str) -> SqlColumn | None:
    """Return a column by its name, or by its name in other letters where only one is like it."""
    exact = [column for column in columns if column.name == name]
    alike = exact or [column for column in columns if column.name.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def _counts(schema: Schema) -> bool:
    return schema.name == DECIMAL_NAME or (schema.name is None and schema.type in INTEGERS)


def _check_never_null(number: SqlColumn | None, moments: Sequence[SqlColumn], label: str) -> None:
    hint = "Make it NOT NULL, or set validate.non.null=false: then rows without it are never read."
    if number is not None and number.schema.optional:
        raise ConnectError(
            f"Cannot make incremental queries using incrementing column {number.name} on {label} because this column "
            "is nullable.",
            hint=hint,
        )
    if moments and all(each.schema.optional for each in moments):
        raise ConnectError(
            f"Cannot make incremental queries using timestamp columns {','.join(each.name for each in moments)} on "
            f"{label} because all of these columns are nullable.",
            hint=hint,
        )


def _number(column: SqlColumn, value: Any) -> int:
    if value is None:
        raise ConnectError(
            f"Null value for incrementing column {column.name} of type {column.kind}",
            hint="Make the column NOT NULL, or leave such rows out with a query.",
        )
    whole = int(value)
    if whole != value or abs(whole) > LONGEST:
        what = "Scale of Decimal value for incrementing column must be 0" if whole != value else "Invalid value"
        raise ConnectError(
            f"{what}: {column.name} is not a 64-bit integer",
            hint="Choose a column of whole numbers.",
        )
    return whole


def _moment(keys: _Keys, row: Sequence[Any], places: Mapping[str, int], label: str) -> int:
    """Return the microseconds of a row's first time that is not null."""
    for column in keys.moments:
        cell = row[places[column.name]]
        if cell is not None and column.micros is not None:
            return column.micros(cell)
    raise ConnectError(f"a row of {label} has no time", hint="Leave it out with a query; no later look would find it.")


def _moment_offset(micros: int) -> dict[str, int]:
    return {"timestamp": micros // 1000, "timestamp_nanos": micros % 1_000_000 * 1000}


def _moment_of(offset: Mapping[str, Any]) -> int | None:
    """Return the microseconds of an offset; those that are set by hand may lack the nanoseconds."""
    if "timestamp" not in offset:
        return None
    millis = int(offset["timestamp"])
    nanos = offset.get("timestamp_nanos")
    return millis * 1000 if nanos is None else millis // 1000 * 1_000_000 + int(nanos) // 1000


def _kinds(parsed: Mapping[str, Any]) -> set[str]:
    return {"TABLE" if each.upper() == "PARTITIONED TABLE" else each.upper() for each in parsed["table.types"]}


def _like(pattern: str | None) -> re.Pattern[str]:
    """Return a pattern of SQL's LIKE; None: anything."""
    if pattern is None:
        return re.compile(".*", re.DOTALL)
    parts = {"%": ".*", "_": "."}
    return re.compile("".join(parts.get(letter) or re.escape(letter) for letter in pattern), re.DOTALL)


def _quoted_name(table: TableName) -> str:
    """Return a name that `TableName.parse` reads; in quotes where it has to be."""
    parts = [each for each in (table.schema, table.name) if each is not None]
    return ".".join(each if re.fullmatch(r"[\w$]+", each) else '"{}"'.format(each.replace('"', '""')) for each in parts)


def _discovered(engine: Any, parsed: Mapping[str, Any]) -> list[str]:
    """Return the names of the tables that the settings ask for, as the database has them now."""
    reader = _reader(engine, parsed)
    with reader.connect() as connection:
        tables = [each for each in reader.tables(connection) if each.kind in _kinds(parsed)]
    schema, catalog = _like(parsed["schema.pattern"]), _like(parsed["catalog.pattern"])
    tables = [each for each in tables if schema.fullmatch(each.schema or "") and catalog.fullmatch(each.catalog or "")]
    white, black = set(parsed["table.whitelist"]), set(parsed["table.blacklist"])
    included = [re.compile(each) for each in parsed["table.include.list"]]
    excluded = [re.compile(each) for each in parsed["table.exclude.list"]]

    def names(table: TableName) -> set[str]:
        return {table.name, str(table), _quoted_name(table), f"{table.catalog}.{table}"}

    if white:
        tables = [each for each in tables if names(each) & white]
    elif included:
        tables = [
            each
            for each in tables
            if any(pattern.fullmatch(str(each)) for pattern in included)
            and not any(pattern.fullmatch(str(each)) for pattern in excluded)
        ]
    return [_quoted_name(each) for each in tables if not names(each) & black]


class SqlSourceConnector(SourceConnector):
    """Rows of a database as records, under the name and the settings of Confluent's JDBC source.

    Offsets are written with the records, so in the modes with an incrementing column each row is read once, as long as
    the column only grows. In mode timestamp, a restart between rows of the same time reads these rows again. The
    columns are looked up before each query, so an added column is in the next rows. Tables are divided among the
    tasks.

    A row whose transaction ends after one with a later time, or a larger number, was read is never read: no query can
    find it. For times, ``timestamp.delay.interval.ms`` leaves young rows for later: as long as the longest
    transaction lasts, no row is lost. For mode incrementing there is no such setting: let one writer at a time add
    rows, or use PostgresConnector.
    """

    java_class: ClassVar[str] = "io.confluent.connect.jdbc.JdbcSourceConnector"
    config: ClassVar[ConfigDef] = SOURCE
    model: ClassVar[Model] = SQL_SOURCE_MODEL
    task_class: ClassVar[type[SourceTask]] = SqlSourceTask
    _engine: Any = None
    _looks: threading.Thread | None = None

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self._parsed = parsed = self.parse(settings)
        self._stopped = threading.Event()
        self._last: list[str] | None = None
        searches = ("table.blacklist", "table.include.list", "schema.pattern", "catalog.pattern")
        if not _query_of(parsed) and any(parsed[name] not in (None, []) for name in searches):
            self._engine = open_engine(parsed)

    def stop(self) -> None:
        self._stopped.set()
        if self._looks is not None:
            self._looks.join(5)
        if self._engine is not None:
            self._engine.dispose()

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        yield from address_problems(parsed)
        mode, query = parsed["mode"], _query_of(parsed)
        lists = [name for name in ("table.whitelist", "table.blacklist", "table.include.list") if parsed[name]]
        if parsed["query"] and parsed["query.masked"]:
            yield "query", "Both 'query' and 'query.masked' configs cannot be set at the same time"
        if bool(lists) == bool(query):
            yield "table.whitelist", "table.whitelist or query has to be set, and not both"
        elif len(lists) > 1:
            yield lists[1], f"{' and '.join(lists)} cannot be used together"
        if parsed["table.exclude.list"] and not parsed["table.include.list"]:
            yield "table.exclude.list", "it only applies to tables that table.include.list has"
        for part in ("incrementing", "timestamp"):
            name = f"{part}.column.name"
            mapping = "timestamp.columns.mapping" if part == "timestamp" else "incrementing.column.mapping"
            can_be_found = part == "incrementing" and not query  # the column that the database counts up
            if part in mode and not parsed[name] and not can_be_found and (query or not parsed[mapping]):
                yield name, f"mode={mode} needs the name of this column"
            if parsed[name] and parsed[mapping]:
                yield mapping, f"{name} and {mapping} cannot be used together"

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        tables: list[str] = self._parsed["table.whitelist"]
        if self._engine is not None:
            tables = self._found() or []
            self._watch_tables()
        elif not tables:
            return [self._settings]
        count = min(max_tasks, len(tables))
        shares = [tables[number::count] for number in range(count)]
        if self._engine is None:
            return [{**self._settings, "table.whitelist": ",".join(share)} for share in shares]
        return [{**self._settings, TABLES: json.dumps(share)} for share in shares]

    def _found(self) -> list[str] | None:
        """Return the tables now; None: the database is away."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self._last = _discovered(self._engine, self._parsed)
        except SQLAlchemyError as error:
            _LOG.warning("the tables cannot be listed: %s", database_error(error, "").message)
            return self._last
        return self._last

    def _watch_tables(self) -> None:
        if self._looks is None and getattr(self, "context", None) is not None:
            self._looks = threading.Thread(target=self._keep_looking, name="sql-tables", daemon=True)
            self._looks.start()

    def _keep_looking(self) -> None:
        while not self._stopped.wait(self._parsed["table.poll.interval.ms"] / 1000):
            before = self._last
            if self._found() != before:
                self.context.request_task_reconfiguration()

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:
        is_sure = settings.get("mode") in ("incrementing", "timestamp+incrementing")
        return ExactlyOnce.SUPPORTED if is_sure else ExactlyOnce.UNSUPPORTED
