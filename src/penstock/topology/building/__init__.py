"""From the calls of the fluent API to nodes: names, graph, optimisations."""
