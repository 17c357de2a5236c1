"""What a setting has switched off, or bounds: statements that need it are refused."""

from __future__ import annotations

from penstock.sql.analyse.statement_errors import refusal
from penstock.sql.catalog import Catalog
from penstock.sql.evaluate.trees import nodes_in
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import query_nodes as q
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.command_nodes import Statement
from penstock.sql.parse.nodes import Node

__all__ = ["check_enabled"]

INSERTS = "ksql.insert.into.values.enabled"
REPLACING = "ksql.create.or.replace.enabled"
FINAL = "ksql.suppress.enabled"
LAMBDAS = "ksql.lambdas.enabled"
HEADERS = "ksql.headers.columns.enabled"
MOST = "ksql.query.persistent.active.limit"
MAKES_QUERIES = s.CreateAs | s.InsertInto


def check_enabled(statement: Statement, catalog: Catalog) -> None:
    """Refuse a statement that needs what a setting has switched off.

    Raises:
        SqlError: It does; the message names the setting.
    """
    if isinstance(statement, s.InsertValues) and _is_off(INSERTS, catalog):
        raise _off(statement, "INSERT INTO ... VALUES is disabled", INSERTS)
    if isinstance(statement, s.CreateSource | s.CreateAs) and statement.or_replace and _is_off(REPLACING, catalog):
        raise _off(statement, "CREATE OR REPLACE is disabled", REPLACING)
    if isinstance(statement, s.CreateSource) and _is_off(HEADERS, catalog):
        headers = next((column for column in statement.columns if column.role in ("HEADER", "HEADERS")), None)
        if headers is not None:
            raise _off(headers, "columns of headers are disabled", HEADERS)
    if isinstance(statement, MAKES_QUERIES | q.Query):
        _check_query(statement, catalog)


def _check_query(statement: Node, catalog: Catalog) -> None:
    no_final, no_lambdas = _is_off(FINAL, catalog), _is_off(LAMBDAS, catalog)
    for node in nodes_in(statement) if no_final or no_lambdas else ():
        if no_final and isinstance(node, q.Query) and node.emit == "FINAL":
            raise _off(node, "EMIT FINAL is disabled", FINAL)
        if no_lambdas and isinstance(node, x.LambdaNode):
            raise _off(node, "lambda functions are disabled", LAMBDAS)
    most = catalog.setting(MOST)
    if isinstance(statement, MAKES_QUERIES) and most.isdigit() and len(catalog.queries) >= int(most):
        replaces = isinstance(statement, s.CreateAs) and statement.name in catalog.sources
        if not replaces:
            raise refusal(
                statement.at,
                f"{len(catalog.queries)} persistent queries run already, and {MOST} allows {most}.",
                "TERMINATE one, or set a higher limit.",
            )


def _is_off(name: str, catalog: Catalog) -> bool:
    return not catalog.flag(name, otherwise=True)


def _off(node: Node, what: str, name: str) -> Exception:
    return refusal(node.at, f"{what}, as {name} is false.", f"SET '{name}'='true'; enables it.")
