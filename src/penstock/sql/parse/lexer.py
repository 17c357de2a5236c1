"""From text to tokens, with exact positions."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from penstock.sql.parse.syntax_errors import Snag, syntax_error
from penstock.sql.parse.tokens import START, SqlToken, TextPosition, TokenKind

__all__ = ["MAX_CHARACTERS", "Comment", "Lexed", "tokenize"]

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
