"""A sample of the mutations of record batches and of answers to fetches; ``make fuzz`` runs a million."""

from __future__ import annotations

import pytest

from penstock.errors import LogError
from penstock.log.kafka.wire.batch_reader import BatchSource, decode_batches
from wire_fuzz import (
    MOST_BYTES,
    PLACE,
    answer_cases,
    answers,
    batch_cases,
    corpus,
    read_answer,
    read_batches,
    run,
    stored,
)


def test_right_batches_and_answers_are_read() -> None:
    assert {read_batches(data) for data in corpus()} == {"read"}
    assert {read_answer(kind, data) for kind, data in answers()} == {"read"}


def test_only_errors_of_the_log_leave_mutated_batches() -> None:
    outcome = run(batch_cases(11), 12_000)
    assert outcome["refused"] > 6_000
    assert outcome["read"] > 500


def test_only_errors_of_the_log_leave_mutated_answers() -> None:
    outcome = run(answer_cases(12), 8_000)
    assert outcome["refused"] > 1_000
    assert outcome["read"] > 500


def zeros(count: int, codec: int, first: int = 0) -> bytes:
    row = {"timestamp": 0, "key": None, "value": bytes(count), "headers": None}
    return stored([row], codec, first)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_is_not_unpacked_beyond_its_limit(codec: int) -> None:
    bomb = zeros(4 * MOST_BYTES, codec, 5)
    with pytest.raises(
        LogError, match=r"orders-3: the record batch at offset 5 .* more than 1,048,576 bytes"
    ) as caught:
        decode_batches(bomb, 0, 10, source=BatchSource(PLACE, MOST_BYTES))
    assert "penstock.kafka.max.unpacked.bytes" in caught.value.hint
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 3, 5)
    assert len(decode_batches(bomb, 0, 10).records) == 1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_that_unpack_to_much_together_are_read_in_pieces(codec: int) -> None:
    data = b"".join(zeros(MOST_BYTES // 3, codec, offset) for offset in range(8))
    at, sizes = 0, []
    while at < 8:
        found = decode_batches(data, at, 8, source=BatchSource(most_unpacked_bytes=MOST_BYTES))
        assert found.records.column("offset").to_pylist() == list(range(at, found.next_offset))
        sizes.append(len(found.records))
        at = found.next_offset
    assert sizes == [2, 2, 2, 2]
