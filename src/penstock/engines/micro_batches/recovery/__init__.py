"""Recovery of state and positions: from changelogs, after a lost checkpoint, after a takeover; and resets."""

__all__: list[str] = []
