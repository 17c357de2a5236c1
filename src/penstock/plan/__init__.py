"""From the logical graph to sub-topologies, tasks, stages and topics."""
