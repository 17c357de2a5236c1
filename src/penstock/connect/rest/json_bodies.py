"""Requests and answers of the REST interface, and the JSON of their bodies."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from penstock.base.escapes import json_text
from penstock.base.json_depth import depth_of
from penstock.connect.worker.request_errors import RequestError

__all__ = ["JSON", "RestAnswer", "RestCall", "config_of", "fields_of", "json_of", "text_of"]

JSON = "application/json"
_DEEPEST = 200
_LONGEST_NUMBER = 1000
_NUMBER = re.compile(r"[+-]?[0-9]+")
_HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class RestCall:
    """A request to an endpoint.

    Attributes:
        method: The method.
        target: Path and query as they were sent.
        names: The parts of the path that the endpoint names, decoded.
        query: The query's parameters; of several of one name the first.
        headers: Headers by lower-case name.
        body: The body.
    """

    method: str
    target: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def flag(self, name: str) -> bool:
        """Return a parameter that is ``true`` or anything else."""
        return self.query.get(name, "").strip().lower() == "true"

    def number(self, name: str) -> int:
        """Return a part of the path that is a number of 32 bits.

        Raises:
            RequestError: It is none: there is no such page (404).
        """
        text = self.names[name]
        number = int(text) if _NUMBER.fullmatch(text) and len(text) <= _LONGEST_NUMBER else 1 << 31
        if not -(1 << 31) <= number < 1 << 31:
            raise RequestError(404, "HTTP 404 Not Found")
        return number


@dataclass(frozen=True, slots=True)
class RestAnswer:
    """An answer.

    Attributes:
        status: The status.
        body: Its JSON; absent if ``content`` is given or there is none.
        headers: Further headers.
        content: The body's bytes, where they come from another worker.
        has_body: Whether there is a body.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    has_body: bool = True

    @classmethod
    def empty(cls, status: int) -> RestAnswer:
        """Return an answer without a body."""
        return cls(status, has_body=False)

    def encoded(self) -> bytes:
        """Return the body's bytes."""
        if self.content is not None:
            return self.content
        return json_text(self.body, separators=(",", ":")).encode() if self.has_body else b""


def json_of(body: bytes) -> Any:
    """Read a body.

    Raises:
        RequestError: It is not JSON (500, as Kafka Connect answers), or has a text that is not Unicode (400).
    """
    if not body.strip():
        return None
    try:
        if depth_of(body) > _DEEPEST:
            raise RequestError(500, f"The JSON is nested more than {_DEEPEST} levels deep")
        document = json.loads(body, parse_int=_whole, parse_float=_fraction, parse_constant=_no_number)
    except ValueError as error:
        raise RequestError(500, f"Cannot deserialize the request: {error}") from error
    if b"\\u" in body:
        half = _HALF_CHARACTER.search(json.dumps(document, ensure_ascii=False))
        if half is not None:
            raise RequestError(
                400, f"The request has half a character, \\u{ord(half[0]):04x}: its other half is missing"
            )
    return document


def _whole(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} digits; {_LONGEST_NUMBER} are the most")
    return int(text)


class Fraction(float):
    """A number with a fraction or an exponent that knows how it was written.

    >>> Fraction("1.50").text, Fraction("1.50") == 1.5
    ('1.50', True)
    """

    text: str

    def __new__(cls, text: str) -> Self:
        fraction = super().__new__(cls, text)
        fraction.text = text
        return fraction


def _fraction(text: str) -> float:
    number = Fraction(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def fields_of(document: Any, names: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return an object of a body, of whose fields all are known.

    Raises:
        RequestError: It is none, or has others (500).
    """
    if not isinstance(document, dict):
        raise RequestError(500, f"Cannot deserialize {what} from {_shown(document)}")
    unknown = [name for name in document if name not in names]
    if unknown:
        raise RequestError(500, f'Unrecognized field "{unknown[0]}", known are {", ".join(names)}')
    return document


def config_of(document: Any, what: str = "a config") -> dict[str, str | None]:
    """Return a config of a body: numbers and booleans become texts.

    Raises:
        RequestError: It is not an object, or a value is a list or an object (500).
    """
    if not isinstance(document, dict):
        raise RequestError(500, f"Cannot deserialize {what} from {_shown(document)}")
    return {name: text_of(name, value) for name, value in document.items()}


def text_of(name: str, value: Any) -> str | None:
    """Return a field's text: numbers and booleans become texts.

    Raises:
        RequestError: It is a list or an object (500).
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Fraction):
        return value.text
    raise RequestError(500, f"Cannot deserialize a text of {name} from {_shown(value)}")


def _shown(document: Any) -> str:
    kinds = {list: "an array", dict: "an object", str: "a text", type(None): "nothing"}
    return kinds.get(type(document), "a number")
