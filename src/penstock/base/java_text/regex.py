"""Regular expressions in Java's syntax, translated to Python's; what has no equal is refused."""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.base.java_text.texts import JavaTextError

__all__ = ["compile_java", "java_complaint", "replacement"]

ANY_CHARACTER = r"[^\n\r\u0085\u2028\u2029]"
POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r" \t\n\x0b\f\r",
    "Blank": r" \t",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
    "Cntrl": r"\x00-\x1f\x7f",
    "Print": r"\x20-\x7e",
    "Graph": "!-~",
}
SPACES = {"h": r" \t\u00a0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000", "v": r"\n\x0b\f\r\u0085\u2028\u2029"}
ENDS = {"z": r"\Z", "Z": r"(?=(?:\r\n|[\n\r\u0085\u2028\u2029])?\Z)", "R": r"(?:\r\n|[\n-\r\u0085\u2028\u2029])"}


@lru_cache(maxsize=512)
def compile_java(pattern: str) -> re.Pattern[str]:
    r"""Return a regular expression of Java's syntax.

    >>> compile_java(r"(?<year>\p{Digit}{4})\Q-\E").match("2024-")["year"]
    '2024'
    >>> compile_java("[a&&[^b]]")
    Traceback (most recent call last):
    ...
    penstock.base.java_text.texts.JavaTextError: the regular expression '[a&&[^b]]': && in a class is not supported

    Raises:
        JavaTextError: the expression is wrong, or uses what Python lacks: intersections and unions of classes, ``\G``,
            Unicode properties other than the POSIX classes, look-behind of unbounded width.
    """
    try:
        return re.compile(_Translation(pattern).run(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaTextError(f"the regular expression {pattern!r}: {error}") from error


def java_complaint(pattern: str, error: JavaTextError) -> str:
    r"""Return the message of Java's ``PatternSyntaxException`` for the commonest mistakes, else ours.

    >>> print(java_complaint("a(", JavaTextError("missing ), unterminated subpattern")))
    Unclosed group near index 2
    a(
    >>> print(java_complaint("a\\", JavaTextError("bad escape (end of pattern) at position 1")))
    Unexpected internal error near index 2
    a\
    """
    text = str(error)
    if "bad escape (end of pattern)" in text and "(" not in pattern:
        return f"Unexpected internal error near index {len(pattern)}\n{pattern}"
    if "unterminated subpattern" in text:
        return f"Unclosed group near index {len(pattern)}\n{pattern}"
    at, reason = -1, ""
    if "a class is not closed" in text:
        at, reason = len(pattern) - 1, "Unclosed character class"
    elif "nothing to repeat" in text and pattern[:1] in ("*", "+", "?"):
        at, reason = 0, f"Dangling meta character '{pattern[0]}'"
    return f"{reason} near index {at}\n{pattern}\n{' ' * at}^" if reason else text


def replacement(text: str, match: re.Match[str]) -> str:
    """Return the text that replaces a match, with Java's ``$1`` and ``${name}``.

    >>> replacement("<$1>", re.match("a(b)", "ab"))
    '<b>'
    """
    result: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            if at == len(text):
                raise JavaTextError(f"nothing follows the backslash at the end of the replacement {text!r}")
            result.append(text[at : at + 1])
            at += 1
        elif character == "$":
            name, at = _reference(text, at, match)
            try:
                result.append(match[name] or "")
            except IndexError as error:
                raise JavaTextError(f"No group {name}") from error
        else:
            result.append(character)
    return "".join(result)


def _reference(text: str, at: int, match: re.Match[str]) -> tuple[str | int, int]:
    """Return the group that follows a ``$``, and the position behind it; digits count while there is such a group."""
    name = re.compile(r"\{([a-zA-Z][a-zA-Z0-9]*)\}|([0-9])").match(text, at)
    if name is None:
        raise JavaTextError(f"illegal group reference in the replacement {text!r}")
    if name[1]:
        return name[1], name.end()
    number, end = int(name[2]), name.end()
    while text[end : end + 1].isdecimal() and number * 10 + int(text[end]) <= match.re.groups:
        number, end = number * 10 + int(text[end]), end + 1
    return number, end


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._dot_all = False

    def run(self) -> str:
        result: list[str] = []
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            self._at += 1
            match character:
                case "\\":
                    result.append(self._escape())
                case "[":
                    result.append(self._class())
                case ".":
                    result.append("." if self._dot_all else ANY_CHARACTER)
                case "(":
                    result.append(self._group())
                case _:
                    result.append(character)
        return "".join(result)

    def _fail(self, message: str) -> JavaTextError:
        return JavaTextError(f"the regular expression {self._pattern!r}: {message}")

    def _group(self) -> str:
        rest = self._pattern[self._at :]
        if rest.startswith("?<") and rest[2:3] not in ("=", "!"):
            self._at += 2
            return "(?P<"
        flags = re.match(r"\?([a-zA-Z]+)(-[a-zA-Z]+)?([:)])", rest)
        if flags is None:
            return "("
        if set(flags[1] + (flags[2] or "")) - set("imsx-"):
            raise self._fail(f"the flags ({flags[0]} are not supported; i, m, s and x are")
        self._dot_all = self._dot_all or "s" in flags[1]
        if flags[3] == ")" and self._at != 1:
            raise self._fail("flags must stand at the beginning")
        return "("

    def _escape(self, *, inside: bool = False) -> str:
        character = self._pattern[self._at : self._at + 1]
        self._at += 1
        if character == "Q":
            end = self._pattern.find("\\E", self._at)
            quoted = self._pattern[self._at : end if end >= 0 else None]
            self._at = end + 2 if end >= 0 else len(self._pattern)
            return re.escape(quoted)
        if character in ("p", "P"):
            return self._property(negated=character == "P", inside=inside)
        if character in SPACES:
            return SPACES[character] if inside else f"[{SPACES[character]}]"
        if character in ENDS and not inside:
            return ENDS[character]
        if character == "k" and self._pattern.startswith("<", self._at):
            end = self._pattern.find(">", self._at)
            name = self._pattern[self._at + 1 : end]
            self._at = end + 1
            return f"(?P={name})"
        if character == "x" and self._pattern.startswith("{", self._at):
            end = self._pattern.find("}", self._at)
            code = self._pattern[self._at + 1 : end]
            self._at = end + 1
            return re.escape(chr(int(code, 16)))
        if character == "e":
            return r"\x1b"
        if character and character in "GXEHVNc":
            raise self._fail(f"\\{character} is not supported")
        return f"\\{character}"

    def _property(self, *, negated: bool, inside: bool) -> str:
        match = re.compile(r"\{(?:Is)?(\w+)\}").match(self._pattern, self._at)
        if match is None or match[1] not in POSIX:
            raise self._fail("only the POSIX classes of \\p are supported, such as \\p{Alpha}")
        self._at = match.end()
        if inside and negated:
            raise self._fail("\\P in a class is not supported")
        return POSIX[match[1]] if inside else f"[{'^' if negated else ''}{POSIX[match[1]]}]"

    def _class(self) -> str:
        result = ["["]
        if self._pattern.startswith("^", self._at):
            result.append("^")
            self._at += 1
        first = True
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            self._at += 1
            if character == "]" and not first:
                return "".join([*result, "]"])
            first = False
            if character == "&" and self._pattern.startswith("&", self._at):
                raise self._fail("&& in a class is not supported")
            if character == "[":
                raise self._fail("a class in a class is not supported")
            result.append(
                self._escape(inside=True)
                if character == "\\"
                else f"\\{character}"
                if character in "~|&]"
                else character
            )
        raise self._fail("a class is not closed")
