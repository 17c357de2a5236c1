"""Text to statements and back: lexer, Pratt parser, frozen nodes, errors with a caret, canonical text.

A walk along one statement: `scripts` cuts the text, puts in variables and picks the rule by the first word, `tokens`
makes tokens and walks over them, `statements`, `queries` and `expressions` read the rest, `*_nodes` come out,
`formatting` writes them again. Nothing is resolved here: names and types are as written.
"""

from __future__ import annotations

from penstock.sql.parse.expression_nodes import Expression, TypeNode
from penstock.sql.parse.formatting import format_expression, format_script, format_statement, format_type
from penstock.sql.parse.scripts import Parsed, parse_expression, parse_script, parse_statement, substitute
from penstock.sql.parse.statement_nodes import Query, Statement
from penstock.sql.parse.tokens import TextPosition

__all__ = [
    "Expression",
    "Parsed",
    "Query",
    "Statement",
    "TextPosition",
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
