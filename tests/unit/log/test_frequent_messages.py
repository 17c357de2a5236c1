"""The messages that have a codec of their own: byte for byte and field by field those of kafka-python."""

from __future__ import annotations

import dataclasses
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import (
    EndTxnRequest,
    EndTxnResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from penstock.log.kafka.wire.connection import parse_answer
from penstock.log.kafka.wire.frequent_messages import FrequentCodec, codec_of

INT16, INT32, INT64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))
TEXT = st.text(max_size=8) | st.just("n" * 200)
BYTES = st.binary(max_size=20) | st.just(b"r" * 20_000)
MAYBE_TEXT = st.none() | TEXT


def some(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, max_size=3)


FETCHED = FetchRequest.FetchTopic
FETCH_REQUESTS = st.builds(
    FetchRequest,
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    isolation_level=st.sampled_from([0, 1]),
    session_id=INT32,
    session_epoch=INT32,
    topics=some(
        st.builds(
            FETCHED,
            topic=TEXT,
            partitions=some(
                st.builds(
                    FETCHED.FetchPartition,
                    partition=INT32,
                    current_leader_epoch=INT32,
                    fetch_offset=INT64,
                    last_fetched_epoch=INT32,
                    log_start_offset=INT64,
                    partition_max_bytes=INT32,
                )
            ),
        )
    ),
    forgotten_topics_data=some(st.builds(FetchRequest.ForgottenTopic, topic=TEXT, partitions=some(INT32))),
    rack_id=TEXT,
)
PRODUCED = ProduceRequest.TopicProduceData
PRODUCE_REQUESTS = st.builds(
    ProduceRequest,
    transactional_id=MAYBE_TEXT,
    acks=INT16,
    timeout_ms=INT32,
    topic_data=some(
        st.builds(
            PRODUCED,
            name=TEXT,
            partition_data=some(st.builds(PRODUCED.PartitionProduceData, index=INT32, records=BYTES)),
        )
    ),
)
NOTED = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
OFFSETS_REQUESTS = st.builds(
    TxnOffsetCommitRequest,
    transactional_id=TEXT,
    group_id=TEXT,
    producer_id=INT64,
    producer_epoch=INT16,
    generation_id=INT32,
    member_id=TEXT,
    group_instance_id=MAYBE_TEXT,
    topics=some(
        st.builds(
            NOTED,
            name=TEXT,
            partitions=some(
                st.builds(
                    NOTED.TxnOffsetCommitRequestPartition,
                    partition_index=INT32,
                    committed_offset=INT64,
                    committed_leader_epoch=INT32,
                    committed_metadata=MAYBE_TEXT,
                )
            ),
        )
    ),
)
END_REQUESTS = st.builds(
    EndTxnRequest, transactional_id=TEXT, producer_id=INT64, producer_epoch=INT16, committed=st.booleans()
)

FETCH_TOPIC = FetchResponse.FetchableTopicResponse
FETCH_ANSWERS = st.builds(
    FetchResponse,
    throttle_time_ms=INT32,
    error_code=INT16,
    session_id=INT32,
    responses=some(
        st.builds(
            FETCH_TOPIC,
            topic=TEXT,
            partitions=some(
                st.builds(
                    FETCH_TOPIC.PartitionData,
                    partition_index=INT32,
                    error_code=INT16,
                    high_watermark=INT64,
                    last_stable_offset=INT64,
                    log_start_offset=INT64,
                    aborted_transactions=st.none()
                    | some(
                        st.builds(FETCH_TOPIC.PartitionData.AbortedTransaction, producer_id=INT64, first_offset=INT64)
                    ),
                    preferred_read_replica=INT32,
                    records=st.none() | BYTES,
                )
            ),
        )
    ),
)
PRODUCE_TOPIC = ProduceResponse.TopicProduceResponse
PRODUCE_ANSWERS = st.builds(
    ProduceResponse,
    throttle_time_ms=INT32,
    responses=some(
        st.builds(
            PRODUCE_TOPIC,
            name=TEXT,
            partition_responses=some(
                st.builds(
                    PRODUCE_TOPIC.PartitionProduceResponse,
                    index=INT32,
                    error_code=INT16,
                    base_offset=INT64,
                    log_append_time_ms=INT64,
                    log_start_offset=INT64,
                    record_errors=some(
                        st.builds(
                            PRODUCE_TOPIC.PartitionProduceResponse.BatchIndexAndErrorMessage,
                            batch_index=INT32,
                            batch_index_error_message=MAYBE_TEXT,
                        )
                    ),
                    error_message=MAYBE_TEXT,
                )
            ),
        )
    ),
)
OFFSETS_TOPIC = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
OFFSETS_ANSWERS = st.builds(
    TxnOffsetCommitResponse,
    throttle_time_ms=INT32,
    topics=some(
        st.builds(
            OFFSETS_TOPIC,
            name=TEXT,
            partitions=some(
                st.builds(OFFSETS_TOPIC.TxnOffsetCommitResponsePartition, partition_index=INT32, error_code=INT16)
            ),
        )
    ),
)
END_ANSWERS = st.builds(
    EndTxnResponse, throttle_time_ms=INT32, error_code=INT16, producer_id=INT64, producer_epoch=INT16
)
VERSIONS = {"FetchRequest": 12, "ProduceRequest": 12, "TxnOffsetCommitRequest": 5, "EndTxnRequest": 5}


def codec(name: str) -> FrequentCodec:
    found = codec_of(name, VERSIONS[name])
    assert found is not None
    return found


@given(request=st.one_of(FETCH_REQUESTS, PRODUCE_REQUESTS, OFFSETS_REQUESTS, END_REQUESTS), client=TEXT)
def test_requests_have_the_bytes_of_kafka_python(request: Any, client: str) -> None:
    request.API_VERSION = VERSIONS[request.name]
    request.with_header(correlation_id=7, client_id=client)
    assert codec(request.name).encode(request, 7, client) == bytes(request.encode(framed=True, header=True))


def fields(found: Any, known: Any) -> Any:
    """The values of an answer of kafka-python, in the form of one of ours."""
    if isinstance(found, list):
        return [fields(each, own) for each, own in zip(found, known, strict=True)]
    names = [each.name for each in dataclasses.fields(known)] if dataclasses.is_dataclass(known) else ()
    if names or hasattr(known, "_fields"):
        values = (fields(getattr(found, name), getattr(known, name)) for name in names or known._fields)
        return type(known)(*values)
    return found


def encoded(answer: Any, name: str) -> bytes:
    answer.API_VERSION = VERSIONS[name]
    answer.with_header(correlation_id=7)
    return bytes(answer.encode(framed=False, header=True))


@given(
    st.one_of(
        FETCH_ANSWERS.map(lambda each: (each, "FetchRequest")),
        PRODUCE_ANSWERS.map(lambda each: (each, "ProduceRequest")),
        OFFSETS_ANSWERS.map(lambda each: (each, "TxnOffsetCommitRequest")),
        END_ANSWERS.map(lambda each: (each, "EndTxnRequest")),
    )
)
def test_answers_are_read_as_by_kafka_python(case: tuple[Any, str]) -> None:
    answer, name = case
    found = parse_answer(bytearray(encoded(answer, name)), 7, codec(name))
    assert found == fields(answer, found)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_answers_raise_a_value_error(seed: int) -> None:
    dice = random.Random(seed)
    part = OFFSETS_TOPIC.TxnOffsetCommitResponsePartition(partition_index=1, error_code=0)
    produced = PRODUCE_TOPIC.PartitionProduceResponse(
        index=0, error_code=0, base_offset=5, log_append_time_ms=-1, log_start_offset=0, record_errors=[],
        error_message="why",
    )  # fmt: skip
    whole = [
        (encoded(TxnOffsetCommitResponse(0, [OFFSETS_TOPIC(name="t", partitions=[part])]), name), codec(name))
        for name in ["TxnOffsetCommitRequest"]
    ]
    whole += [
        (encoded(ProduceResponse([PRODUCE_TOPIC(name="t", partition_responses=[produced])], 0), name), codec(name))
        for name in ["ProduceRequest"]
    ]
    read = refused = 0
    for _ in range(3_000):
        data, reader = dice.choice(whole)
        out = bytearray(data)
        for _ in range(dice.choice((1, 1, 2, 4))):
            out[dice.randrange(len(out))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            parse_answer(out[: dice.choice((len(out), len(out), dice.randrange(len(out))))], 7, reader)
            read += 1
        except ValueError:
            refused += 1
    assert read
    assert refused


def test_tagged_fields_are_passed_over() -> None:
    tags = b"\2\0\1x\5\2yz"  # two of them: tags 0 and 5
    body = struct.pack(">ihqh", 0, 0, 9, 4) + tags
    found = parse_answer(struct.pack(">i", 7) + tags + body, 7, codec("EndTxnRequest"))
    assert (found.producer_id, found.producer_epoch) == (9, 4)


def test_more_bytes_than_the_answer_has_are_refused() -> None:
    with pytest.raises(ValueError, match="1 bytes too many"):
        parse_answer(struct.pack(">ibihqhbb", 7, 0, 0, 0, 9, 4, 0, 0), 7, codec("EndTxnRequest"))


def test_fetched_records_stay_in_the_memory_of_their_answer() -> None:
    nothing_aborted, no_replica = b"\1", struct.pack(">i", -1)
    place = struct.pack(">ihqqq", 0, 0, 9, 9, 0) + nothing_aborted + no_replica
    topic = b"\2t" + b"\2" + place + b"\5rows" + b"\0\0"
    frame = bytearray(struct.pack(">i", 7) + b"\0" + struct.pack(">ihi", 0, 0, 1) + b"\2" + topic + b"\0")
    found = parse_answer(frame, 7, codec("FetchRequest"))
    ((part,),) = (topic.partitions for topic in found.responses)
    frame[frame.index(b"rows")] = ord("R")
    assert part.records == b"Rows"
