"""The metadata of committed offsets, as Kafka Streams 4.3.1 encodes it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.streams_groups.offset_metadata import OffsetMetadata

# Of TopicPartitionMetadata.encode().
JAVA = {
    "Av//////////": OffsetMetadata(),
    "AgAAAYvP5Wh7": OffsetMetadata(1_700_000_000_123),
    "AgAAAAAAAAAFAAAAAwAAABxLU1RSRUFNLUFHR1JFR0FURS0wMDAwMDAwMDAyAAAAAAAPQlwAAAAGY291bnRzAAAAAAAPQkYAAAAHaMOkdXNlcgAA"
    "AAAAD0JG": OffsetMetadata(
        5, {"KSTREAM-AGGREGATE-0000000002": 1_000_028, "counts": 1_000_006, "häuser": 1_000_006}
    ),
}


@pytest.mark.parametrize(("text", "metadata"), JAVA.items())
def test_javas_bytes(text: str, metadata: OffsetMetadata) -> None:
    assert metadata.encode() == text
    assert OffsetMetadata.decode(text) == metadata


@given(st.integers(-1, 2**63 - 1), st.dictionaries(st.text(max_size=9), st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_what_was_encoded_is_decoded(time_ms: int, numbers: dict[str, int]) -> None:
    metadata = OffsetMetadata(time_ms, numbers)
    assert OffsetMetadata.decode(metadata.encode()) == metadata


def test_the_first_version_has_the_time_alone() -> None:
    assert OffsetMetadata.decode(base64.b64encode(b"\1" + (7).to_bytes(8, "big")).decode()) == OffsetMetadata(7)


@given(st.binary(max_size=40))
def test_other_bytes_count_as_unknown(data: bytes) -> None:
    found = OffsetMetadata.decode(base64.b64encode(b"\2" + data).decode())
    assert found.partition_time_ms >= -(2**63)
    assert OffsetMetadata.decode(base64.b64encode(b"\3" + data).decode()) == OffsetMetadata()


@pytest.mark.parametrize("text", ["", "epoch 3", "AgAA", "stream-thread thread-0 epoch 7", "é"])
def test_other_texts_count_as_unknown(text: str) -> None:
    assert OffsetMetadata.decode(text) == OffsetMetadata()
