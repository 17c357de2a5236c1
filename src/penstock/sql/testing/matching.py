"""Whether a value is what a case expects, by the rules of ksqlDB's own runner."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

__all__ = ["differences"]


def differences(expected: Any, actual: Any, path: str = "value") -> Iterator[str]:
    """Yield the differences of a value from what is expected, as sentences.

    >>> list(differences({"a": 1}, {"A": 2}))
    ['value.a is 2, not 1']
    """
    if isinstance(expected, dict):
        yield from _of_objects(expected, actual, path)
    elif isinstance(expected, list):
        if not isinstance(actual, list | tuple):
            yield f"{path} is {actual!r}, not a list"
        elif len(actual) != len(expected):
            yield f"{path} has {len(actual)} items, not {len(expected)}: {actual!r}"
        else:
            for index, (one, two) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(one, two, f"{path}[{index}]")
    elif not _equal(expected, actual):
        yield f"{path} is {_shown(actual)}, not {_shown(expected)}"


def _of_objects(expected: Mapping[str, Any], actual: Any, path: str) -> Iterator[str]:
    if not isinstance(actual, dict):
        yield f"{path} is {actual!r}, not an object"
        return
    if len(expected) != len(actual):
        yield f"{path} has the fields {sorted(map(str, actual))}, not {sorted(expected)}"
        return
    texts = {str(key): value for key, value in actual.items()}
    for name, value in expected.items():
        actual_value = texts.get(name, texts.get(name.upper()))
        yield from differences(value, actual_value, f"{path}.{name}")


def _equal(expected: Any, actual: Any) -> bool:
    if expected is None or actual is None:
        return expected is None and actual is None
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, str):
        return _equal_text(expected, actual)
    if isinstance(actual, int):
        return int(expected) == actual
    if isinstance(actual, float):
        return actual == float(expected) or abs(float(expected) - actual) < 1e-6
    if isinstance(actual, Decimal):
        if isinstance(expected, int):
            return _scale(actual) <= 0 and actual == expected
        return actual == expected and _scale(actual) == _scale(expected)
    return bool(expected == actual)


def _equal_text(expected: str, actual: Any) -> bool:
    if isinstance(actual, bytes | bytearray):
        return base64.b64encode(actual).decode() == expected
    if isinstance(actual, Decimal):
        try:
            number = Decimal(expected)
        except ArithmeticError:
            return False
        return number == actual and _scale(number) == _scale(actual)
    return bool(expected == actual)


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)
