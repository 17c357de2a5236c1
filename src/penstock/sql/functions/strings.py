"""Functions of text, masks, regular expressions and URLs. Characters are Unicode's, Java counts UTF-16 units."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any
from unicodedata import category
from urllib.parse import quote_plus, unquote, unquote_plus

from penstock.base.java_text.regex import compile_java, replacement
from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlType, SqlValueError
from penstock.sql.types.sql_type import base_name
from penstock.sql.types.texts import text_function

__all__ = ["MASKS", "REGEX", "STRINGS", "URLS"]

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


MASKS = Family("masks")
CHARACTERS = "upper STRING, lower STRING, digit STRING, other STRING"
DEFAULTS = ("X", "x", "n", "-")


KINDS = ("Lu", "Ll", "Nd")  # Unicode's categories of the first three masks


def _hidden(text: str, masks: tuple[str | None, ...]) -> str:
    """Return the text with the mask of each character's kind in its place; None keeps the characters of a kind."""
    wrong = [mask for mask in masks if mask is not None and len(mask) != 1]
    if wrong:
        raise SqlValueError(f"a mask has exactly one character, unlike {wrong[0]!r}")
    *of_kinds, other = masks or DEFAULTS
    by_kind = dict(zip(KINDS, of_kinds, strict=True))
    return "".join(by_kind.get(category(character), other) or character for character in text)


@MASKS.scalar(
    "MASK(text STRING) STRING",
    f"MASK(text STRING, {CHARACTERS}) STRING",
    nulls=True,
    examples=[("MASK('My Test $123')", "'Xx-Xxxx--nnn'"), ("MASK('Ab1!', '*', NULL, '9', NULL)", "'*b9!'")],
)
def mask(text: str | None, *masks: str | None) -> str | None:
    """A text with all characters hidden; a null among the masks keeps characters of its kind."""
    return None if text is None else _hidden(text, masks)


def _declare(name: str, meaning: str, cut: Callable[[str, int], tuple[str, str, str]], result: str) -> None:
    def masked(text: str | None, count: int | None, *masks: str | None) -> Any:
        if text is None or count is None:
            return None
        if count < 0:
            raise SqlValueError(f"{name} needs a number of characters that is not negative: {count}")
        before, middle, after = cut(text, min(count, len(text)))
        return before + _hidden(middle, masks) + after

    masked.__doc__ = meaning
    MASKS.scalar(
        f"{name}(text STRING, count INTEGER) STRING",
        f"{name}(text STRING, count INTEGER, {CHARACTERS}) STRING",
        nulls=True,
        examples=[(f"{name}('My Test', 2)", result)],
    )(masked)


_declare("MASK_LEFT", "A text with its first characters hidden.", lambda t, n: ("", t[:n], t[n:]), "'Xx Test'")
_declare(
    "MASK_RIGHT",
    "A text with its last characters hidden.",
    lambda t, n: (t[: len(t) - n], t[len(t) - n :], ""),
    "'My Texx'",
)
_declare(
    "MASK_KEEP_LEFT",
    "A text with all but its first characters hidden.",
    lambda t, n: (t[:n], t[n:], ""),
    "'My-Xxxx'",
)
_declare(
    "MASK_KEEP_RIGHT",
    "A text with all but its last characters hidden.",
    lambda t, n: ("", t[: len(t) - n], t[len(t) - n :]),
    "'Xx-Xxst'",
)


REGEX = Family("regular expressions")


def _checked(pattern: str, group: int) -> None:
    groups = compile_java(pattern).groups
    if not 0 <= group <= groups:
        raise SqlValueError(f"the expression {pattern!r} has {groups} groups, no group {group}")


@REGEX.scalar(
    "REGEXP_EXTRACT(pattern STRING, text STRING) STRING",
    "REGEXP_EXTRACT(pattern STRING, text STRING, group INTEGER) STRING",
    examples=[("REGEXP_EXTRACT('(.*) (.*)', 'hello there', 2)", "'there'")],
)
def regexp_extract(pattern: str, text: str, group: int = 0) -> str | None:
    """The first part of a text that a regular expression matches, or one of its groups; null if none does."""
    _checked(pattern, group)
    match = compile_java(pattern).search(text)
    return match[group] if match else None


@REGEX.scalar(
    "REGEXP_EXTRACT_ALL(pattern STRING, text STRING) ARRAY<STRING>",
    "REGEXP_EXTRACT_ALL(pattern STRING, text STRING, group INTEGER) ARRAY<STRING>",
    examples=[("REGEXP_EXTRACT_ALL('a.', 'abacad')", "ARRAY['ab', 'ac', 'ad']")],
)
def regexp_extract_all(pattern: str, text: str, group: int = 0) -> list[str | None]:
    """All parts of a text that a regular expression matches, or one group of each."""
    _checked(pattern, group)
    return [match[group] for match in compile_java(pattern).finditer(text)]


@REGEX.scalar(
    "REGEXP_REPLACE(text STRING, pattern STRING, new STRING) STRING",
    examples=[
        ("REGEXP_REPLACE('baababaa', '(ab)+', 'xy')", "'baxyaa'"),
        ("REGEXP_REPLACE('ab', 'a(b)', '$1a')", "'ba'"),
    ],
)
def regexp_replace(text: str, pattern: str, new: str) -> str:
    """A text with all parts replaced that a regular expression matches; ``$1`` stands for a group."""
    return compile_java(pattern).sub(lambda match: replacement(new, match), text)


@REGEX.scalar(
    "REGEXP_SPLIT_TO_ARRAY(text STRING, pattern STRING) ARRAY<STRING>",
    examples=[("REGEXP_SPLIT_TO_ARRAY('a1b22c', '[0-9]+')", "ARRAY['a', 'b', 'c']")],
)
def regexp_split_to_array(text: str, pattern: str) -> list[str]:
    """The parts of a text between those that a regular expression matches."""
    expression = compile_java(pattern)
    parts: list[str] = []
    at = 0
    for match in expression.finditer(text):
        if match.end() > 0:  # an empty match at the beginning is before all parts
            parts.append(text[at : match.start()])
            at = match.end()
    parts.append(text[at:])
    if expression.fullmatch("") and len(parts) > 1:  # it matches between all characters, so behind the last one too
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
    return parts


URLS = Family("urls")
EXAMPLE = "https://ann@example.org:8080/a/b?q=x%20y&n=1#top"
URL = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?")
ILLEGAL = re.compile(r"[\s<>\"{}|\\^`]|%(?![0-9A-Fa-f]{2})")
HOST = re.compile(r"(?:[^@]*@)?(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::([0-9]{0,9}))?")


def _parts(url: str) -> tuple[str | None, str | None, str | None, str | None, str | None]:
    match = URL.fullmatch(url)
    if match is None or ILLEGAL.search(url):
        raise SqlValueError(f"{url!r} is not a URL")
    if match[1] is not None and match[2] is None and not match[3].startswith("/"):
        return match[1], None, None, None, match[5]  # as mailto:ann@example.org, which has neither path nor query
    return match[1], match[2], match[3], match[4], match[5]


def _decoded(part: str | None) -> str | None:
    return None if part is None else unquote(part)


@URLS.scalar("URL_EXTRACT_PROTOCOL(url STRING) STRING", examples=[(f"URL_EXTRACT_PROTOCOL('{EXAMPLE}')", "'https'")])
def url_extract_protocol(url: str) -> str | None:
    """The protocol of a URL."""
    return _parts(url)[0]


@URLS.scalar("URL_EXTRACT_HOST(url STRING) STRING", examples=[(f"URL_EXTRACT_HOST('{EXAMPLE}')", "'example.org'")])
def url_extract_host(url: str) -> str | None:
    """The host of a URL."""
    match = HOST.fullmatch(_parts(url)[1] or "")
    return match[1] or None if match else None


@URLS.scalar("URL_EXTRACT_PORT(url STRING) INTEGER", examples=[(f"URL_EXTRACT_PORT('{EXAMPLE}')", "8080")])
def url_extract_port(url: str) -> int | None:
    """The port of a URL; null if it names none."""
    match = HOST.fullmatch(_parts(url)[1] or "")
    return int(match[2]) if match and match[2] else None


@URLS.scalar("URL_EXTRACT_PATH(url STRING) STRING", examples=[(f"URL_EXTRACT_PATH('{EXAMPLE}')", "'/a/b'")])
def url_extract_path(url: str) -> str | None:
    """The path of a URL."""
    return _decoded(_parts(url)[2])


@URLS.scalar("URL_EXTRACT_QUERY(url STRING) STRING", examples=[(f"URL_EXTRACT_QUERY('{EXAMPLE}')", "'q=x y&n=1'")])
def url_extract_query(url: str) -> str | None:
    """The query of a URL."""
    return _decoded(_parts(url)[3])


@URLS.scalar("URL_EXTRACT_FRAGMENT(url STRING) STRING", examples=[(f"URL_EXTRACT_FRAGMENT('{EXAMPLE}')", "'top'")])
def url_extract_fragment(url: str) -> str | None:
    """The fragment of a URL, which follows ``#``."""
    return _decoded(_parts(url)[4])


@URLS.scalar(
    "URL_EXTRACT_PARAMETER(url STRING, name STRING) STRING",
    examples=[(f"URL_EXTRACT_PARAMETER('{EXAMPLE}', 'n')", "'1'")],
)
def url_extract_parameter(url: str, name: str) -> str | None:
    """A parameter of a URL's query; null if it is not there, empty if it has no value."""
    query = url_extract_query(url)
    for part in () if query is None else query.split("&"):
        key, _, value = part.partition("=")
        if key == name:
            return value
    return None


@URLS.scalar("URL_ENCODE_PARAM(text STRING) STRING", examples=[("URL_ENCODE_PARAM('a b&c')", "'a+b%26c'")])
def url_encode_param(text: str) -> str:
    """A text as it may stand in the query of a URL."""
    return quote_plus(text, safe="*").replace("~", "%7E")


@URLS.scalar("URL_DECODE_PARAM(text STRING) STRING", examples=[("URL_DECODE_PARAM('a%20b%26c')", "'a b&c'")])
def url_decode_param(text: str) -> str:
    """A text out of the query of a URL."""
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise SqlValueError(f"{text!r} is not encoded as a parameter")
    return unquote_plus(text)
