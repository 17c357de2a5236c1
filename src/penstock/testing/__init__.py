"""TopologyTestDriver and what goes with it."""
