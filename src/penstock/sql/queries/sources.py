"""Source tables: CREATE SOURCE TABLE has no query that keeps it, so a pull query reads its topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.runtime.rows import RawRecord
from penstock.serde.headers import bound, configured
from penstock.serde.windowed import Window, Windowed
from penstock.sql.analyse.reads import read
from penstock.sql.catalog import Catalog, Source
from penstock.sql.compile import source_serdes
from penstock.sql.parse.statement_nodes import NamedSource
from penstock.sql.queries.plans import PushPlan, ResultRow
from penstock.sql.queries.push import TransientTask
from penstock.sql.queries.stores import MaterializedRow

__all__ = ["source_rows"]


def source_rows(source: Source, records: Iterable[RawRecord], settings: Mapping[str, Any]) -> Iterator[MaterializedRow]:
    """Yield the newest row of each key of a table's topic, in the order of the keys' bytes, as a store has them.

    Args:
        source: The table.
        records: All records of its topic.
        settings: Settings of an application, such as the URL of a schema registry.
    """
    step = read(NamedSource(source.name), Catalog({source.name: source}))
    indexes = {column.name: index for index, column in enumerate(source.keys)}
    origins = tuple(
        indexes.get(field.name) if field.role == "KEY" else field.name if field.role == "BOUND" else None
        for field in step.fields
    )
    plan = PushPlan(id=source.name, root=step, columns=source.columns, origins=origins, reads=(source,))
    newest: dict[bytes | None, MaterializedRow] = {}
    keys = bound(configured(source_serdes(source)[0], settings), source.topic, "key")
    with TransientTask(plan, settings) as task:
        for record in records:
            for row in task.feed(record):
                stored = _stored(source, row)
                data = keys.serialize(stored.key)
                if row.tombstone:
                    newest.pop(data, None)
                else:
                    newest[data] = stored
    yield from (row for _, row in sorted(newest.items()))


def _stored(source: Source, row: ResultRow) -> MaterializedRow:
    """Return a row of a source's columns, time, partition, offset and bounds as the entry of a store."""
    width = len(source.columns)
    pairs = list(zip(source.columns, row.values, strict=False))
    key: Any = tuple(value for column, value in pairs if column.is_key)
    if source.window is not None:
        key = Windowed(key, Window(*row.values[width + 3 : width + 5]))
    return MaterializedRow(key, tuple(value for column, value in pairs if not column.is_key), row.values[width] or 0)
