"""The workers' side: tasks, their inputs, changelogs and outputs."""

__all__: list[str] = []
