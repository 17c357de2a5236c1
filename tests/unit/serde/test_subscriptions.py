"""The bytes of foreign-key joins against what Kafka Streams 4.3.1 gave for the same values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SerializationError
from penstock.serde import Column, Serde, Serdes
from penstock.serde.foreign_key_messages import (
    Instruction,
    ResponseColumn,
    ResponseSerde,
    Subscription,
    SubscriptionColumn,
    SubscriptionResponse,
    SubscriptionSerde,
    combined_keys,
    foreign_prefixes,
    hash128,
    hash128_many,
    primary_keys,
)

TEXTS = {
    "kafka": "c1ba8801115a620ca8402311f6596740",
    "": "9d2764a018e329428c3cf3b035938518",
    "a": "3361634e7e0f5188e9c7dda24eae326b",
    "abcdefgh": "c9e137e204bd98d798412524f285c8d5",
    "abcdefghi": "4be3491e5ef44ca37e63ebba6e3b347c",
    "0123456789abcdef": "1a6e941ec6a76967d7d82808f505d6b1",
    "0123456789abcdefXYZ": "bb31fe14c8ec1d0e325aa157c895f535",
    "the quick brown fox jumps over the lazy dog, twice over and again": "27e6d9d1c16a43da1dba82277c70206e",
}
# Of the bytes 200, 201, ...: none, the first, the first two, and so on.
PREFIXES = [
    "9d2764a018e329428c3cf3b035938518",
    "bff2166f25d4e3caad76f90042c32eb7",
    "5a43bc9beb3cc1b2abe2162fa4083ceb",
    "39fbc6dc16036945ebc713cc6dbf3512",
    "4197012bd402a88cd928a2a17444871c",
    "464d041156333ff70b6fc91f38e9da78",
    "2916af3b1ce01ad3be393381728a347a",
    "6de8c8752cea3e517131c7cca64137cc",
    "8d377be4ab65818c8155c6691aaad525",
    "b307f2788856b4f68c346f2da4dceeac",
    "e2ff1f6655d1641cb0e85706a48dbf68",
    "3b4c9aab6ff1947b2d1304ce763abea1",
    "10d3344fa528b47e7e720b4b95b8c995",
    "63915011017896bc3eafa4c1fceaee77",
    "ab2e0ddf5a3a2a48790d941f8d1a4c80",
    "d3f54aadaf17d1f34770e089717d43b3",
    "9596378b086fe0fdfb5b0d92b5b58cc4",
    "010f92b61a45eb41fb4001548bc1f3bb",
    "feec0100f261c3e7bf6ad2846eae8baf",
    "040ed9d95e148fd57ccb6151ae39409f",
    "a05b218746ef04c841f412735c08430e",
    "95bfe4e1ed2fb048c7a58718ac126651",
    "a7584ea4e138aa053e1992e3880cb207",
    "ed3823f150e68b7def70b726fe1813e8",
    "6f25f204845e4b084356d57dc966a428",
    "c750013836f5ee3db0cb046756f41d78",
    "3015fc593d0b14327e5ccfd12c0e33f7",
    "065cf58b7a4241aaee56943f32af335b",
    "526f8fead68259ede4adfc13d57a67e4",
    "b6bf1bee639a810bdca33d09b54fc3a6",
    "a6017926872f68a3cf942e387d1e876c",
    "baf6851782c4400557b6e5b12d62f814",
    "87059d70c8ca9af1ce68fb082889e323",
    "7df37f6b80e0915fb01da419df34cd81",
]
HASH = bytes.fromhex("0000000000000001fffffffffffffffe")
SUBSCRIPTIONS = {
    Subscription(None, Instruction.DELETE_KEY_NO_PROPAGATE, "key1", 7): "81006b65793100000007",
    Subscription(
        HASH, Instruction.DELETE_KEY_NO_PROPAGATE, "key1", 7
    ): "01000000000000000001fffffffffffffffe6b65793100000007",
    Subscription(None, Instruction.DELETE_KEY_AND_PROPAGATE, "key1", 7): "81016b65793100000007",
    Subscription(
        HASH, Instruction.DELETE_KEY_AND_PROPAGATE, "key1", 7
    ): "01010000000000000001fffffffffffffffe6b65793100000007",
    Subscription(None, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, "key1", 7): "81026b65793100000007",
    Subscription(
        HASH, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, "key1", 7
    ): "01020000000000000001fffffffffffffffe6b65793100000007",
    Subscription(None, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE, "key1", 7): "81036b65793100000007",
    Subscription(
        HASH, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE, "key1", 7
    ): "01030000000000000001fffffffffffffffe6b65793100000007",
}
RESPONSES = {
    SubscriptionResponse(None, None): "80",
    SubscriptionResponse(HASH, None): "000000000000000001fffffffffffffffe",
    SubscriptionResponse(None, "val"): "8076616c",
    SubscriptionResponse(HASH, "val"): "000000000000000001fffffffffffffffe76616c",
}


def test_hashes_are_those_of_java() -> None:
    for text, expected in TEXTS.items():
        assert hash128(text.encode()).hex() == expected
    body = bytes(range(200, 200 + 33))
    assert [hash128(body[:n]).hex() for n in range(34)] == PREFIXES


@given(st.lists(st.none() | st.binary(max_size=80), max_size=20))
def test_hashes_of_columns_are_those_of_single_values(rows: list[bytes | None]) -> None:
    hashes = hash128_many(pa.array(rows, pa.large_binary()))
    for row, value in enumerate(rows):
        if value is not None:
            assert hashes[row].tobytes() == hash128(value)


def test_long_values_hash_alone() -> None:
    rows = [b"x" * 5000, b"short"]
    assert [h.tobytes() for h in hash128_many(pa.array(rows, pa.large_binary()))] == [hash128(r) for r in rows]


def test_wrappers_are_written_as_java_writes_them() -> None:
    for serde, known in (
        (SubscriptionSerde(Serdes.string()), SUBSCRIPTIONS),
        (ResponseSerde(Serdes.string()), RESPONSES),
    ):
        assert {value: serde.serialize(value).hex() for value in known} == known  # type: ignore[union-attr]
        column = Column.of_items(list(known))
        encoded = serde.encode(column)
        assert [b.hex() for b in encoded.to_pylist()] == list(known.values())
        assert serde.decode(encoded).items() == [serde.deserialize(b) for b in encoded.to_pylist()] == list(known)


def test_version_0_of_a_subscription_has_no_partition() -> None:
    serde = SubscriptionSerde(Serdes.string())
    old = bytes.fromhex("0003") + HASH + b"key1"
    expected = Subscription(HASH, 3, "key1", -1)
    assert serde.deserialize(old) == expected
    assert serde.decode(pa.array([old, None], pa.large_binary())).items() == [expected, None]


def test_an_empty_foreign_value_reads_as_null() -> None:
    serde = ResponseSerde(Serdes.string())
    data = serde.serialize(SubscriptionResponse(HASH, ""))
    assert serde.deserialize(data) == SubscriptionResponse(HASH, None)
    assert serde.decode(pa.array([data], pa.large_binary())).items() == [SubscriptionResponse(HASH, None)]


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x02\x00" + HASH, b"\x81\x09abcde", b"\x01\x00short"])
def test_bytes_that_are_no_subscription_are_refused(data: bytes) -> None:
    serde = SubscriptionSerde(Serdes.string())
    for attempt in (lambda: serde.deserialize(data), lambda: serde.decode(pa.array([data], pa.large_binary()))):
        with pytest.raises(SerializationError, match="subscription of version 0 or 1"):
            attempt()


@pytest.mark.parametrize("data", [b"", b"\x00short", b"\x01" + HASH])
def test_bytes_that_are_no_response_are_refused(data: bytes) -> None:
    serde = ResponseSerde(Serdes.string())
    for attempt in (lambda: serde.deserialize(data), lambda: serde.decode(pa.array([data], pa.large_binary()))):
        with pytest.raises(SerializationError, match="response of version 0"):
            attempt()


def test_columns_of_wrappers_join_and_take_rows() -> None:
    ones = SubscriptionColumn.of(Column.of_items([*SUBSCRIPTIONS, None]))
    assert ones.null_mask().tolist() == [False] * len(SUBSCRIPTIONS) + [True]
    both = Column.concat([ones, ones.take(np.array([0]))])
    assert isinstance(both, SubscriptionColumn)
    assert both.items()[-1] == next(iter(SUBSCRIPTIONS))
    answers = ResponseColumn.of(Column.of_items(list(RESPONSES)))
    assert Column.concat([answers, answers]).items() == [*RESPONSES, *RESPONSES]


def test_combined_keys_hold_both_keys() -> None:
    foreign = pa.array([b"f", b"", b"abc"], pa.large_binary())
    primary = pa.array([b"p", b"q", b""], pa.large_binary())
    combined = combined_keys(foreign, primary)
    assert combined.to_pylist() == [b"\0\0\0\1fp", b"\0\0\0\0q", b"\0\0\0\3abc"]
    assert foreign_prefixes(foreign).to_pylist() == [b"\0\0\0\1f", b"\0\0\0\0", b"\0\0\0\3abc"]
    assert primary_keys(combined).to_pylist() == primary.to_pylist()


@pytest.mark.parametrize("serde", [Serdes.string(), Serdes.auto()], ids=["declared", "undeclared"])
def test_an_empty_foreign_text_arrives_as_null(serde: Serde[object]) -> None:
    response = ResponseSerde(serde)
    rows = [SubscriptionResponse(HASH, ""), SubscriptionResponse(HASH, "s"), SubscriptionResponse(None, None)]
    arrived = [None, "s", None]
    by_row = [response.deserialize(response.serialize(row)) for row in rows]
    by_column = response.decode(response.encode(Column.of_items(rows))).items()
    assert [row.foreign_value for row in by_row if row] == arrived
    assert [row.foreign_value for row in by_column] == arrived
