"""`python -m penstock`: the command-line tool, where its script is not on the path."""

from __future__ import annotations

from penstock.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
