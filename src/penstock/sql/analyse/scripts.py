"""Scripts: statements in order against a catalog, all or nothing, with errors that show their line."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import SqlError, SqlSyntaxError
from penstock.sql.analyse.statement_errors import located
from penstock.sql.analyse.statements import Applied, apply
from penstock.sql.catalog import Catalog
from penstock.sql.parse import parse_script

__all__ = ["apply_script", "steps_of"]


def steps_of(text: str, catalog: Catalog) -> Iterator[Applied]:
    """Apply the statements of a script to a catalog one after the other.

    Raises:
        SqlError: A statement is refused; those before it have been applied.
    """
    for parsed in parse_script(text, catalog.variables):
        try:
            yield apply(parsed.statement, catalog, parsed.text)
        except SqlSyntaxError:
            raise
        except SqlError as error:
            raise located(text, error, parsed.at) from error


def apply_script(text: str, catalog: Catalog) -> tuple[Catalog, list[Applied]]:
    """Apply a script as a whole: the catalog behind it, and the effect of each statement.

    Raises:
        SqlError: A statement is refused; the catalog that was given is as before.

    >>> script = "CREATE STREAM a (v INT) WITH (kafka_topic='a', value_format='JSON');"
    >>> catalog, effects = apply_script(script + "CREATE STREAM b AS SELECT v + 1 AS w FROM a;", Catalog())
    >>> [effect.message for effect in effects], catalog.sources["B"].schema()
    (['Stream A created', 'Created query with ID CSAS_B_0'], '`W` INTEGER')
    """
    changed = catalog.copy()
    return changed, list(steps_of(text, changed))
