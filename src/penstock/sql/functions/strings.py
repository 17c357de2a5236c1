"""Functions of text, several of them of bytes too. Characters are Unicode's, where Java counts UTF-16 units."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlType, SqlValueError
from penstock.sql.types.sql_type import base_name
from penstock.sql.types.texts import text_function

__all__ = ["STRINGS"]

STRINGS = Family("strings")
MAX_LENGTH = 100_000_000  # of a padded text
PLAIN = ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "DECIMAL", "STRING")  # what ARRAY_JOIN joins
BLANKS = "".join(map(chr, range(33)))
ESCAPE = re.compile(r"\\(?:u+\+?([0-9a-fA-F]{4})|([0-3]?[0-7]{1,2})|(.?))", re.DOTALL)
BROKEN = re.compile(r"(?<!\\)(?:\\\\)*\\u+(?!u)\+?(?![0-9a-fA-F]{4})")
CONTROLS = {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}
WORDS = re.compile("[^ \t\n\x0b\f\r]+[ \t\n\x0b\f\r]*")


@STRINGS.scalar("UCASE(text STRING) STRING", examples=[("UCASE('abc')", "'ABC'")])
def ucase(text: str) -> str:
    """A text in upper case."""
    return text.upper()


@STRINGS.scalar("LCASE(text STRING) STRING", examples=[("LCASE('ABC')", "'abc'")])
def lcase(text: str) -> str:
    """A text in lower case."""
    return text.lower()


@STRINGS.scalar("INITCAP(text STRING) STRING", examples=[("INITCAP('the qUICK fox')", "'The Quick Fox'")])
def initcap(text: str) -> str:
    """A text with each word's first letter in upper case, the others in lower case, without blanks before it."""
    return "".join(word[0].upper() + word[1:] for word in WORDS.findall(text.lower()))


@STRINGS.scalar("LEN(text STRING) INTEGER", "LEN(text BYTES) INTEGER", examples=[("LEN('abc')", "3")])
def length(text: str | bytes) -> int:
    """The number of characters, or of bytes."""
    return len(text)


@STRINGS.scalar("TRIM(text STRING) STRING", examples=[("TRIM('  a b ')", "'a b'")])
def trim(text: str) -> str:
    """A text without blanks and control characters at both ends."""
    return text.strip(BLANKS)


@STRINGS.scalar(
    "REPLACE(text STRING, old STRING, new STRING) STRING", examples=[("REPLACE('banana', 'an', 'AN')", "'bANANa'")]
)
def replace(text: str, old: str, new: str) -> str:
    """A text with all occurrences of a part replaced."""
    return text.replace(old, new)


@STRINGS.scalar(
    "SUBSTRING(text STRING, start INTEGER) STRING",
    "SUBSTRING(text BYTES, start INTEGER) BYTES",
    examples=[("SUBSTRING('stream', 3)", "'ream'"), ("SUBSTRING('stream', -2)", "'am'")],
)
def substring(text: str | bytes, start: int) -> str | bytes:
    """The part of a text from a position (1 is the first, -1 the last), up to its end or of a length."""
    return text[_start(text, start) :]


@STRINGS.scalar(
    "SUBSTRING(text STRING, start INTEGER, length INTEGER) STRING",
    "SUBSTRING(text BYTES, start INTEGER, length INTEGER) BYTES",
    examples=[("SUBSTRING('stream', 2, 3)", "'tre'")],
)
def substring_of(text: str | bytes, start: int, length: int) -> str | bytes:
    first = _start(text, start)
    return text[first : first + max(length, 0)]


def _start(text: str | bytes, start: int) -> int:
    return max(start - 1, 0) if start >= 0 else max(len(text) + start, 0)


@STRINGS.scalar(
    "INSTR(text STRING, part STRING) INTEGER",
    "INSTR(text STRING, part STRING, start INTEGER) INTEGER",
    "INSTR(text STRING, part STRING, start INTEGER, occurrence INTEGER) INTEGER",
    nulls=True,
    examples=[("INSTR('corporate floor', 'or')", "2"), ("INSTR('corporate floor', 'or', -3, 2)", "2")],
)
def instr(text: str | None, part: str | None, start: int | None = 1, occurrence: int | None = 1) -> int | None:
    """The position of a part in a text, 0 if it is not there; a negative start searches backwards from the end."""
    if start is None or occurrence is None:
        return None
    if text is None or part is None or start == 0 or occurrence < 1 or abs(start) > len(text):
        return 0
    if not part:
        return start if start > 0 else len(text) + start + 2
    at = start - 2 if start > 0 else len(text) + start + 1
    for _ in range(occurrence):
        at = text.find(part, at + 1) if start > 0 else text.rfind(part, 0, max(at - 1 + len(part), 0))
        if at < 0:
            return 0
    return at + 1


@STRINGS.scalar(
    "LPAD(text STRING, length INTEGER, padding STRING) STRING",
    "LPAD(text BYTES, length INTEGER, padding BYTES) BYTES",
    examples=[("LPAD('7', 3, '0')", "'007'"), ("LPAD('stream', 3, '0')", "'str'")],
)
def lpad(text: Any, length: int, padding: Any) -> Any:
    """A text of exactly a length: filled up on the left, or cut off on the right."""
    return None if _unpaddable(length, padding) else _filling(text, length, padding) + text[:length]


@STRINGS.scalar(
    "RPAD(text STRING, length INTEGER, padding STRING) STRING",
    "RPAD(text BYTES, length INTEGER, padding BYTES) BYTES",
    examples=[("RPAD('ab', 5, 'xy')", "'abxyx'")],
)
def rpad(text: Any, length: int, padding: Any) -> Any:
    """A text of exactly a length: filled up or cut off on the right."""
    return None if _unpaddable(length, padding) else text[:length] + _filling(text, length, padding)


def _unpaddable(length: int, padding: str | bytes) -> bool:
    if length > MAX_LENGTH:
        raise SqlValueError(f"a text of {length} characters is too long: at most {MAX_LENGTH}")
    return length < 0 or not padding


def _filling(text: Any, length: int, padding: Any) -> Any:
    missing = max(length - len(text), 0)
    return (padding * (missing // len(padding) + 1))[:missing]


@STRINGS.typed(
    "CONCAT(texts STRING...) STRING",
    "CONCAT(texts BYTES...) BYTES",
    nulls=True,
    examples=[("CONCAT('a', NULL, 'b')", "'ab'")],
)
def concat(kinds: Sequence[SqlType]) -> Callable[..., Any]:
    """Several texts one after the other; nulls are left out."""
    joined = b"" if str(kinds[0]) == "BYTES" else ""
    return lambda *texts: joined.join(text for text in texts if text is not None)


@STRINGS.scalar(
    "CONCAT_WS(separator STRING, first STRING, others STRING...) STRING",
    "CONCAT_WS(separator BYTES, first BYTES, others BYTES...) BYTES",
    nulls=True,
    examples=[("CONCAT_WS(', ', 'a', NULL, 'b')", "'a, b'")],
)
def concat_ws(separator: Any, *texts: Any) -> Any:
    """Several texts with a separator between them; nulls are left out."""
    return None if separator is None else separator.join(text for text in texts if text is not None)


@STRINGS.scalar(
    "SPLIT(text STRING, delimiter STRING) ARRAY<STRING>",
    "SPLIT(text BYTES, delimiter BYTES) ARRAY<BYTES>",
    examples=[("SPLIT('a.b.', '.')", "ARRAY['a', 'b', '']"), ("SPLIT('ab', '')", "ARRAY['a', 'b']")],
)
def split(text: Any, delimiter: Any) -> list[Any]:
    """The parts of a text between delimiters; its characters if the delimiter is empty."""
    if delimiter:
        return list(text.split(delimiter))
    return [text[at : at + 1] for at in range(len(text))] or [text]


@STRINGS.scalar(
    "SPLIT_TO_MAP(text STRING, entries STRING, pairs STRING) MAP<STRING, STRING>",
    examples=[("SPLIT_TO_MAP('a=1/b=2/c', '/', '=')", "MAP('a' := '1', 'b' := '2')")],
)
def split_to_map(text: str, entries: str, pairs: str) -> dict[str, str] | None:
    """A map of the entries of a text, each of which has a key and a value; entries without a value are left out."""
    if not entries or not pairs or entries == pairs:
        return None
    split_entries = (entry.split(pairs) for entry in text.split(entries) if pairs in entry)
    return {pair[0]: pair[1] for pair in split_entries}


@STRINGS.scalar("CHR(code INTEGER) STRING", examples=[("CHR(75)", "'K'")])
def chr_code(code: int) -> str | None:
    """The character of a code point, which may be written as a backslash, ``u`` and four hexadecimal digits."""
    return chr(code) if 0 <= code <= 0x10FFFF else None


@STRINGS.scalar("CHR(escaped STRING) STRING", examples=[("CHR('\\u004b')", "'K'")])
def chr_text(escaped: str) -> str | None:
    if len(escaped) < 6 or not escaped.startswith("\\u"):
        return None
    if BROKEN.search(escaped):
        raise SqlValueError(f"{escaped[:100]!r} has a \\u without four hexadecimal digits after it")
    units = ESCAPE.sub(_unescaped, escaped).encode("utf-16-be", "surrogatepass")
    return units.decode("utf-16-be", "replace")


def _unescaped(match: re.Match[str]) -> str:
    unit, octal, other = match.groups()
    if unit or octal:
        return chr(int(unit, 16) if unit else int(octal, 8))
    return CONTROLS.get(other, other)


@STRINGS.scalar("UUID() STRING", examples=[("LEN(UUID())", "36")])
def uuid_text() -> str:
    """A new random UUID; of 16 bytes, or null for another number."""
    return str(uuid.uuid4())


@STRINGS.scalar("UUID(bytes BYTES) STRING")
def uuid_of(data: bytes) -> str | None:
    return str(uuid.UUID(bytes=data)) if len(data) == 16 else None


@STRINGS.typed(
    "ARRAY_JOIN(array ARRAY<T>) STRING",
    "ARRAY_JOIN(array ARRAY<T>, delimiter STRING) STRING",
    nulls=True,
    examples=[("ARRAY_JOIN(ARRAY[1, NULL, 3])", "'1,null,3'"), ("ARRAY_JOIN(ARRAY[1, 2], ';')", "'1;2'")],
)
def array_join(kinds: Sequence[SqlType]) -> Callable[..., str | None]:
    """The elements of an array as text with a delimiter between them, a comma if none is given."""
    element = kinds[0].element  # type: ignore[attr-defined]
    is_plain = base_name(element) in PLAIN
    write = text_function(element) if is_plain else str

    def join(array: list[Any] | None, delimiter: str | None = ",") -> str | None:
        if array is None:
            return None
        if not is_plain and any(value is not None for value in array):
            raise SqlValueError(f"ARRAY_JOIN joins numbers, texts and booleans, not {element}")
        return (delimiter or "").join(map(write, array))

    return join
