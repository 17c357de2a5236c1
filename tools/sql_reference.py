"""The reference of SQL from what the code knows: functions from their registries, statements from the parser.

Each statement has an example, which is parsed when the page is written; every kind of statement must have one.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable

from penstock.sql.analyse.properties import COMMON, OF_SOURCES
from penstock.sql.formats.formats import FORMATS
from penstock.sql.functions import ScalarFunction, scalar_functions
from penstock.sql.functions.aggregates import AggregateFunction, aggregate_functions
from penstock.sql.functions.builtin import table_functions
from penstock.sql.parse import format_statement, parse_statement, statement_nodes
from penstock.sql.parse.tokens import RESERVED

__all__ = ["functions_page", "statements_page"]

NOTE = "<!-- Written by tools/build_docs.py: change that, or what it reads. -->"

CREATE = """\
CREATE [OR REPLACE] [SOURCE] STREAM | TABLE [IF NOT EXISTS] name
  [(column type [KEY | PRIMARY KEY | HEADERS | HEADER('name')], ...)]
  WITH (property = value, ...)"""
SELECT = """\
SELECT expression [[AS] alias], ... | * | source.* | struct->*
  FROM source [[AS] alias]
  [[INNER | LEFT [OUTER] | RIGHT [OUTER] | FULL [OUTER]] JOIN source
    [WITHIN duration | (before, after) [GRACE PERIOD duration]] ON condition] ...
  [WINDOW TUMBLING (SIZE duration [, RETENTION duration] [, GRACE PERIOD duration])
        | HOPPING (SIZE duration, ADVANCE BY duration [, ...]) | SESSION (duration [, ...])]
  [WHERE condition] [GROUP BY expression, ...] [PARTITION BY expression, ...] [HAVING condition]
  [EMIT CHANGES | FINAL] [ORDER BY ...] [LIMIT n [OFFSET n]]"""
TYPES = """\
`T`, `K`, `V`, `R` and `S` stand for any type, which is the same wherever a signature has the letter; `...` for any
number of arguments; `(T) => R` for a lambda. Unless it says otherwise, a null argument makes the result null.
[Functions of your own](../python-functions.md) are added by decorators.
"""
WORDS = """\
Words in capitals stand as they are, in any case; `[ ]` may be left out, `|` separates choices, `...` repeats. A
statement ends with a semicolon.
"""

# For each kind of statement: its syntax, and an example.
STATEMENTS: dict[str, tuple[tuple[str, str], ...]] = {
    "CREATE STREAM and CREATE TABLE": (
        (
            CREATE,
            "CREATE STREAM clicks (id INT KEY, page STRING) WITH (kafka_topic='clicks', format='JSON', partitions=3)",
        ),
        (
            "CREATE [OR REPLACE] STREAM | TABLE [IF NOT EXISTS] name [WITH (...)] AS query",
            "CREATE TABLE visits AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page",
        ),
    ),
    "INSERT": (
        (
            "INSERT INTO name [(column, ...)] VALUES (expression, ...)",
            "INSERT INTO clicks (ROWTIME, id, page) VALUES (1000, 1, '/')",
        ),
        ("INSERT INTO name [WITH (query_id = 'id')] query", "INSERT INTO clicks SELECT id, page FROM others"),
    ),
    "SELECT": (
        (
            SELECT,
            "SELECT page, COUNT(*) AS n FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY page EMIT CHANGES",
        ),
        (
            "WITH name AS (query), ... query",
            "WITH slow AS (SELECT id FROM clicks WHERE id > 9) SELECT id FROM slow EMIT CHANGES",
        ),
    ),
    "DROP": (("DROP STREAM | TABLE [IF EXISTS] name [DELETE TOPIC]", "DROP STREAM IF EXISTS clicks DELETE TOPIC"),),
    "ALTER": (
        ("ALTER STREAM | TABLE name ADD [COLUMN] column type, ...", "ALTER STREAM clicks ADD COLUMN ms INT"),
        ("ALTER SYSTEM 'property' = 'value'", "ALTER SYSTEM 'ksql.sink.partitions' = '3'"),
    ),
    "Types": (
        ("CREATE TYPE [IF NOT EXISTS] name AS type", "CREATE TYPE place AS STRUCT<town STRING, zip INT>"),
        ("DROP TYPE [IF EXISTS] name", "DROP TYPE IF EXISTS place"),
    ),
    "Connectors": (
        (
            "CREATE SOURCE | SINK CONNECTOR [IF NOT EXISTS] name WITH (property = value, ...)",
            "CREATE SOURCE CONNECTOR files WITH ('connector.class' = 'x')",
        ),
        ("DROP CONNECTOR [IF EXISTS] name", "DROP CONNECTOR files"),
    ),
    "Queries that run": (
        ("TERMINATE | PAUSE | RESUME query | ALL", "PAUSE CTAS_VISITS_1"),
        ("EXPLAIN statement | query", "EXPLAIN CTAS_VISITS_1"),
    ),
    "Looking": (
        (
            "SHOW STREAMS | TABLES | [ALL] TOPICS | QUERIES | FUNCTIONS | PROPERTIES | TYPES | VARIABLES [EXTENDED]",
            "SHOW STREAMS",
        ),
        ("DESCRIBE name [EXTENDED] | FUNCTION name", "DESCRIBE FUNCTION UCASE"),
        ("DESCRIBE STREAMS | TABLES [EXTENDED]", "DESCRIBE STREAMS EXTENDED"),
        ("PRINT topic [FROM BEGINNING] [INTERVAL n] [LIMIT n]", "PRINT clicks FROM BEGINNING LIMIT 3"),
    ),
    "Settings and variables": (
        ("SET 'property' = 'value'", "SET 'auto.offset.reset' = 'earliest'"),
        ("UNSET 'property'", "UNSET 'auto.offset.reset'"),
        ("DEFINE name = 'value'", "DEFINE place = 'Oslo'"),
        ("UNDEFINE name", "UNDEFINE place"),
        ("RUN SCRIPT 'file'", "RUN SCRIPT 'sources.sql'"),
    ),
    "Checks": (
        (
            "ASSERT [NOT EXISTS] TOPIC name [WITH (...)] [TIMEOUT duration]",
            "ASSERT TOPIC clicks WITH (partitions=3) TIMEOUT 5 SECONDS",
        ),
        (
            "ASSERT [NOT EXISTS] SCHEMA [SUBJECT name] [ID n] [TIMEOUT duration]",
            "ASSERT SCHEMA SUBJECT 'clicks-value' TIMEOUT 5 SECONDS",
        ),
        (
            "ASSERT VALUES name (column, ...) VALUES (expression, ...)",
            "ASSERT VALUES visits (page, n) VALUES ('/', 1)",
        ),
        (
            "ASSERT NULL VALUES name (key, ...) KEY (expression, ...)",
            "ASSERT NULL VALUES visits (page) KEY ('/')",
        ),
        (
            "ASSERT STREAM | TABLE name [(column type, ...)] [WITH (...)]",
            "ASSERT TABLE visits (page STRING PRIMARY KEY, n BIGINT)",
        ),
    ),
}
FAMILIES = {
    "arrays": "Arrays",
    "maps": "Maps",
    "lambdas": "Lambdas",
    "strings": "Text",
    "regex": "Regular expressions",
    "masks": "Masks",
    "bytes": "Bytes",
    "maths": "Numbers",
    "geo": "Places",
    "dates": "Dates and times",
    "json": "JSON",
    "urls": "URLs",
    "conditional": "Nulls and choices",
}


def functions_page() -> str:
    """docs/sql/reference/functions.md."""
    scalars, aggregates, tables = list(scalar_functions()), list(aggregate_functions()), list(table_functions())
    parts = [
        NOTE,
        "# Functions\n",
        f"{len(scalars)} scalar, {len(aggregates)} aggregate and {len(tables)} table functions.\n",
        TYPES,
    ]
    for family in dict.fromkeys((*FAMILIES, *(function.family for function in scalars))):
        found = [function for function in scalars if function.family == family]
        if found:
            parts.append(f"## {FAMILIES.get(family, family.capitalize())}\n")
            parts += [_scalar(function) for function in found]
    parts.append("## Aggregates\n")
    parts += [_aggregate(function) for function in aggregates]
    parts.append("## Table functions\n")
    parts += [_scalar(function) for function in tables]
    return "\n".join(parts).rstrip() + "\n"


def _signatures(found: Iterable[object]) -> str:
    return "\n".join(("```sql", *map(str, found), "```"))


def _scalar(function: ScalarFunction) -> str:
    aliases = f" Also called {', '.join(f'`{alias}`' for alias in function.aliases)}." if function.aliases else ""
    lines = [f"### {function.name}\n", f"{function.meaning}{aliases}\n", _signatures(function.signatures), ""]
    if function.examples:
        lines += [f"- `{example.call}` is `{example.result}`" for example in function.examples]
        lines.append("")
    return "\n".join(lines)


def _aggregate(function: AggregateFunction) -> str:
    tables = "Also over tables." if function.can_undo else "Over streams only: it cannot undo a row."
    return "\n".join([f"### {function.name}\n", f"{function.meaning} {tables}\n", _signatures(function.signatures), ""])


def statements_page() -> str:
    """docs/sql/reference/statements.md."""
    parts = [
        NOTE,
        "# Statements\n",
        WORDS,
    ]
    seen = set()
    for title, forms in STATEMENTS.items():
        parts.append(f"## {title}\n")
        for syntax, example in forms:
            node = parse_statement(example, tests=True)
            seen.add(type(node))
            meaning = inspect.cleandoc(type(node).__doc__ or "").split("\n\n")[0].replace("``", "`").replace("\n", " ")
            parts += [f"```text\n{syntax}\n```\n", f"{meaning}\n", f"```sql\n{format_statement(node)};\n```\n"]
    missing = {kind.__name__ for kind in _kinds()} - {kind.__name__ for kind in seen}
    if missing:
        raise ValueError(f"tools/sql_reference.py: STATEMENTS lacks {', '.join(sorted(missing))}")
    parts += _properties()
    parts += [
        "## Reserved words\n",
        "They are names in backticks only:\n",
        ", ".join(f"`{w}`" for w in sorted(RESERVED)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _kinds() -> set[type]:
    return set(typing.get_args(statement_nodes.Statement))


def _properties() -> list[str]:
    both, sources = sorted(COMMON), sorted(OF_SOURCES - COMMON)
    rows = []
    for info in FORMATS.values():
        own = ", ".join(f"`{name}`" for name in sorted(info.properties)) or "none"
        rows.append(f"| {info.name} | {'yes' if info.infers else 'no'} | {own} |")
    return [
        "## Properties of WITH\n",
        f"{_names(both)}; without a query also {_names(sources)}.\n",
        "| Format | Columns from a registry | Properties, with KEY_ or VALUE_ before them |",
        "| --- | --- | --- |",
        *rows,
        "",
    ]


def _names(found: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in found)
