"""Jobs on Spark's web page say what they run."""

from __future__ import annotations

from penstock import StreamsBuilder
from penstock.engines.micro_batches.engine import stage_descriptions
from penstock.topology.plan.plan import plan_of


def test_each_stage_names_its_sub_topologies_and_their_topics() -> None:
    builder = StreamsBuilder()
    builder.stream("words").group_by(lambda value: value).count("counts").to_stream().to("out")
    builder.stream("beside").to("beside-out")
    words = stage_descriptions(plan_of(builder.build(), "app", {"words": 2, "beside": 1}))
    assert words == "stage 1: sub-topology 0 (words), 2 (beside); stage 2: sub-topology 1 (counts-repartition)"


def test_many_are_counted() -> None:
    builder = StreamsBuilder()
    builder.stream([f"t{n}" for n in range(9)]).to("out")
    for n in range(5):
        builder.stream(f"in{n}").to(f"out{n}")
    counts = dict.fromkeys([f"t{n}" for n in range(9)] + [f"in{n}" for n in range(5)], 1)
    words = stage_descriptions(plan_of(builder.build(), "app", counts))
    assert "sub-topology 0 (t0, t1, t2 and 6 more), 1 (in0), 2 (in1) and 3 more" in words
    assert len(words) < 150
