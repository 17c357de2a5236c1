"""Stopping, dying and starting again changes nothing: the tasks that Spark's workers run, over LMDB and segments."""

from __future__ import annotations

import random
from dataclasses import replace

from agreement import Agreement, agreements
from driving import Outcome, differences, drive
from stages import staged
from support import searching

from batches import cut_in_order
from interpreter import interpret

# What processors keep in fields lasts as long as their worker.
NOT_HERE = frozenset({"fields"})


def through_stages(case, run, split, hurt=None, *, partitions=1, cache_bytes=0) -> Outcome:
    with staged(run, partitions, cache_bytes) as stages:
        for records in cut_in_order(case["inputs"], split):
            stages.run(records, hurt)
        return stages.outcome()


@searching(share=0.25, without=NOT_HERE)
def test_workers_give_what_the_driver_gives(case, split):
    run = interpret(case)
    outputs, stores = agreements(case, tasks=len(run.topology.subtopologies()))
    outputs = {topic: level for topic, level in outputs.items() if not topic.startswith("@")}
    assert differences(outputs, stores, drive(case, run), through_stages(case, run, split)) == []


@searching(share=0.25, without=NOT_HERE)
def test_a_run_that_is_hurt_gives_what_an_unhurt_one_gives(case, split):
    """Tasks die at any step and their batches run again, replicas are lost, the shuffle delivers in any order."""
    run = interpret(case)
    partitions, cache_bytes = 1 + split % 3, split % 2 << 20
    options = {"partitions": partitions, "cache_bytes": cache_bytes}
    smooth = through_stages(case, run, split, **options)
    hurt = through_stages(case, run, split, random.Random(split), **options)
    outputs = dict.fromkeys([*smooth.outputs, *hurt.outputs], Agreement.EXACT)
    stores = dict.fromkeys(smooth.stores, Agreement.EXACT)
    unhurt = replace(smooth, dropped=hurt.dropped)  # a batch that is not run again does not say what it has dropped
    assert differences(outputs, stores, unhurt, hurt) == []
