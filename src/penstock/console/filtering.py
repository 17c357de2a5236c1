"""Filters of messages: their language, a search in the bytes of whole columns first, and their application.

value.status >= 500 and key ~ "10." and header.trace
    value.items[0].name in ("tea", "mate") or not has value.user

Names are ``key``, ``value``, ``header``, ``timestamp``, ``partition``, ``offset`` with ``.field`` and
``[index]`` behind them. Operators are ``= != < <= > >= ~ !~ in``, ``has``, ``and``, ``or``, ``not`` and
parentheses; ``~`` looks for a text within.

Most records that a search looks at are not wanted. What a filter asks for is in the bytes of a record that meets it: a
text stands there as it is, or escaped, and a number behind the name of its field. So a search runs at the speed of a
scan. Where the bytes cannot tell, a record counts as one that may meet the filter; the filter itself decides.
"""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from penstock.base.json_depth import MOST_DEPTH, depth_of
from penstock.base.late_polars import pl
from penstock.errors import ConfigError
from penstock.serde.plain_json import plain, text_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ROOTS",
    "All",
    "Any_",
    "Columns",
    "Compare",
    "Filter",
    "Has",
    "Literal",
    "Negation",
    "Path",
    "Selection",
    "candidates",
    "document_in",
    "matches",
    "parse_filter",
    "parse_path",
]

# The language

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
    """The condition that there is something other than null at a place."""

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


# The search in the bytes of columns

_NUMBER = r"(-?[0-9][0-9.eE+-]*)"
_EXACT = 1e-9  # numbers in a text may be rounded
_SPANNING = frozenset('"\\:,{}[]')  # characters by which a text may span several parts of a document
_DIGITS = frozenset("0123456789.eE+-_")  # of which a number may consist, as it is written anew
_COMPARE: dict[str, Callable[[pl.Series, float], pl.Series]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Columns:
    """The columns of records that bytes are looked for in.

    Args:
        records: The records, as a log returns them.
        partition: Their partition.
        formats: The names of the serdes of key and value.
        opaque: Roots whose bytes say nothing, such as those with hidden fields.
    """

    def __init__(
        self, records: pa.RecordBatch, partition: int, formats: tuple[str, str], opaque: Collection[str] = ()
    ) -> None:
        self.number = records.num_rows
        self.partition = partition
        self.formats = dict(zip(("key", "value"), formats, strict=True))
        self.opaque = frozenset(opaque)
        self.records = records
        self._bytes: dict[str, pl.Series] = {}
        self._escaped: dict[str, pl.Series] = {}

    def numbers(self, name: str) -> pl.Series:
        """Return the offsets or timestamps."""
        return _series(self.records.column(name))

    def data(self, root: str) -> pl.Series:
        """Return the bytes of the keys or values."""
        if root not in self._bytes:
            self._bytes[root] = _series(self.records.column(root))
        return self._bytes[root]

    def contain(self, root: str, text: bytes) -> pl.Series:
        """Return which keys or values contain bytes; null counts, as the filter decides what it means."""
        return self.data(root).bin.contains(text).fill_null(value=True)

    def escaped(self, root: str) -> pl.Series:
        """Return which keys or values may have characters that are written in another way."""
        if root not in self._escaped:
            self._escaped[root] = self.contain(root, b"\\")
        return self._escaped[root]


def candidates(condition: Filter, columns: Columns) -> NDArray[np.bool_]:
    """Return which records may meet a filter; all others do not.

    >>> import pyarrow as pa
    >>> from penstock.console.filtering import parse_filter
    >>> from penstock.log.base import RECORD_SCHEMA
    >>> rows = [{"offset": n, "timestamp": 0, "value": b'{"total": %d}' % n} for n in range(4)]
    >>> records = pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)
    >>> candidates(parse_filter("value.total >= 2"), Columns(records, 0, ("string", "json"))).tolist()
    [False, False, True, True]
    """
    rows = _may_meet(condition, columns)
    return np.ones(columns.number, np.bool_) if rows is None else rows.to_numpy().astype(np.bool_)


def _may_meet(condition: Filter, columns: Columns) -> pl.Series | None:
    """Return which records may meet a filter; None: the bytes cannot tell."""
    if isinstance(condition, All):
        deciding = [rows for part in condition.parts if (rows := _may_meet(part, columns)) is not None]
        return functools.reduce(operator.and_, deciding) if deciding else None
    if isinstance(condition, Any_):
        parts = [_may_meet(part, columns) for part in condition.parts]
        deciding = [rows for rows in parts if rows is not None]
        return functools.reduce(operator.or_, deciding) if len(deciding) == len(parts) else None
    if isinstance(condition, Has):
        return _has(condition.path, columns)
    return _compares(condition, columns) if isinstance(condition, Compare) else None


def _has(path: Path, columns: Columns) -> pl.Series | None:
    field = path.steps[-1] if path.steps else None
    if not _is_json(path, columns) or not isinstance(field, str):
        return None
    return columns.contain(path.root, f'"{field}"'.encode()) | columns.escaped(path.root)


def _compares(comparison: Compare, columns: Columns) -> pl.Series | None:
    path, literals = comparison.path, comparison.literals
    if path.root in ("offset", "timestamp", "partition"):
        return None if path.steps else _places(comparison, columns)
    if comparison.operator in ("!=", "!~") or path.root not in columns.formats or path.root in columns.opaque:
        return None
    if all(isinstance(literal, str) and literal for literal in literals):
        return _column_texts(comparison, columns)
    (literal, *others) = literals
    if others or isinstance(literal, bool) or not isinstance(literal, int | float) or not _is_json(path, columns):
        return None
    return _numbers(comparison, literal, columns)


def _places(comparison: Compare, columns: Columns) -> pl.Series | None:
    """Compare offsets, times or the partition, which are numbers as they stand."""
    literals = [each for each in comparison.literals if isinstance(each, int | float) and not isinstance(each, bool)]
    if len(literals) < len(comparison.literals) or comparison.operator not in (*_COMPARE, "=", "in"):
        return None
    name = comparison.path.root
    values = pl.Series([columns.partition] * columns.number) if name == "partition" else columns.numbers(name)
    if comparison.operator in _COMPARE:
        return _COMPARE[comparison.operator](values, literals[0])
    return functools.reduce(operator.or_, (values == literal for literal in literals))


def _column_texts(comparison: Compare, columns: Columns) -> pl.Series | None:
    """Look for the literals among the bytes."""
    root, literals = comparison.path.root, [str(literal) for literal in comparison.literals]
    if comparison.operator not in ("=", "in", "~"):
        return None
    is_json = _is_json(comparison.path, columns)
    if not is_json and columns.formats[root] != "string":
        return None
    if is_json and comparison.operator == "~" and not _stays_whole(literals[0]):
        return None
    rows: pl.Series = functools.reduce(operator.or_, (columns.contain(root, each.encode()) for each in literals))
    return rows | columns.escaped(root) if is_json else rows


def _stays_whole(text: str) -> bool:
    """Return whether a text that is in a part of a document is in its bytes too, however numbers are written."""
    return not _SPANNING & set(text) and not set(text) <= _DIGITS


def _numbers(comparison: Compare, literal: float, columns: Columns) -> pl.Series | None:
    """Compare the number behind the name of the field, if the bytes have that name once."""
    field = comparison.path.steps[-1] if comparison.path.steps else None
    if not isinstance(field, str) or comparison.operator not in (*_COMPARE, "=") or re.search(r'["\\]', field):
        return None
    root, name = comparison.path.root, f'"{field}"'
    try:
        texts = columns.data(root).cast(pl.String)
    except pl.exceptions.PolarsError:  # not UTF-8, somewhere
        return None
    numbers = texts.str.extract(rf"{re.escape(name)}\s*:\s*{_NUMBER}", 1).cast(pl.Float64, strict=False)
    slack = abs(literal) * _EXACT
    if comparison.operator == "=":
        fits = (numbers - literal).abs() <= slack
    else:
        fits = _COMPARE[comparison.operator](
            numbers, literal + (slack if comparison.operator.startswith("<") else -slack)
        )
        fits = fits | (numbers == literal)
    times = texts.str.count_matches(name, literal=True)
    unknown = (times > 1) | (numbers.is_null() & (times > 0))
    return fits.fill_null(value=False) | unknown.fill_null(value=True) | columns.escaped(root)


def _is_json(path: Path, columns: Columns) -> bool:
    """Return whether the place is in JSON: also in a text, in which the filter looks for fields."""
    is_json = columns.formats.get(path.root) == "json" or (columns.formats.get(path.root) == "string" and path.steps)
    return bool(is_json) and path.root not in columns.opaque


def _series(column: pa.Array) -> pl.Series:
    series = pl.from_arrow(column)
    assert isinstance(series, pl.Series)  # noqa: S101 - an array is a series
    return series


# The filter itself


def matches(condition: Filter, message: Mapping[str, Any]) -> bool:
    """Return whether a message meets a filter; what is not there, or of another type, meets no comparison.

    >>> from penstock.console.filtering import parse_filter
    >>> matches(parse_filter('value.user = "ann" and value.total > 10'), {"value": {"user": "ann", "total": 12}})
    True

    Args:
        condition: The filter.
        message: Key, value, headers (name, bytes), timestamp, partition, offset.
    """
    if isinstance(condition, Negation):
        return not matches(condition.inner, message)
    if isinstance(condition, All):
        return all(matches(part, message) for part in condition.parts)
    if isinstance(condition, Any_):
        return any(matches(part, message) for part in condition.parts)
    if isinstance(condition, Has):
        return any(each is not None for each in _found(condition.path, message))
    return any(_fits(each, condition) for each in _found(condition.path, message))


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "key": plain(message["key"]), "value": plain(message["value"])}


def _found(path: Path, message: Mapping[str, Any]) -> list[Any]:
    """Return what is at a place; a header may be there several times."""
    if path.root == "header":
        headers = message.get("headers") or ()
        if not path.steps:
            return [name for name, _ in headers]
        return [None if value is None else text_of(value) for name, value in headers if name == path.steps[0]]
    part: Any = message.get(path.root)
    if path.steps and isinstance(part, str | bytes):  # a text in which there may be JSON
        part = _document(part)
    for step in path.steps:
        if isinstance(step, str) and isinstance(part, Mapping):
            if step not in part:
                return []
            part = part[step]
        elif isinstance(step, int) and isinstance(part, Sequence) and not isinstance(part, str | bytes):
            if step >= len(part):
                return []
            part = part[step]
        else:
            return []
    return [part]


def document_in(value: Any) -> Any:
    """Return the object or list that a value is or has as JSON; None if it is none, or too deep.

    >>> document_in('{"a": 1}'), document_in({"a": 2}), document_in("plain")
    ({'a': 1}, {'a': 2}, None)
    """
    if isinstance(value, str | bytes):
        return _document(value)
    return value if isinstance(value, Mapping | list) else None


def _document(text: str | bytes) -> Any:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if data.lstrip()[:1] not in (b"{", b"[") or depth_of(data) > MOST_DEPTH:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _fits(part: Any, comparison: Compare) -> bool:
    if comparison.operator == "in":
        return any(_same(part, literal) for literal in comparison.literals)
    (literal,) = comparison.literals
    if comparison.operator == "=":
        return _same(part, literal)
    if comparison.operator == "!=":
        return not _same(part, literal)
    if comparison.operator in ("~", "!~"):
        return (_words(literal) in _words(part)) == (comparison.operator == "~")
    if isinstance(literal, bool) or isinstance(part, bool) or literal is None:
        return False
    if isinstance(literal, str):
        return isinstance(part, str) and _ordered(part, literal, comparison.operator)
    return isinstance(part, int | float) and _ordered(part, literal, comparison.operator)


def _same(part: Any, literal: Literal) -> bool:
    if isinstance(part, bytes):
        part = text_of(part)
    return bool(isinstance(part, bool) == isinstance(literal, bool) and part == literal)


def _ordered(a: Any, b: Any, operator: str) -> bool:
    return bool({"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator])


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return text_of(value)
    return json.dumps(value, ensure_ascii=False, default=plain)


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions that messages are selected by; by default all are.

    Attributes:
        wanted: A filter.
        text: A plain text that is in the key, the value or a header.
        key: The bytes of the key.
    """

    wanted: Filter | None = None
    text: str = ""
    key: bytes | None = None

    @classmethod
    def of(cls, filter_text: str, text: str = "", key: bytes | None = None) -> Self:
        """Parse a filter; an empty one is none.

        Raises:
            ConfigError: It is not a filter.
        """
        return cls(parse_filter(filter_text) if filter_text.strip() else None, text, key)

    @property
    def is_everything(self) -> bool:
        """Whether every message is selected."""
        return self == type(self)()

    def candidates(self, columns: Columns) -> pa.RecordBatch:
        """Return the records that may be selected, by their bytes; all others are not."""
        records = columns.records
        keep = np.ones(columns.number, np.bool_)
        if self.wanted is not None:
            keep &= candidates(self.wanted, columns)
        if self.text:
            within = Any_(tuple(Compare(Path(root), "~", (self.text,)) for root in ("key", "value")))
            has_headers = np.asarray(records.column("headers").is_valid())
            keep &= candidates(within, columns) | has_headers
        if self.key is not None:
            keep &= columns.data("key").eq_missing(self.key).to_numpy()
        return records if keep.all() else records.filter(pa.array(keep))

    def among(self, messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the selected ones of messages whose keys and values need not have JSON's types."""
        for message in messages:
            shown = message if self.wanted is None else _plain(message)
            if self.holds(shown):
                yield message

    def holds(self, message: Mapping[str, Any]) -> bool:
        """Return whether a message is selected."""
        if self.text and not any(self.text in each for each in _texts(message)):
            return False
        return self.wanted is None or matches(self.wanted, message)


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a message that a plain text is looked for in."""
    for part in (message["key"], message["value"]):
        if part is not None:
            yield _words(part)
    for name, value in message.get("headers") or ():
        yield name
        if value is not None:
            yield text_of(value)
