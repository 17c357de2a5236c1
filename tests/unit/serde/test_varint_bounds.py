"""Lengths and counts of serdes have 32 bits: longer ones are malformed, as for Kafka."""

from __future__ import annotations

import pytest

from penstock import Serdes
from penstock.errors import SerializationError
from penstock.serde.schemas.value_bytes import skip_indexes
from penstock.serde.table_changes import ChangeSerde

LONG_ZERO = b"\x80" * 5 + b"\x00"


def test_a_change_whose_length_has_six_bytes_is_refused() -> None:
    serde = ChangeSerde(Serdes.string())
    assert serde.deserialize(LONG_ZERO[1:] + b"\x02") == ("", "")
    with pytest.raises(SerializationError, match="cut short"):
        serde.deserialize(LONG_ZERO + b"\x02")


@pytest.mark.parametrize(("path", "end"), [(LONG_ZERO[1:], 5), (LONG_ZERO, -1), (b"\x02" + LONG_ZERO, -1), (b"", -1)])
def test_the_path_of_a_message_has_numbers_of_five_bytes_at_most(path: bytes, end: int) -> None:
    assert skip_indexes(path, 0) == end
