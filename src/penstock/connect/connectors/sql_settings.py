"""The settings of the SQL source and sink, under the names of Confluent's JDBC connectors."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any
from zoneinfo import ZoneInfo

from penstock.connect.config import (
    Check,
    ConfigDef,
    DatabaseUrl,
    EachRegex,
    Importance,
    Kind,
    OneOf,
    Password,
    Range,
    Setting,
)
from penstock.connect.data import SettingError

__all__ = ["ISOLATIONS", "MODES", "SINK", "SOURCE", "zone_of"]

MODES = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")
NUMERICS = ("none", "precision_only", "best_fit", "best_fit_eager_double")
GRANULARITIES = (
    "connect_logical", "micros_long", "micros_string", "micros_iso_datetime_string", "nanos_long", "nanos_string",
    "nanos_iso_datetime_string",
)  # fmt: skip
ISOLATIONS = ("DEFAULT", "READ_UNCOMMITTED", "READ_COMMITTED", "REPEATABLE_READ", "SERIALIZABLE")
LONGEST_TOPIC = 249
TYPES = ("TABLE", "VIEW", "PARTITIONED TABLE")


def zone_of(name: str) -> dt.tzinfo:
    """Return the time zone of a setting; UTC as Python's own, which costs nothing.

    Raises:
        LookupError: There is none of this name.
    """
    if name.upper() in ("UTC", "Z", "GMT"):
        return dt.UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError) as error:
        raise LookupError(name) from error


def _check_zone(name: str, value: Any) -> None:
    try:
        zone_of(str(value))
    except LookupError as error:
        raise SettingError.invalid(name, value, "Invalid time zone identifier") from error


def _check_types(name: str, value: Any) -> None:
    for each in value:
        if each.upper() not in TYPES:
            raise SettingError.invalid(name, each, f"Only {', '.join(TYPES)} can be read and written here")


def _check_columns(name: str, value: Any) -> None:
    for each in value:
        pattern, _, columns = str(each).rpartition(":")
        is_several = name.startswith("timestamp")
        if not pattern or not (re.fullmatch(r"\[[^\[\]]+\]", columns) if is_several else columns.strip()):
            form = "'regex:[col1|col2|...]'" if is_several else "'regex:columnName'"
            raise SettingError.invalid(name, each, f"Invalid format. Expected {form}")
        EachRegex()(name, [pattern.strip()])


def _check_never_negative(name: str, value: Any) -> None:
    if value is not None:
        Range(0)(name, value)


_NEVER_NEGATIVE = Check(_check_never_negative, "[0,...]")


def _check_prefix(name: str, value: Any) -> None:
    text = str(value).strip()
    if len(text) > LONGEST_TOPIC:
        reason = f"Topic prefix length must not exceed max topic name length, {LONGEST_TOPIC} chars"
        raise SettingError.invalid(name, value, reason)
    if not re.fullmatch(r"[a-zA-Z0-9._-]*", text):
        reason = "Topic prefix must not contain any character other than ASCII alphanumerics, '.', '_' and '-'."
        raise SettingError.invalid(name, value, reason)


_PREFIX = Check(_check_prefix, "beginning of a topic's name")
_ZONE = Check(_check_zone, "time zone")
_TYPES = Check(_check_types, f"list of {', '.join(TYPES)}")
_COLUMNS = Check(_check_columns, "list of regular expressions of tables, each with its columns")

CONNECTION: tuple[Setting, ...] = (
    Setting(
        name="connection.url",
        kind=Kind.STRING,
        rule=DatabaseUrl(),
        importance=Importance.HIGH,
        doc="The database: an URL of SQLAlchemy such as postgresql+psycopg://host/db or sqlite:///file.db, or of JDBC.",
    ),
    Setting(name="connection.user", kind=Kind.STRING, default="", doc="The user, if the URL names none."),
    Setting(name="connection.password", kind=Kind.PASSWORD, default=Password(""), doc="The user's password."),
)
_QUOTES = Setting(
    name="quote.sql.identifiers",
    kind=Kind.STRING,
    default="always",
    rule=OneOf(("always", "never", "ALWAYS", "NEVER")),
    doc="Whether names of tables and columns are quoted in statements.",
)
_DB_ZONE = Setting(
    name="db.timezone",
    kind=Kind.STRING,
    default="UTC",
    rule=_ZONE,
    doc="The time zone of the database's timestamps that have none, such as Europe/Berlin.",
)

SOURCE = ConfigDef(
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
        Setting(
            name="incrementing.column.name",
            kind=Kind.STRING,
            default="",
            doc="The column that grows; none: of a table, the first one that the database counts up.",
        ),
        Setting(
            name="timestamp.column.name",
            kind=Kind.LIST,
            default="",
            doc="The column of the last change; of several, the first one that is not null counts.",
        ),
        Setting(
            name="incrementing.column.mapping",
            kind=Kind.LIST,
            default="",
            rule=_COLUMNS,
            doc="The columns that grow, by table: regex:column, with table.include.list.",
        ),
        Setting(
            name="timestamp.columns.mapping",
            kind=Kind.LIST,
            default="",
            rule=_COLUMNS,
            doc="The columns of the last change, by table: regex:[column|column], with table.include.list.",
        ),
        Setting(
            name="validate.non.null",
            kind=Kind.BOOLEAN,
            default=True,
            doc="Refuse tables whose columns that find new rows may be null: such rows would never be read.",
        ),
        Setting(
            name="timestamp.initial",
            kind=Kind.LONG,
            default=None,
            doc="Read from this time on at the first start, in milliseconds since 1970; -1: from now on.",
        ),
        Setting(
            name="table.whitelist",
            kind=Kind.LIST,
            default="",
            importance=Importance.HIGH,
            doc="The tables; or a query.",
        ),
        Setting(
            name="table.blacklist",
            kind=Kind.LIST,
            default="",
            doc="All tables but these; looked up again while it runs.",
        ),
        Setting(
            name="table.include.list",
            kind=Kind.LIST,
            default="",
            rule=EachRegex(),
            doc="Regular expressions of schema.table; looked up again while it runs.",
        ),
        Setting(
            name="table.exclude.list",
            kind=Kind.LIST,
            default="",
            rule=EachRegex(),
            doc="Regular expressions of tables that table.include.list has and that are left out.",
        ),
        Setting(
            name="table.types",
            kind=Kind.LIST,
            default="TABLE",
            rule=_TYPES,
            doc="What is read: TABLE, VIEW, or both. Partitioned tables are tables, their partitions are not.",
        ),
        Setting(
            name="table.poll.interval.ms",
            kind=Kind.LONG,
            default=60_000,
            rule=Range(1),
            doc="Time between two looks for new and removed tables, with table.blacklist or table.include.list.",
        ),
        Setting(
            name="schema.pattern", kind=Kind.STRING, default=None, doc="Only tables of schemas like this: a% or a_."
        ),
        Setting(name="catalog.pattern", kind=Kind.STRING, default=None, doc="Only tables of databases like this."),
        Setting(name="query", kind=Kind.STRING, default="", doc="A SELECT, instead of tables."),
        Setting(
            name="query.masked",
            kind=Kind.PASSWORD,
            default=Password(""),
            doc="A SELECT, instead of tables, that is never shown.",
        ),
        Setting(name="query.suffix", kind=Kind.STRING, default="", doc="Stands at the end of each statement."),
        Setting(
            name="query.retry.attempts",
            kind=Kind.INT,
            default=-1,
            rule=Range(-1),
            doc="How often a query that fails is tried again; -1: for as long as it takes.",
        ),
        Setting(
            name="transaction.isolation.mode",
            kind=Kind.STRING,
            default="DEFAULT",
            rule=OneOf(ISOLATIONS),
            doc="The isolation of the transactions that read.",
        ),
        Setting(
            name="topic.prefix",
            kind=Kind.STRING,
            rule=_PREFIX,
            importance=Importance.HIGH,
            doc="The topic is this and the table's name; of a query, this alone.",
        ),
        Setting(name="poll.interval.ms", kind=Kind.INT, default=5000, rule=Range(0), doc="Time between two queries."),
        Setting(
            name="batch.max.rows",
            kind=Kind.INT,
            default=1000,
            rule=Range(1),
            doc="The most rows of a batch; a query's rows are read in as many batches as they need.",
        ),
        Setting(
            name="timestamp.delay.interval.ms",
            kind=Kind.LONG,
            default=0,
            rule=Range(0),
            doc="Rows younger than this are left for later, as transactions with earlier times may still commit.",
        ),
        _DB_ZONE,
        Setting(
            name="timestamp.granularity",
            kind=Kind.STRING,
            default="connect_logical",
            rule=OneOf(GRANULARITIES),
            doc="Timestamps as Connect's, to the millisecond, or as numbers or texts, to the microsecond.",
        ),
        Setting(
            name="numeric.mapping",
            kind=Kind.STRING,
            default=None,
            rule=OneOf((None, *NUMERICS)),
            doc="Decimals as Connect's Decimal (none), or as whole numbers and doubles where they fit.",
        ),
        Setting(
            name="numeric.precision.mapping",
            kind=Kind.BOOLEAN,
            default=False,
            doc="The older form of numeric.mapping=precision_only.",
        ),
        _QUOTES,
    ]
)

SINK = ConfigDef(
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
            name="batch.size",
            kind=Kind.INT,
            default=3000,
            rule=Range(0),
            doc="The largest number of records in one statement.",
        ),
        Setting(
            name="pk.mode",
            kind=Kind.STRING,
            default="none",
            rule=OneOf(("none", "kafka", "record_key", "record_value")),
            importance=Importance.HIGH,
            doc="The primary key: none, kafka (topic, partition, offset), the record's key, or fields of its value.",
        ),
        Setting(
            name="pk.fields",
            kind=Kind.LIST,
            default="",
            doc="The key's fields; none: all of the record's key or value. Or a plain key's column.",
        ),
        Setting(
            name="fields.whitelist",
            kind=Kind.LIST,
            default="",
            doc="The fields of the value that are written, besides those of the key; none: all.",
        ),
        Setting(name="table.name.format", kind=Kind.STRING, default="${topic}", doc="The table of a topic."),
        Setting(
            name="table.types",
            kind=Kind.LIST,
            default="TABLE",
            rule=_TYPES,
            doc="The kinds of tables that may be written to: TABLE, VIEW, or both.",
        ),
        Setting(name="auto.create", kind=Kind.BOOLEAN, default=False, doc="Create missing tables."),
        Setting(name="auto.evolve", kind=Kind.BOOLEAN, default=False, doc="Add columns that a table lacks."),
        Setting(name="delete.enabled", kind=Kind.BOOLEAN, default=False, doc="A null value deletes its key's row."),
        Setting(
            name="replace.null.with.default",
            kind=Kind.BOOLEAN,
            default=True,
            doc="A null is written as the default of its field's schema.",
        ),
        Setting(
            name="string.output.value.column.name",
            kind=Kind.STRING,
            default="record_value",
            doc="The column of values that are texts, not structs.",
        ),
        _DB_ZONE,
        Setting(
            name="date.timezone",
            kind=Kind.STRING,
            default="DB_TIMEZONE",
            rule=OneOf(("DB_TIMEZONE", "UTC")),
            doc="The time zone of dates: that of db.timezone, or UTC.",
        ),
        Setting(
            name="timestamp.fields.list",
            kind=Kind.LIST,
            default="",
            doc="Fields that hold timestamps as numbers or texts of digits.",
        ),
        Setting(
            name="timestamp.precision.mode",
            kind=Kind.STRING,
            default="microseconds",
            rule=OneOf(("microseconds", "nanoseconds")),
            doc="The unit of timestamp.fields.list.",
        ),
        _QUOTES,
        Setting(
            name="max.retries",
            kind=Kind.INT,
            default=None,
            rule=_NEVER_NEGATIVE,
            doc="Number of retries of a batch while the database cannot be reached; not set: no limit.",
        ),
        Setting(
            name="retry.backoff.ms",
            kind=Kind.INT,
            default=None,
            rule=_NEVER_NEGATIVE,
            doc="The wait before a batch is tried again; not set: the worker's.",
        ),
        Setting(
            name="trim.sensitive.log",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Leave the database's own text, which may contain values, out of messages.",
        ),
        Setting(
            name="exactly.once",
            kind=Kind.BOOLEAN,
            default=True,
            doc="Keep offsets in the table penstock_sink_offsets of the database, in the transaction of the rows.",
        ),
    ]
)
