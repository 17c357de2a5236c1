"""What all packages stand on: times, names, texts, lines of the log, the terminal."""

__all__: list[str] = []
