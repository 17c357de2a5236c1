"""Which reader a database has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connect.connectors.sql_columns import ColumnRules
from penstock.connect.connectors.sql_mariadb import MariadbReader
from penstock.connect.connectors.sql_reading import DatabaseReader, PostgresReader, SqliteReader

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["reader_for"]


def reader_for(
    engine: Engine, rules: ColumnRules, *, quotes: bool = True, isolation: str = "DEFAULT"
) -> DatabaseReader:
    """Return the reader of a database."""
    kinds = {"postgresql": PostgresReader, "sqlite": SqliteReader}
    is_mariadb = engine.dialect.driver == "pymysql"
    kind = MariadbReader if is_mariadb else kinds.get(engine.dialect.name, DatabaseReader)
    return kind(engine, rules, quotes=quotes, isolation=isolation)
