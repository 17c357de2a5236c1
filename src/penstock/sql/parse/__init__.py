"""Text to statements and back: lexer, Pratt parser, frozen nodes, errors with a caret, canonical text.

A walk along one statement: `scripts` cuts the text and puts in variables, `lexer` makes tokens, `cursor` walks over
them, `statements` picks the rule by the first word, `definitions`, `commands`, `queries`, `expressions` and `types`
read the rest, `*_nodes` come out, `format_*` writes them again. Nothing is resolved here: names and types are as
written.
"""

from __future__ import annotations

from penstock.sql.parse.command_nodes import Statement
from penstock.sql.parse.expression_nodes import Expression
from penstock.sql.parse.format_expressions import format_expression, format_type
from penstock.sql.parse.format_statements import format_script, format_statement
from penstock.sql.parse.query_nodes import Query
from penstock.sql.parse.scripts import Parsed, parse_expression, parse_script, parse_statement, substitute
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.parse.type_nodes import TypeNode

__all__ = [
    "Expression",
    "Parsed",
    "TextPosition",
    "Query",
    "Statement",
    "TypeNode",
    "format_expression",
    "format_script",
    "format_statement",
    "format_type",
    "parse_expression",
    "parse_script",
    "parse_statement",
    "substitute",
]
