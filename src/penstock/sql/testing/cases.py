"""Test cases as files have them: read, and made one for each format and configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.errors import SqlError

__all__ = ["SqlCase", "case_of_files", "load_cases"]


@dataclass(frozen=True, slots=True)
class SqlCase:
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


def load_cases(path: Path) -> Iterator[SqlCase]:
    """Yield the cases of a file, or of all files of a folder. Numbers with a point keep their text.

    Raises:
        SqlError: A file cannot be read, or is not a list of cases.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    for file in files:
        for number, entry in enumerate(_listed(file, "tests")):
            _check(entry, f"{file}, test {number + 1}")
            yield from _expanded(file.stem, entry)


def case_of_files(statements: Path, inputs: Path | None = None, outputs: Path | None = None) -> SqlCase:
    """Return the case of three files, as ksqlDB's test runner takes them.

    Raises:
        SqlError: A file cannot be read, or has no list of records.
    """
    entry: dict[str, Any] = {"name": statements.stem, "statements": [_text(statements)]}
    for key, file in (("inputs", inputs), ("outputs", outputs)):
        if file is not None:
            entry[key] = _listed(file, key)
    _check(entry, str(statements))
    return SqlCase(statements.stem, statements.stem, entry)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SqlError(f"{file} cannot be read: {error}") from error


def _listed(file: Path, key: str) -> list[Any]:
    try:
        document = json.loads(_text(file), parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise SqlError(f"{file} is not JSON: {error}") from error
    listed = document.get(key) if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise SqlError(f"{file} has no list '{key}'.", hint=f'It begins with {{"{key}": [')
    return listed


def _check(entry: Any, where: str) -> None:
    """Refuse an entry that is none, with its place."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise SqlError(f"{where} has no name.")
    texts = entry.get("statements")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise SqlError(f"{where} ({entry['name']}) has no list of statements.")
    for key in ("inputs", "outputs", "topics"):
        for item in entry.get(key) or ():
            if not isinstance(item, dict) or not isinstance(item.get("name" if key == "topics" else "topic"), str):
                raise SqlError(f"{where} ({entry['name']}): one of its {key} names no topic.")


def _expanded(area: str, entry: dict[str, Any]) -> Iterator[SqlCase]:
    for form in entry.get("format") or [None]:
        for config in entry.get("config") or [None]:
            expanded, name = dict(entry), entry["name"]
            if form is not None:
                name = f"{name} - {form}"
                expanded["statements"] = [text.replace("{FORMAT}", form) for text in entry["statements"]]
            if config is not None:
                name = f"{name} - {config}"
                properties = entry.get("properties", {})
                expanded["properties"] = {
                    key: config if value == "{CONFIG}" else value for key, value in properties.items()
                }
            yield SqlCase(area, name, expanded)
