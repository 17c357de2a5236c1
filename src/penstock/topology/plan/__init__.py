"""The physical plan: tasks, partition counts, levels, the plan as JSON, its evolution, and ``explain``."""
