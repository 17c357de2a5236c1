"""The source that a query writes: its columns, topic, formats, windows."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import TopologyError
from penstock.sql.analyse.definitions import check_timestamp
from penstock.sql.analyse.formats import check_formats, wrapping
from penstock.sql.analyse.properties import Properties
from penstock.sql.analyse.queries import Analysed
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import Catalog, DataFormat, Source, SourceColumn
from penstock.sql.parse import statement_nodes as s
from penstock.sql.types.sql_type import quoted
from penstock.topology.building.names import check_name

__all__ = ["partitions_of", "sink_of"]


def partitions_of(found: Analysed, catalog: Catalog) -> int:
    """The partition count of the first source of a query, which its sink has unless another is given."""
    return catalog.topics.get(found.start.reads[0].source.topic, 1)


def sink_of(statement: s.CreateAs, given: Properties, found: Analysed, catalog: Catalog) -> Source:
    """The source of a CREATE ... AS: formats are those of the first source unless others are given.

    Raises:
        SqlError: The formats cannot hold the columns, or a property does not fit.
    """
    columns = found.columns
    first = found.start.reads[0].source
    has_key = any(column.is_key for column in columns)
    if not has_key:
        if given.text("KEY_FORMAT") is not None and given.format_name("KEY") != "NONE":
            raise refusal(
                given.at("KEY_FORMAT"), "KEY_FORMAT (the key format) is set, and the stream has no key columns."
            )
        key: DataFormat | None = DataFormat("NONE")
    else:
        default = given.default_formats(catalog)[0]
        inherited = found.step.key_format
        key = given.format("KEY", inherited if inherited.name != "NONE" else None, default)
    value = given.format("VALUE", first.value_format, None)
    assert key is not None and value is not None, "a source has formats"  # noqa: S101, PT018
    _check_schema(given, columns, (key, value), given.text("KAFKA_TOPIC") or statement.name, catalog)
    count = sum(not column.is_key for column in columns)
    value = wrapping(given.flag("WRAP_SINGLE_VALUE"), value, count, catalog, given.at("WRAP_SINGLE_VALUE"))
    check_formats(columns, key, value, statement.at)
    timestamp = given.timestamp()
    if timestamp is not None:
        check_timestamp(timestamp, columns, given.at("TIMESTAMP"))
    topic = given.text("KAFKA_TOPIC") or _topic_of(statement, catalog)
    return Source(
        name=statement.name,
        kind=statement.kind,
        columns=columns,
        topic=topic,
        key_format=key,
        value_format=value,
        window=found.step.window,
        timestamp=timestamp,
        partitions=given.number("PARTITIONS") or _number(catalog, "ksql.sink.partitions"),
        replicas=given.number("REPLICAS") or _number(catalog, "ksql.sink.replicas"),
    )


def _topic_of(statement: s.CreateAs, catalog: Catalog) -> str:
    """The topic that has the name of its stream or table."""
    topic = f"{catalog.setting('ksql.output.topic.name.prefix')}{statement.name}"
    try:
        return check_name(topic, "topic")
    except TopologyError as error:
        raise refusal(
            statement.at, f"{statement.name} cannot be a topic's name: {error.message}", "Add WITH (KAFKA_TOPIC='...')."
        ) from None


def _check_schema(
    given: Properties,
    columns: Sequence[SourceColumn],
    forms: tuple[DataFormat, DataFormat],
    topic: str,
    catalog: Catalog,
) -> None:
    """Refuse columns that the schema of KEY_SCHEMA_ID or VALUE_SCHEMA_ID has not, or in another order."""
    for part, form in zip(("KEY", "VALUE"), forms, strict=True):
        setting = f"{part}_SCHEMA_ID"
        if given.text(setting) is None or catalog.infer is None:
            continue
        held = [(column.name, column.type) for column in columns if column.is_key == (part == "KEY")]
        found = catalog.infer(topic, part.lower(), form)
        if found is None:
            continue  # several messages, or none of that name: the format says so when it writes
        if list(found)[: len(held)] != held:
            shown = ", ".join(f"{quoted(name)} {kind}" for name, kind in held if (name, kind) not in found)
            known = ", ".join(f"{quoted(name)} {kind}" for name, kind in found)
            raise refusal(
                given.at(setting),
                f"The {part.lower()} columns [{shown}] differ from the schema of the registry, [{known}], "
                "by type, name or order",
            )


def _number(catalog: Catalog, name: str) -> int | None:
    text = catalog.setting(name)
    return int(text) if text.isdigit() else None
