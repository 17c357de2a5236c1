"""The sources of FROM as steps, and durations of the grammar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.sql.analyse.fields import RowField
from penstock.sql.analyse.plans import Derived, Project, Read
from penstock.sql.analyse.properties import UNIT_MS
from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import BOUNDS, PSEUDO, Catalog, Source, SourceColumn
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s

__all__ = ["derived", "milliseconds", "read"]


def milliseconds(duration: s.Duration) -> int:
    """Return a duration in milliseconds."""
    return duration.amount * UNIT_MS[duration.unit]


def read(relation: s.Relation, catalog: Catalog) -> Read:
    """Return the step that reads a source.

    Raises:
        SqlError: There is no such source, or queries cannot read it.
    """
    if not isinstance(relation, s.NamedSource):
        raise refusal(relation.at, "Pull queries of tables don't support subqueries.", "Query a table made of it.")
    source = catalog.sources.get(relation.name)
    if source is None:
        raise refusal(relation.at, f"{relation.name} does not exist.", _instead(relation.name, catalog))
    return Read(**_parts(source, relation.alias or source.name))


def _instead(name: str, catalog: Catalog) -> str:
    """Return what to do about the name of a source that there is not."""
    if meant := did_you_mean(name, catalog.sources):
        return meant
    if not catalog.sources:
        return "No stream and no table is declared yet: CREATE STREAM or CREATE TABLE declares one over a topic."
    return "SHOW STREAMS and SHOW TABLES list what there is."


def derived(relation: s.Subquery, step: Project, columns: Sequence[SourceColumn], reads: tuple[Read, ...]) -> Derived:
    """Return the step that reads the results of a subquery.

    Args:
        relation: The subquery.
        step: Its last step.
        columns: The columns of its results.
        reads: Its sources.
    """
    source = Source(
        name=relation.alias,
        kind="TABLE" if step.is_table else "STREAM",
        columns=tuple(columns),
        topic="",
        key_format=step.key_format,
        value_format=reads[0].source.value_format,
        window=step.window,
    )
    return Derived(**_parts(source, relation.alias), above=step, reads=reads)


def _parts(source: Source, alias: str) -> dict[str, Any]:
    fields = [
        RowField(c.name, c.type, alias, "KEY" if c.is_key else "HEADER" if c.is_header else "VALUE")
        for c in source.columns
    ]
    fields += [RowField(name, kind, alias, "PSEUDO") for name, kind in PSEUDO.items()]
    if source.window is not None:
        fields += [RowField(name, kind, alias, "BOUND") for name, kind in BOUNDS.items()]
    return {
        "fields": tuple(fields),
        "key": tuple(column.type for column in source.keys),
        "key_format": source.key_format,
        "is_table": source.is_table,
        "window": source.window,
        "key_names": tuple((x.ColumnNode(column.name, alias),) for column in source.keys),
        "source": source,
        "alias": alias,
    }
