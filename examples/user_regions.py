"""How many users live in each region, of the larger regions: Confluent's UserRegionLambdaExample.

A user who moves is taken from one region and added to another: a table's groups subtract before they add.
"""

from __future__ import annotations

from penstock import Materialized, Produced, StreamsBuilder

config = {
    "application.id": "user-region-example",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "statestore.cache.max.bytes": 0,
}

builder = StreamsBuilder()
region_counts = (
    builder.table("UserRegions")
    .group_by(lambda user, region: (region, user))
    .count(Materialized("CountsByRegion"))
    .filter(lambda count: count >= 2)
)
(
    region_counts.to_stream()
    # A region that has become too small gives a null; the output is to have counts only.
    .filter(lambda count: count is not None)
    .to("LargeRegions", Produced(key_serde="string", value_serde="long"))
)
topology = builder.build()

RECORDS = [
    ("UserRegions", "alice", "asia"),
    ("UserRegions", "bob", "europe"),
    ("UserRegions", "alice", "europe"),
    ("UserRegions", "carl", "europe"),
    ("UserRegions", "bob", "asia"),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
