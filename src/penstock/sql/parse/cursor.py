"""A place in a list of tokens: the small words of which the grammar is written.

A text is parsed by a plain cursor. If that fails, it is parsed again by one that notes at each token what the grammar
tried there: so an error can say what was expected, and texts without errors do not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock.base.nearest_name import nearest_names, question
from penstock.sql.parse.dialects import OTHER_WORDS
from penstock.sql.parse.tokens import RESERVED, Snag, SqlToken, TextPosition, TokenKind, excerpt, listed, syntax_error

__all__ = ["MAX_DEPTH", "Cursor", "parsed"]

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
