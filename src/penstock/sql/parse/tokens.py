"""Text to tokens with exact positions, the cursor over them, and syntax errors: place, caret, nearest keyword.

A text is parsed by a plain cursor. If that fails, it is parsed again by one that notes at each token what the grammar
tried there: so an error can say what was expected, and texts without errors do not pay for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, NoReturn, TypeVar

from penstock.base.nearest_name import nearest_names, question
from penstock.errors import SqlSyntaxError
from penstock.sql.parse.dialects import OTHER_WORDS

__all__ = [
    "CLAUSES",
    "EXPRESSION_WORDS",
    "NOWHERE",
    "RESERVED",
    "START",
    "Comment",
    "Cursor",
    "Snag",
    "SqlToken",
    "TextPosition",
    "TokenKind",
    "excerpt",
    "listed",
    "parsed",
    "quoted",
    "syntax_error",
    "tokenize",
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


WIDTH = 100  # characters of the line that are shown
BEFORE = 60  # of these, at most so many before the caret


@dataclass(frozen=True, slots=True)
class Snag:
    """A place where a text cannot be read on, and why.

    Attributes:
        at: The place.
        reason: What is wrong, as a sentence without its full stop.
        hint: What to do about it, if that can be said.
        found: The text at that place.
        expected: What could have stood there.
    """

    at: TextPosition
    reason: str
    hint: str = ""
    found: str = ""
    expected: tuple[str, ...] = ()


def syntax_error(text: str, snag: Snag) -> SqlSyntaxError:
    """Return the error for a snag in a text."""
    at = snag.at
    line, column = _line(text, at.offset)
    shown, caret = _window(line, min(column, len(line)))
    message = f"line {at.line}:{at.column}: syntax error: {snag.reason}\n  {shown}\n  {caret}"
    facts = {"line": at.line, "column": at.column, "offset": at.offset}
    return SqlSyntaxError(message, hint=snag.hint, **facts, found=snag.found, expected=snag.expected)


def _line(text: str, offset: int) -> tuple[str, int]:
    """Return the line that holds an offset, and the place of the offset in it."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    return text[begin : end if end >= 0 else len(text)].rstrip("\r"), offset - begin


def _window(line: str, column: int) -> tuple[str, str]:
    """Return the part of a line around a column, and a line below it with a caret; tabs and the like become blanks."""
    line = "".join(c if c.isprintable() else " " for c in line)
    begin = max(0, column - BEFORE) if len(line) > WIDTH else 0
    end = begin + WIDTH
    left, right = "..." if begin else "", "..." if end < len(line) else ""
    return f"{left}{line[begin:end]}{right}".rstrip(), " " * (len(left) + column - begin) + "^"


def listed(names: Iterable[str]) -> str:
    """Return names as a list in a sentence.

    >>> listed(["FROM"]), listed(["','", "FROM", "a name"])
    ('FROM', "',', FROM or a name")
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def excerpt(text: str) -> str:
    """Return the text in at most 40 characters, all of which can be printed."""
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= 40 else f"{text[:37]}..."


MAX_CHARACTERS = 4_000_000

_TOKEN = re.compile(
    r"""
      (?P<space>[ \t\r\f\v\n\ufeff\u00a0]+)
    | (?P<comment>--[^\n]*|/\*.*?\*/)
    | (?P<DOUBLE>(?:\d++\.?\d*+|\.\d+)[eE][+-]?\d+)
    | (?P<WORD>\d*[A-Za-z_][A-Za-z0-9_]*)
    | (?P<STRING>'(?:[^']|'')*')
    | (?P<QUOTED>`(?:[^`]|``)+`|"(?:[^"]|"")+")
    | (?P<DECIMAL>\d+\.\d*|\.\d+)
    | (?P<INTEGER>\d+)
    | (?P<SYMBOL>->|=>|:=|<>|!=|<=|>=|\|\||/(?!\*)|[-+*%=<>()\[\],.;])
    | (?P<VARIABLE>\$\{[^}\n]*\})
    """,
    re.VERBOSE | re.DOTALL,
)
_FRACTIONS = frozenset({TokenKind.DECIMAL, TokenKind.DOUBLE})
_TAILS = re.compile(r"[A-Za-z0-9_]*")


class Comment(NamedTuple):
    """A comment as it is written, and where."""

    text: str
    at: TextPosition


class Lexed(NamedTuple):
    """A text in tokens (the last one is its end), and its comments."""

    tokens: list[SqlToken]
    comments: list[Comment]


def tokenize(text: str, start: TextPosition = START) -> Lexed:
    """Cut a text into tokens.

    Args:
        text: One statement or many.
        start: The place of its first character in the whole; offsets count from zero all the same.

    Raises:
        SqlSyntaxError: A character that begins no token, a string, quoted name or comment without an end, a name
            that begins with a fraction.
    """
    if len(text) > MAX_CHARACTERS:
        raise syntax_error(
            text[:80], Snag(start, f"the text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are read")
        )
    tokens: list[SqlToken] = []
    comments: list[Comment] = []
    line, offset, length = start.line, 0, len(text)
    shift = start.column  # the column of a character is its offset + shift
    match = _TOKEN.match
    while offset < length:
        token_match = match(text, offset)
        if token_match is None:
            _refuse(text, TextPosition(line, offset + shift, offset))
        group, end = token_match.lastgroup, token_match.end()
        if group != "space":
            at = TextPosition(line, offset + shift, offset)
            if group == "comment":
                comments.append(Comment(token_match.group(), at))
            else:
                tokens.append(_token(group or "", token_match.group(), at, end))
                if tokens[-1].kind in _FRACTIONS and (tail := _TAILS.match(text, end)) and tail.group():
                    _refuse_tail(text, text[offset : tail.end()], at)
        if group not in ("WORD", "SYMBOL") and (breaks := text.count("\n", offset, end)):
            line += breaks
            shift = -text.rfind("\n", offset, end)
        offset = end
    tokens.append(SqlToken(TokenKind.END.value, TokenKind.END, "", TextPosition(line, offset + shift, offset), offset))
    return Lexed(tokens, comments)


def _token(group: str, text: str, at: TextPosition, end: int) -> SqlToken:
    if group == "WORD":
        upper = text.upper()
        return SqlToken(upper, TokenKind.WORD, upper, at, end)
    if group == "SYMBOL":
        return SqlToken(text, TokenKind.SYMBOL, text, at, end)
    kind = TokenKind[group]
    if kind is TokenKind.STRING or kind is TokenKind.QUOTED:
        mark = text[0]
        text = text[1:-1].replace(mark + mark, mark)
    return SqlToken(kind.value, kind, text, at, end)


def _refuse(text: str, at: TextPosition) -> NoReturn:
    character = text[at.offset]
    if character == "'":
        reason, hint = "the string has no end", "Close it with '; a quote inside of a string is written twice."
    elif character in '`"':
        empty = text.startswith(character * 2, at.offset)
        reason = "a quoted name is empty" if empty else "the quoted name has no end"
        hint = "Write a name between the quotes." if empty else f"Close it with {character}."
    elif text.startswith("/*", at.offset):
        reason, hint = "the comment has no end", "Close it with */."
    elif text.startswith("::", at.offset):
        reason, hint = "the character : does not belong here", "Types are changed by CAST(x AS STRING)."
    elif character == "$":
        reason, hint = "a variable is written ${name}", "Quote a name that has a dollar sign: `$name`."
    else:
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        reason, hint = f"the character {shown} does not belong here", "Quote a name that has such a character: `name`."
    raise syntax_error(text, Snag(at, reason, hint=hint, found=character))


def _refuse_tail(text: str, name: str, at: TextPosition) -> NoReturn:
    reason = f"a name cannot begin with a fraction: {name}"
    raise syntax_error(text, Snag(at, reason, hint=f"Quote it: `{name}`.", found=name))


MAX_DEPTH = 80  # of brackets, types and queries in each other: far below Python's limit of recursion

T = TypeVar("T")
# Reserved words that many a column is called by.
_NOUNS = frozenset(
    {"ADVANCE", "ALL", "EXTENDED", "GRACE", "LIST", "PRINT", "RETENTION", "SIZE", "STREAM", "TABLE", "VALUES"}
)


class Cursor:
    """A place in a list of tokens."""

    __slots__ = ("_depth", "index", "text", "token", "tokens")

    def __init__(self, text: str, tokens: list[SqlToken]) -> None:
        self.text = text
        self.tokens = tokens
        self.index = 0
        self.token = tokens[0]
        self._depth = 0

    def advance(self) -> SqlToken:
        """Step over the current token, which is returned."""
        token = self.token
        if token.kind is not TokenKind.END:
            self.index += 1
            self.token = self.tokens[self.index]
        return token

    def following(self, count: int = 1) -> str:
        """Return the key of a later token."""
        index = self.index + count
        return self.tokens[index].key if index < len(self.tokens) else TokenKind.END.value

    def at(self, key: str) -> bool:
        """Return whether the current token is this one."""
        return self.token.key == key

    def accept(self, key: str) -> bool:
        """Step over a token, if it is there."""
        if self.token.key != key:
            return False
        self.advance()
        return True

    def expect(self, key: str) -> SqlToken:
        """Step over a token, which must be there."""
        token = self.token
        if not self.accept(key):
            raise self.unexpected()
        return token

    def at_name(self, what: str = TokenKind.WORD.value) -> bool:
        """Return whether a name stands here, of a kind: a word that is not reserved, or a quoted one."""
        self.note(what)
        token = self.token
        return (token.kind is TokenKind.WORD and token.key not in RESERVED) or token.kind is TokenKind.QUOTED

    def name(self, what: str = TokenKind.WORD.value) -> str:
        """Read a name, for which an error says ``what``."""
        if not self.at_name(what):
            raise self.unexpected()
        return self.advance().value

    def string(self) -> str:
        """Read a string."""
        return self.expect(TokenKind.STRING.value).value

    def whole_number(self) -> int:
        """Read a whole number without sign."""
        token = self.expect(TokenKind.INTEGER.value)
        if len(token.value) > 18:
            raise self.refused(token.at, f"Invalid numeric literal: {token.value}", "At most 18 digits are read here.")
        return int(token.value)

    def one_of(self, *keys: str) -> str:
        """Step over one of several tokens."""
        for key in keys:
            if self.accept(key):
                return key
        raise self.unexpected()

    def source(self, token: SqlToken) -> str:
        """Return the text of a token as it is written."""
        return self.text[token.at.offset : token.end]

    def enter(self) -> None:
        """Go one level deeper, as far as the limit allows."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            reason = f"more than {MAX_DEPTH} levels in each other"
            raise self.refused(
                self.token.at, reason, "Split the statement, for example with WITH or a separate stream."
            )

    def leave(self) -> None:
        """Come back from a level."""
        self._depth -= 1

    def note(self, what: str) -> None:
        """Say that something else could have stood here."""

    def unexpected(self) -> Exception:
        """Return the error for a current token that fits nowhere."""
        return _UnexpectedError()

    def refused(self, at: TextPosition, reason: str, hint: str = "") -> Exception:
        """Return the error for a place that is refused for a reason of its own."""
        return syntax_error(self.text, Snag(at, reason, hint=hint))


class _UnexpectedError(Exception):
    """The current token fits nowhere; the other cursor finds out what would."""


class _NotingCursor(Cursor):
    """A cursor that notes what was tried at the last token that was reached."""

    __slots__ = ("_noted_at", "_tried")

    def __init__(self, text: str, tokens: list[SqlToken]) -> None:
        super().__init__(text, tokens)
        self._tried: dict[str, None] = {}
        self._noted_at = 0

    def note(self, what: str) -> None:
        if self.index != self._noted_at:
            self._tried = {}
            self._noted_at = self.index
        self._tried[what] = None

    def at(self, key: str) -> bool:
        self.note(key)
        return super().at(key)

    def accept(self, key: str) -> bool:
        self.note(key)
        return super().accept(key)

    def unexpected(self) -> Exception:
        token = self.token
        expected = tuple(self._tried) if self._noted_at == self.index else ()
        words = [key for key in expected if key.isupper()]
        shown = [_shown(key) for key in expected]
        source_text = self.source(token)
        reason = f"expected {listed(shown)}, found {excerpt(source_text) or token.kind.value}"
        hint = self._hint(token, words, frozenset(expected))
        return syntax_error(self.text, Snag(token.at, reason, hint=hint, found=source_text, expected=tuple(shown)))

    def _hint(self, token: SqlToken, words: list[str], expected: frozenset[str]) -> str:
        if token.kind is TokenKind.VARIABLE:
            variable = token.value[2:-1]
            return f"The variable {variable} has no value: DEFINE {variable} = '...';"
        before = self.tokens[self.index - 1] if self.index else token
        if other := _of_other_dialects(token, before, expected):
            return other
        if token.kind is TokenKind.WORD and (meant := nearest_names(token.key, words)):
            return question(*meant)
        if before.kind is TokenKind.WORD and before.key not in RESERVED and (meant := nearest_names(before.key, words)):
            return question(f"{meant[0]} instead of {self.source(before)}")
        name = TokenKind.WORD.value in expected or (token.key in _NOUNS and "an expression" in expected)
        if name and token.key in RESERVED:
            return f"{token.key} is a reserved word; as a name it is written `{token.key}`."
        return ""


def _of_other_dialects(token: SqlToken, before: SqlToken, expected: frozenset[str]) -> str:
    """Return the hint for what other dialects have here; the token before may have been taken as a name."""
    if token.key == before.key == "=":
        return "Equality has a single sign: x = 1."
    if token.key == "," and "JOIN" in expected:
        return "Join the sources: FROM a JOIN b WITHIN 1 HOUR ON a.id = b.id."
    if token.key == "WINDOW" and "HAVING" in expected:
        return "WINDOW stands after FROM and its joins, before WHERE and GROUP BY."
    name = before.key if before.kind is TokenKind.WORD and before.key not in RESERVED else ""
    return OTHER_WORDS.get(token.key) or OTHER_WORDS.get(name, "")


def _shown(key: str) -> str:
    if key == TokenKind.END.value:
        return "';'"
    return key if key.isupper() or key[0].isalpha() else f"'{key}'"


def parsed(text: str, tokens: list[SqlToken], rule: Callable[[Cursor], T]) -> T:
    """Apply a rule of the grammar to tokens, all of which it must use.

    Raises:
        SqlSyntaxError: The tokens do not follow the rule.
    """
    try:
        return _whole(Cursor(text, tokens), rule)
    except _UnexpectedError:
        pass
    return _whole(_NotingCursor(text, tokens), rule)


def _whole(cursor: Cursor, rule: Callable[[Cursor], T]) -> T:
    result = rule(cursor)
    cursor.expect(TokenKind.END.value)
    return result
