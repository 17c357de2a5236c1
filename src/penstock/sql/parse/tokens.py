"""Tokens, positions and the words of the language."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = [
    "CLAUSES",
    "EXPRESSION_WORDS",
    "NOWHERE",
    "RESERVED",
    "START",
    "TokenKind",
    "TextPosition",
    "SqlToken",
    "quoted",
]


class TextPosition(NamedTuple):
    """A place in a text: line and column count from one, the offset in characters from zero."""

    line: int
    column: int
    offset: int


NOWHERE = TextPosition(0, 0, 0)
START = TextPosition(1, 1, 0)


class TokenKind(Enum):
    """The kinds of tokens, by how an error names them."""

    WORD = "a name"
    QUOTED = "a quoted name"
    STRING = "a string"
    INTEGER = "a whole number"
    DECIMAL = "a decimal number"
    DOUBLE = "a floating-point number"
    SYMBOL = "a symbol"
    VARIABLE = "a variable"
    END = "the end of the text"


class SqlToken(NamedTuple):
    """One token.

    Attributes:
        key: What the grammar compares: a word in upper case, a symbol itself, of all others the name of the kind.
        kind: Its kind.
        value: The name or string that it stands for: unquoted names in upper case, escapes resolved.
        at: Its first character.
        end: The offset behind its last character.
    """

    key: str
    kind: TokenKind
    value: str
    at: TextPosition
    end: int


# The words that are names only in quotes. All other words of the grammar (KEY, SOURCE, EMIT, DATE, ...) are also names.
RESERVED = frozenset(
    {
        *("ADVANCE", "ALL", "AND", "AS", "BETWEEN", "BY", "CASE", "CAST", "CREATE", "DELETE", "DESCRIBE"),
        *("DISTINCT", "DROP", "ELSE", "END", "EXISTS", "EXTENDED", "FALSE", "FROM", "FULL", "GRACE", "GROUP"),
        *("HAVING", "HOPPING", "IN", "INNER", "INSERT", "INTO", "IS", "JOIN", "LEFT", "LIKE", "LIMIT", "LIST"),
        *("NOT", "NULL", "ON", "OR", "OUTER", "PRINT", "RETENTION", "RIGHT", "SELECT", "SIZE", "STREAM", "STREAMS"),
        *("TABLE", "TERMINATE", "THEN", "TRUE", "TUMBLING", "VALUES", "WHEN", "WHERE", "WINDOW", "WITH", "WITHIN"),
    }
)
# Words that begin an expression of their own, so a column of this name is written in quotes.
EXPRESSION_WORDS = frozenset({"ARRAY", "MAP", "STRUCT"})
# Words that begin a clause, so without AS they are not an alias.
CLAUSES = frozenset({"EMIT", "OFFSET", "ORDER", "PARTITION"})


def quoted(name: str) -> str:
    """Return the name as it is written in a statement, in backticks where it must be.

    >>> quoted("ID"), quoted("id"), quoted("SELECT")
    ('ID', '`id`', '`SELECT`')
    """
    plain = name.isascii() and name.isidentifier() and name == name.upper()
    if plain and name not in RESERVED and name not in EXPRESSION_WORDS:
        return name
    return "`" + name.replace("`", "``") + "`"
