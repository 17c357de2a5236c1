"""The filter language of messages: its text to a tree. Nothing of it is ever run as a program.

    value.status >= 500 and key ~ "10." and header.trace
    value.items[0].name in ("tea", "mate") or not has value.user

Names are ``key``, ``value``, ``header``, ``timestamp``, ``partition``, ``offset`` with ``.field`` and
``[index]`` behind them. Operators are ``= != < <= > >= ~ !~ in``, ``has``, ``and``, ``or``, ``not`` and
parentheses; ``~`` looks for a text within.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import ConfigError

__all__ = [
    "ROOTS",
    "All",
    "Any_",
    "Compare",
    "Filter",
    "Has",
    "Literal",
    "Negation",
    "Path",
    "parse_filter",
    "parse_path",
]

Literal = str | int | float | bool | None
ROOTS = ("key", "value", "header", "timestamp", "partition", "offset")
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~", "!~", "in")
_MOST_CHARACTERS = 2_000
_MOST_DEPTH = 50
_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])
    | "(?P<text>(?:[^"\\]|\\.)*)"
    | (?P<word>[A-Za-z_][\w-]*)
    | (?P<sign>!=|<=|>=|!~|[=<>~().,\[\]])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Path:
    """A place in a message: the root, then fields and indexes."""

    root: str
    steps: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Has:
    """Whether there is something other than null at a place."""

    path: Path


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of what is at a place with literals; only ``in`` has several."""

    path: Path
    operator: str
    literals: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """The opposite."""

    inner: Filter


@dataclass(frozen=True, slots=True)
class All:
    """All of them: ``and``."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Any_:  # noqa: N801 - Any is typing's
    """One of them: ``or``."""

    parts: tuple[Filter, ...]


Filter = Has | Compare | Negation | All | Any_


def parse_filter(text: str) -> Filter:
    """Parse a filter.

    >>> parse_filter("value.total > 100")
    Compare(path=Path(root='value', steps=('total',)), operator='>', literals=(100,))

    Raises:
        ConfigError: The text is not a filter; the message shows where.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(f"the filter has {len(text):,} characters", hint=f"It may have {_MOST_CHARACTERS:,}.")
    return _FilterParser(text).parsed()


def parse_path(text: str) -> Path:
    """Parse a place in a message.

    >>> parse_path('value.items[0]."unit price"')
    Path(root='value', steps=('items', 0, 'unit price'))

    Raises:
        ConfigError: The text is not a place.
    """
    try:
        return _FilterParser(text).place()
    except ConfigError as error:
        raise ConfigError(
            f"{text[:100]!r} is not a field of messages",
            hint="A field begins with key, value or header: value.card, value.items[0].name, header.authorization.",
        ) from error


class _FilterParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._at = 0
        self._depth = 0

    def _split(self) -> list[tuple[str, str, int]]:
        tokens, at = [], 0
        end = len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None:
                raise self._wrong(at, "this is not part of the language")
            kind = str(match.lastgroup)
            tokens.append((kind, match[kind], match.start(kind)))
            at = match.end()
        return tokens

    def parsed(self) -> Filter:
        if not self._tokens:
            raise self._wrong(0, "the filter is empty")
        condition = self._either()
        if self._at < len(self._tokens):
            raise self._wrong(self._place(), "nothing is expected here")
        return condition

    def place(self) -> Path:
        path = self._path()
        if self._at < len(self._tokens):
            raise self._wrong(self._place(), "nothing is expected here")
        return path

    def _either(self) -> Filter:
        parts = [self._both()]
        while self._takes("word", "or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Any_(tuple(parts))

    def _both(self) -> Filter:
        parts = [self._one()]
        while self._takes("word", "and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self) -> Filter:
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._wrong(self._place(), f"the filter nests deeper than {_MOST_DEPTH}")
        try:
            if self._takes("word", "not"):
                return Negation(self._one())
            if self._takes("sign", "("):
                inner = self._either()
                self._require(")")
                return inner
            if self._takes("word", "has"):
                return Has(self._path())
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Filter:
        path = self._path()
        kind, text, _ = self._peek()
        if text not in _OPERATORS or kind not in ("sign", "word"):
            return Has(path)
        self._at += 1
        if text != "in":
            return Compare(path, text, (self._literal(),))
        self._require("(")
        literals = [self._literal()]
        while self._takes("sign", ","):
            literals.append(self._literal())
        self._require(")")
        return Compare(path, text, tuple(literals))

    def _path(self) -> Path:
        kind, root, at = self._peek()
        if kind != "word" or root not in ROOTS:
            raise self._wrong(at, f"a name is expected: {', '.join(ROOTS)}")
        self._at += 1
        steps: list[str | int] = []
        while True:
            if self._takes("sign", "."):
                kind, name, at = self._peek()
                if kind not in ("word", "text"):
                    raise self._wrong(at, "a field's name is expected")
                steps.append(_unescaped(name) if kind == "text" else name)
                self._at += 1
            elif self._takes("sign", "["):
                kind, number, at = self._peek()
                if kind != "number" or not number.isdecimal():
                    raise self._wrong(at, "an index is expected, such as 0")
                steps.append(int(number))
                self._at += 1
                self._require("]")
            else:
                return Path(root, tuple(steps))

    def _literal(self) -> Literal:
        kind, text, at = self._peek()
        self._at += 1
        if kind == "text":
            return _unescaped(text)
        if kind == "number":
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        if kind == "word" and text in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[text]
        raise self._wrong(at, 'a value is expected: a number, "text", true, false or null')

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "", len(self._text))

    def _place(self) -> int:
        return self._peek()[2]

    def _takes(self, kind: str, text: str) -> bool:
        if self._peek()[:2] != (kind, text):
            return False
        self._at += 1
        return True

    def _require(self, sign: str) -> None:
        if not self._takes("sign", sign):
            raise self._wrong(self._place(), f"{sign} is expected")

    def _wrong(self, at: int, why: str) -> ConfigError:
        seen = f"{self._text[:at][-30:]} >>> {self._text[at:][:30]}"
        return ConfigError(
            f"the filter is wrong at character {at + 1}: {why}: {seen}",
            hint='For example: value.total > 100 and key ~ "u1" and has header.trace',
        )


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
