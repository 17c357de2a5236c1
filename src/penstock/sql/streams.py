"""SELECT as a `KStream` or `KTable` of a topology that is written in Python, with keys of one column as its values.

Inside a query each key is a tuple of its columns. Outside, in topics and in Python, a key of one column is the value of
that column, as in ksqlDB: `5`, not `(5,)`. The bytes of both are the same, so nothing is repartitioned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from penstock.api.handle import handle_of, value_serdes
from penstock.api.options import Materialized
from penstock.api.serdes import UNKNOWN
from penstock.api.stream import KStream
from penstock.api.table import KTable
from penstock.base.argument_checks import check_given
from penstock.errors import SqlError, SqlSyntaxError
from penstock.serde.base import BaseSerde
from penstock.serde.column import Column, RowColumn
from penstock.serde.windowed import SessionWindowedSerde, TimeWindowedSerde, Windowed, WindowedColumn
from penstock.sql.analyse import apply, located, refusal
from penstock.sql.analyse.plans import PlanStep
from penstock.sql.analyse.statements import library_of
from penstock.sql.analyse.transient import TransientAnalysis
from penstock.sql.catalog import Catalog
from penstock.sql.compile import compile_results
from penstock.sql.compile.serdes import RowsSerde, step_key_serde
from penstock.sql.compile.steps import types_of
from penstock.sql.formats import columns_of_model
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse import parse_script
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.statement_nodes import Query
from penstock.sql.types.sql_type import quoted
from penstock.topology.building.graph import ProcessorGraph
from penstock.topology.operations.definitions import SelectKey
from penstock.topology.operations.functions import ColumnFunction, Function

if TYPE_CHECKING:
    from penstock.api.builder import StreamsBuilder
    from penstock.sql.formats.format import Columns

__all__ = ["columns_of", "stream", "with_plain_keys"]


def with_plain_keys(rows: Any, step: PlanStep) -> Any:
    """Return the stream or table of a step's rows with plain keys; as it is, unless its keys have one column."""
    if len(step.key) != 1:
        return rows
    if not isinstance(rows, KTable):
        return _stream(rows, step)
    stream = _stream(rows.to_stream(), step)
    return stream.to_table(Materialized(value_serde=RowsSerde(types_of(step.fields))))


def _stream(rows: KStream[Any, Any], step: PlanStep) -> KStream[Any, Any]:
    above = handle_of(rows)
    graph = ProcessorGraph(
        name=above.builder.names.processor("KSTREAM-KEY-SELECT-"),
        operation=lambda: SelectKey(Function.wrap(_PlainKey(), verb="select_key", allowed=(2,))),
        changes_key=above.needs_repartition,  # a repartition topic that several share must not move above it
    )
    below = above.below(graph, keys=above.needs_repartition, values=False)
    tuples = step_key_serde(step) if above.key_serde in {None, UNKNOWN} else above.key_serde
    return KStream(replace(below, key_serde=_plain_serde(tuples)))


def _plain_serde(tuples: Any) -> Any:
    if isinstance(tuples, TimeWindowedSerde):
        return TimeWindowedSerde(_PlainKeySerde(tuples.inner), tuples.size_ms)
    if isinstance(tuples, SessionWindowedSerde):
        return SessionWindowedSerde(_PlainKeySerde(tuples.inner))
    return _PlainKeySerde(tuples)


class _PlainKey(ColumnFunction):
    """The plain key of a tuple of one column, within its window if it has one."""

    def __call__(self, key: Any, value: Any) -> Any:
        del value
        if isinstance(key, Windowed):
            plain = None if key.key is None else key.key[0]
            return None if plain is None else Windowed(plain, key.window)
        return None if key is None else key[0]

    def over_columns(self, *arguments: Column) -> Column | None:
        keys = arguments[0]
        if isinstance(keys, WindowedColumn):
            plain = _only(keys.keys)
            return None if plain is None else WindowedColumn(plain, keys.starts, keys.ends)
        return _only(keys)


def _only(keys: Column) -> Column | None:
    """Return the only column of keys, with nulls where a key is null; None: they come as tuples."""
    return keys.shown()[0] if isinstance(keys, RowColumn) else None


class _PlainKeySerde(BaseSerde):
    """A serde of tuples of one column as one of the column's values."""

    def __init__(self, tuples: Any) -> None:
        self._tuples = tuples

    @property
    def name(self) -> str:
        return str(self._tuples.name)  # it stands for the bytes, which are the same

    def serialize(self, value: Any) -> bytes | None:
        data: bytes | None = None if value is None else self._tuples.serialize((value,))
        return data

    def deserialize(self, data: bytes | None) -> Any:
        row = self._tuples.deserialize(data)
        return None if row is None else row[0]

    def encode(self, column: Column) -> pa.Array:
        return self._tuples.encode(RowColumn([column], len(column), column.null_mask()))

    def decode(self, data: pa.Array) -> Column:
        plain = _only(self._tuples.decode(data))
        return super().decode(data) if plain is None else plain


DECLARED = (s.CreateSource, s.CreateType)


class HasCatalog(Protocol):
    """A session, or what else has a catalog."""

    @property
    def catalog(self) -> Catalog:
        """Streams, tables, types, settings."""
        ...


def stream(
    builder: StreamsBuilder, text: str, session: HasCatalog | None = None
) -> KStream[Any, dict[str, Any]] | KTable[Any, dict[str, Any]]:
    """Add a SELECT to a topology, and go on with its result in Python.

    Args:
        builder: The builder of the topology.
        text: A SELECT; before it there may be CREATE STREAM, CREATE TABLE and CREATE TYPE that declare what it reads.
            A topic that the builder writes with a type as the serde of values (``value_serde=Order``) needs no columns.
        session: A session whose streams and tables it may read too.

    Returns:
        A `KTable` if the query groups or reads a table, else a `KStream`. Values are dictionaries of all columns by
        name. A key of one column is the value of that column, a key of several columns is a tuple of their values;
        keys are within `Windowed` if there are windows.

    Raises:
        SqlError: A statement is refused, or the last one is not a SELECT.

    >>> from penstock import Produced, StreamsBuilder, TopologyTestDriver
    >>> builder = StreamsBuilder()
    >>> hits = stream(builder, '''
    ...     CREATE STREAM hits (page STRING, ms INT) WITH (kafka_topic='hits', value_format='JSON');
    ...     SELECT UCASE(page) AS page, ms FROM hits WHERE ms > 100;
    ... ''')
    >>> texts = hits.map_values(lambda row: f"{row['PAGE']} took {row['MS']} ms")
    >>> texts.to("slow", Produced(value_serde="string"))
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.pipe_raw("hits", None, b'{"PAGE": "/home", "MS": 250}', 0, ())
    ...     driver.read_raw("slow").value
    b'/HOME took 250 ms'
    """
    check_given(text, str, "sql(): text", "a text", 'For example "SELECT * FROM clicks WHERE id > 3".', SqlError)
    catalog = Catalog()
    if session is not None:
        if not isinstance(getattr(session, "catalog", None), Catalog):
            kind = type(session).__name__
            raise SqlError(f"sql(): session must be a SqlSession, not {kind}", hint="Make one with SqlSession(config).")
        catalog = session.catalog.copy()
    catalog.typed.update(_typed_topics(builder))
    parsed = parse_script(text, catalog.variables)
    if not parsed:
        raise SqlError("there is no statement", hint='Give a SELECT, such as "SELECT * FROM clicks WHERE id > 3".')
    *declared, last = parsed
    for each in declared:
        try:
            if not isinstance(each.statement, DECLARED):
                raise refusal(each.statement.at, "before the SELECT there may be CREATE STREAM, TABLE and TYPE alone")
            apply(each.statement, catalog, each.text)
        except SqlError as error:
            raise _located(text, error, each.at) from error
    try:
        if not isinstance(last.statement, Query):
            raise refusal(last.statement.at, "the last statement must be a SELECT")
        analysed = TransientAnalysis(last.statement, "the result", catalog, library_of(catalog)).result()
    except SqlError as error:
        raise _located(text, error, last.at) from error
    rows = with_plain_keys(compile_results(analysed.step, builder, EvaluationErrors("SELECT")), analysed.step)
    selected: KStream[Any, dict[str, Any]] | KTable[Any, dict[str, Any]]
    selected = rows.map_values(_AsDictionary(tuple(field.name for field in analysed.step.fields)))
    return selected


def columns_of(kind: Any) -> str:
    """Return the columns of a dataclass or a model of pydantic, as a CREATE statement lists them.

    Times, decimals and UUIDs are STRING, as they are in JSON text; CAST and PARSE_TIMESTAMP read them.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Click:
    ...     page: str
    ...     ms: int
    ...     tags: list[str]
    >>> columns_of(Click)
    '`PAGE` STRING, `MS` BIGINT, `TAGS` ARRAY<STRING>'

    Args:
        kind: The type.

    Raises:
        SqlError: It has no fields, or none of a type that SQL has.
        ConfigError: A field has no JSON form.
    """
    from penstock.serde.model_serde import ModelCodec

    model = ModelCodec(kind)
    columns = columns_of_model(model)
    if not columns:
        raise SqlError(f"{model.name} has no columns", hint="Give a dataclass or a model of pydantic with fields.")
    return ", ".join(f"{quoted(name)} {column_type}" for name, column_type in columns)


def _typed_topics(builder: StreamsBuilder) -> dict[str, Columns]:
    """Return the columns of the topics that the builder reads or writes with a type as the serde of their values."""
    typed = {}
    for topic, serde in value_serdes(builder).items():
        model = getattr(serde, "value_model", None)
        if model is not None and (columns := columns_of_model(model)):
            typed[topic] = columns
    return typed


def _located(text: str, error: SqlError, at: Any) -> SqlError:
    return error if isinstance(error, SqlSyntaxError) else located(text, error, at)


class _AsDictionary:
    """Rows as dictionaries by column."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def __call__(self, value: tuple[Any, ...] | None) -> dict[str, Any] | None:
        return None if value is None else dict(zip(self._names, value, strict=True))
