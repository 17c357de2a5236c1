"""Numbers in texts as Java reads them, of any length."""

from __future__ import annotations

from decimal import Decimal

import pytest

from penstock.base.java_text.numbers import parse_big_decimal, parse_double
from penstock.base.java_text.texts import JavaTextError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e" + "0" * 6_000 + "1", Decimal("1E+1")),
        ("1." + "0" * 6_000, Decimal("1." + "0" * 6_000)),
        (".5", Decimal("0.5")),
        ("5.", Decimal(5)),
        ("-0", Decimal(0)),
    ],
)
def test_decimals_have_digits_and_zeros_as_many_as_they_want(text: str, value: Decimal) -> None:
    assert parse_big_decimal(text).as_tuple() == value.as_tuple()


@pytest.mark.parametrize("text", ["1" * 9_000 + "x", "1e" + "9" * 6_000, "1e", "1e-2147483648", "1..2", ".", ""])
def test_what_is_no_decimal_is_an_error_of_its_text(text: str) -> None:
    with pytest.raises(JavaTextError):
        parse_big_decimal(text)


@pytest.mark.parametrize(
    ("text", "value"), [("1.5f", 1.5), ("5.", 5.0), (".5e1", 5.0), ("0xAp1", 20.0), ("0x1.8p1d", 3.0), ("0x.8p0", 0.5)]
)
def test_doubles_in_each_form(text: str, value: float) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize("text", ["1" * 9_000 + "x", "0x" + "f" * 9_000 + "x", "0x1", "1.5.", "."])
def test_what_is_no_double_is_an_error_of_its_text(text: str) -> None:
    with pytest.raises(JavaTextError):
        parse_double(text)
