"""JSON as Jackson reads it: zeros before numbers, and texts of any length that are none."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from penstock.serde.data import BytesError
from penstock.serde.data.json_values import read_json


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'[007, -00.5, "a\\"007", "007\\\\", 010e2]', [7, Decimal("-0.5"), 'a"007', "007\\", Decimal("1.0E+3")]),
        (b'{"007": "\\\\\\"", "a": 08}', {"007": '\\"', "a": 8}),
        (b'[00, -00, "0"]', [0, 0, "0"]),
    ],
)
def test_zeros_before_numbers(data: bytes, value: Any) -> None:
    assert read_json(data, leading_zeros=True) == value
    with pytest.raises(BytesError):
        read_json(data)


@pytest.mark.parametrize("end", [b"", b"\\", b" 007"])
def test_a_long_text_without_its_end_is_refused_at_once(end: bytes) -> None:
    with pytest.raises(BytesError, match="not JSON"):
        read_json(b'[0, "' + b'\\"' * 1_000_000 + end, leading_zeros=True)
