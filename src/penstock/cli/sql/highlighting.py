"""Colours of statements."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pygments import token
from pygments.lexer import RegexLexer, words

from penstock.sql.keywords import KEYWORDS, TYPES

__all__ = ["SqlLexer"]


class SqlLexer(RegexLexer):  # type: ignore[misc] # Pygments has no types
    """A lexer of Penstock SQL for Pygments."""

    name = "Penstock SQL"
    flags = re.IGNORECASE
    tokens: ClassVar[dict[str, Any]] = {
        "root": [
            (r"\s+", token.Whitespace),
            (r"--[^\n]*", token.Comment.Single),
            (r"/\*.*?\*/", token.Comment.Multiline),
            (r"'(?:[^']|'')*'?", token.String),
            (r"`(?:[^`]|``)*`?|\"(?:[^\"]|\"\")*\"?", token.Name),
            (r"\$\{[^}]*\}?", token.Name.Variable),
            (r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", token.Number),
            (words(TYPES, suffix=r"\b"), token.Keyword.Type),
            (words(KEYWORDS, suffix=r"\b"), token.Keyword),
            (r"[A-Za-z_]\w*(?=\s*\()", token.Name.Function),
            (r"[A-Za-z_]\w*", token.Name),
            (r"->|=>|<>|!=|<=|>=|\|\||[-+*/%=<>]", token.Operator),
            (r".", token.Punctuation),
        ]
    }
