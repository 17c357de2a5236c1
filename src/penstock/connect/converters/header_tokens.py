"""The tokens of a header's text: delimiters, and what stands between them."""

from __future__ import annotations

from penstock.base.java_text.blanks import is_blank, trim

__all__ = ["Tokens"]

DELIMITERS = frozenset(':,{}[]"')


class Tokens:
    """A text that is read token by token, and can be set back. Kafka's ``Values.Parser``."""

    __slots__ = ("_at", "_next", "previous", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.previous: str | None = None
        self._at = 0
        self._next: str | None = None

    def mark(self) -> int:
        """The position of the next token."""
        return self._at - len(self._next or "")

    def rewind(self, position: int) -> None:
        """Go back to a mark."""
        self._at = position
        self._next = self.previous = None

    def has_next(self) -> bool:
        """Whether there is another token."""
        return self._next is not None or self._at < len(self.text)

    def next(self) -> str:
        """Take the next token."""
        token = self._next if self._next is not None else self._consume()
        self._next = None
        self.previous = token
        return token

    def next_few(self, count: int) -> str | None:
        """Take so many tokens as one text; None, and nothing is taken, if there are fewer."""
        start = self.mark()
        for _ in range(count):
            if not self.has_next():
                self.rewind(start)
                return None
            self.next()
        return self.text[start : self._at]

    def take(self, expected: str) -> bool:
        """Take the next token if it is this one; blanks before and around it are passed over."""
        if self._next is None:
            if not self.has_next():
                return False
            self._next = self._consume()
        while is_blank(self._next) and self._at < len(self.text):
            self._next = self._consume()
        if trim(self._next) != expected:
            return False
        self._next = None
        return True

    def _consume(self) -> str:
        start, escaped = self._at, False
        while self._at < len(self.text):
            character = self.text[self._at]
            if character in DELIMITERS and not escaped:
                if start == self._at:
                    self._at += 1
                return self.text[start : self._at]
            escaped = character == "\\" and not escaped
            self._at += 1
        return self.text[start:]
