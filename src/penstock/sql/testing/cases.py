"""Test cases as files have them: read, and made one for each format and configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

__all__ = ["Case", "load_cases"]


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        area: The name of its file.
        name: Its name, with format and configuration if there are several.
        entry: The entry of the file, its formats and configurations put in.
    """

    area: str
    name: str
    entry: Mapping[str, Any]

    @property
    def script(self) -> str:
        """The statements as one text."""
        return "\n".join(self.entry["statements"])

    @property
    def refused(self) -> Mapping[str, Any] | None:
        """The error that is expected: of a statement of a script, or of a request."""
        return self.entry.get("expectedException") or self.entry.get("expectedError")


def load_cases(path: Path) -> Iterator[Case]:
    """The cases of a file, or of all files of a folder. Numbers with a point keep their text.

    Raises:
        ValueError: A file is no list of cases.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        tests = json.loads(file.read_text(encoding="utf-8"), parse_float=Decimal).get("tests")
        if not isinstance(tests, list):
            raise ValueError(f"{file} has no list of tests")  # noqa: TRY004 - of a file, not of an argument
        for entry in tests:
            yield from _expanded(file.stem, entry)


def _expanded(area: str, entry: dict[str, Any]) -> Iterator[Case]:
    for form in entry.get("format") or [None]:
        for config in entry.get("config") or [None]:
            made, name = dict(entry), entry["name"]
            if form is not None:
                name = f"{name} - {form}"
                made["statements"] = [text.replace("{FORMAT}", form) for text in entry["statements"]]
            if config is not None:
                name = f"{name} - {config}"
                given = entry.get("properties", {})
                made["properties"] = {key: config if value == "{CONFIG}" else value for key, value in given.items()}
            yield Case(area, name, made)
