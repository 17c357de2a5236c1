from __future__ import annotations

import logging

from penstock.engines.offsets.offsets import SourceOffset
from penstock.engines.offsets.start_positions import resets_since, take_up_group_resets
from penstock.log.base import OffsetAndMetadata, TopicPartition
from penstock.log.groups.offset_regressions import MARK, epoch_note
from penstock.log.open import open_log

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_offsets_that_the_application_did_not_set_are_taken_up_once(tmp_path, caplog):
    with open_log("memory://") as log:
        log.create_topic("t", 2)
        log.commit_offsets("app", {A: 7, B: 8, TopicPartition("other", 0): 1}, f"{MARK} batch 3")
        lease = log.acquire_lease("app", "here")
        assert take_up_group_resets(str(tmp_path), log, lease, ["t"]) == ()
        log.release_lease(lease)
        log.commit_offsets("app", {A: 2})
        with caplog.at_level(logging.WARNING):
            first = take_up_group_resets(str(tmp_path), log, lease, ["t"])
        assert [move.offsets for move in first] == [{A: 2}]
        assert "t-0 at 2" in caplog.text
        assert log.group_offsets("app")[A] == OffsetAndMetadata(2, f"{MARK} move 1")
        assert take_up_group_resets(str(tmp_path), log, lease, ["t"]) == first
        log.commit_offsets("app", {A: 2})
        log.commit_offsets("app", {B: 0})
        assert resets_since(take_up_group_resets(str(tmp_path), log, lease, ["t"]), 1) == (2, {A: 2, B: 0})


def test_a_batch_document_says_where_it_starts():
    batch = SourceOffset({A: 5, B: 9}, 0, starts={A: 2}, resets=2)
    assert SourceOffset.of(batch.to_json()) == batch
    assert SourceOffset({A: 5}).to_json() == {"topics": {"t": {"0": 5}}, "tick": 0}


def test_offsets_that_stream_threads_have_set_are_of_others_to_micro_batches(tmp_path):
    """A conversion marks all offsets, so threads have gone on since: what they have read is not read again."""
    with open_log("memory://") as log:
        log.create_topic("t", 2)
        log.commit_offsets("app", {A: 7}, f"{MARK} batch 3")
        log.commit_offsets("app", {B: 8}, epoch_note("stream-thread thread-0", 2))
        lease = log.acquire_lease("app", "here")
        assert [each.offsets for each in take_up_group_resets(str(tmp_path), log, lease, ["t"])] == [{B: 8}]
        assert log.group_offsets("app")[A].metadata == f"{MARK} batch 3"
