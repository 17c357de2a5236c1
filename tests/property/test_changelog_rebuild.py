"""State that is rebuilt from changelog topics alone goes on like state that was never lost."""

from __future__ import annotations

import random
from dataclasses import replace

from agreement import Agreement
from driving import Outcome, differences
from hypothesis import assume
from stages import staged
from support import searching
from test_restart_invariance import NOT_HERE, through_stages

from batches import cut_in_order
from interpreter import interpret


def rebuilt_on_the_way(case, run, split, *, partitions, cache_bytes, uncommitted=False) -> Outcome:
    dice = random.Random(split)
    with staged(run, partitions, cache_bytes) as stages:
        batches = cut_in_order(case["inputs"], split)
        losses = set(dice.sample(range(len(batches)), min(2, len(batches))))
        for number, records in enumerate(batches):
            stages.run(records)
            if number in losses:
                stages.rebuild(dice, uncommitted=uncommitted)
        return stages.outcome()


@searching(share=0.2, without=NOT_HERE)
def test_rebuilding_from_changelogs_changes_nothing(case, split):
    run = interpret(case)
    options = {"partitions": 1 + split % 3, "cache_bytes": split % 2 << 20}
    calm = through_stages(case, run, split, **options)
    rebuilt = rebuilt_on_the_way(case, run, split, **options)
    outputs = dict.fromkeys([*calm.outputs, *rebuilt.outputs], Agreement.EXACT)
    stores = dict.fromkeys(calm.stores, Agreement.EXACT)
    again = replace(calm, dropped=rebuilt.dropped)  # a global table that is read once more drops once more
    assert differences(outputs, stores, again, rebuilt) == []


@searching(share=0.1, without=NOT_HERE)
def test_a_batch_that_was_written_and_not_committed_is_not_written_twice(case, split):
    run = interpret(case)
    assume(not run.topology.internal_topics)  # else rows for them may be lost, and rebuild() says so
    options = {"partitions": 1 + split % 3, "cache_bytes": split % 2 << 20}
    calm = through_stages(case, run, split, **options)
    rebuilt = rebuilt_on_the_way(case, run, split, **options, uncommitted=True)
    outputs = dict.fromkeys([*calm.outputs, *rebuilt.outputs], Agreement.EXACT)
    stores = dict.fromkeys(calm.stores, Agreement.EXACT)
    assert differences(outputs, stores, replace(calm, dropped=rebuilt.dropped), rebuilt) == []
