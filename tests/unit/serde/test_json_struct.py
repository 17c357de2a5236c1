"""JSON with a schema: a value that its field cannot hold is refused, by row and by column, and never cut to fit."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from penstock import Serdes
from penstock.errors import SerializationError
from penstock.serde.column import Column

REFUSED = [
    (int, "12345678901234567890123"),
    (int, "9223372036854775808"),
    (int, "1.7"),
    (int, "true"),
    (int, '"x"'),
    (int, "[1]"),
    (pl.Int32, "99999999999"),
    (pl.UInt8, "-1"),
    (float, "true"),
    (float, '"x"'),
    (pl.Float32, "1e39"),
    (bool, "1"),
    (pl.Date, '"x"'),
    (pl.Datetime("us"), '"yesterday"'),
    (pl.Time, '"x"'),
    ([int], "[1, 2.5]"),
    ([pl.Date], '["2024-01-01", "x"]'),
    ({"inner": int}, '{"inner": 0.5}'),
]
TAKEN = [
    (int, "-9223372036854775808", -(1 << 63)),
    (int, "1.0", 1),
    (int, "1e2", 100),
    (int, '"5"', 5),
    (int, "null", None),
    (float, "3", 3.0),
    (float, "0.1", 0.1),
    (float, "5e-324", 5e-324),
    (str, "5", "5"),
    (pl.Float32, "1.5", 1.5),
    ([int], "[1, null]", [1, None]),
    ({"inner": int}, '{"inner": 7}', {"inner": 7}),
]


def text_of(value: str) -> bytes:
    return f'{{"other": 1, "field": {value}}}'.encode()


@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=str)
def test_what_does_not_fit_is_refused(kind: Any, value: str) -> None:
    serde = Serdes.json({"other": int, "field": kind})
    with pytest.raises(SerializationError, match=r"\(see 'field'\)"):
        serde.deserialize(text_of(value))
    with pytest.raises(SerializationError, match="row 1"):  # one bad record does not hide among good ones
        serde.decode(pa.array([b'{"other": 1}', text_of(value)], pa.large_binary()))


@pytest.mark.parametrize(("kind", "value", "read"), TAKEN, ids=str)
def test_what_fits_is_kept(kind: Any, value: str, read: Any) -> None:
    serde = Serdes.json({"other": int, "field": kind})
    assert serde.deserialize(text_of(value)) == {"other": 1, "field": read}
    assert serde.decode(pa.array([text_of(value)], pa.large_binary())).items() == [{"other": 1, "field": read}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 1.5), (int, 1e19), (pl.Int16, 1 << 20), ([int], [1, 2.5]), ({"inner": int}, {"inner": 0.5})],
)
def test_what_does_not_fit_is_not_written(kind: Any, value: Any) -> None:
    serde = Serdes.json({"field": kind})
    with pytest.raises(SerializationError):
        serde.serialize({"field": value})
    columns = [Column.of_items([{"field": value}])]
    if not isinstance(value, list):
        columns.append(Column.of_series(pl.Series([{"field": value}])))
    for column in columns:
        with pytest.raises(SerializationError):
            serde.encode(column)


def test_a_whole_float_is_written_as_an_integer() -> None:
    serde = Serdes.json({"field": int})
    for column in (Column.of_items([{"field": 2.0}]), Column.of_series(pl.Series([{"field": 2.0}]))):
        assert serde.encode(column).to_pylist() == [b'{"field":2}']
