"""Jars that users name by Maven coordinates: no pins are known of them, so those of the first download are noted."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from penstock.base.jars import Coordinates, fetch_jars
from penstock.errors import ConfigError, EnvironmentProblemError

__all__ = ["check_noted", "package_folder", "parse_coordinates"]

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_COORDINATE_PARTS = 3
_NOTED = "downloaded.sha256"


def parse_coordinates(text: str) -> Coordinates:
    """Read ``group:artifact:version``.

    Raises:
        ConfigError: It has another form.

    Example:
        >>> parse_coordinates("org.apache.kafka:connect-file:4.3.1")
        ('org.apache.kafka', 'connect-file', '4.3.1')
    """
    parts = tuple(text.strip().split(":"))
    if len(parts) != _COORDINATE_PARTS or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigError(
            f"{text!r} is not a Maven coordinate", hint="group:artifact:version, as org.apache.kafka:connect-file:4.3.1"
        )
    return parts[0], parts[1], parts[2]


def package_folder(coordinates: Coordinates) -> Path:
    """Return the folder of a package's jars and those that it needs; downloads them if they are not cached.

    Raises:
        EnvironmentProblemError: They cannot be downloaded, or are not those of the first download any more.
    """
    return fetch_jars("packages/" + "_".join(coordinates), [coordinates], check=check_noted)


def check_noted(folder: Path) -> None:
    """Note the digests of downloaded jars, or compare them with those that were noted."""
    note = folder / _NOTED
    digests = "".join(f"{_digest(jar)}  {jar.name}\n" for jar in sorted(folder.glob("*.jar")))
    if not note.exists():
        note.write_text(digests, encoding="ascii")
    elif note.read_text(encoding="ascii") != digests:
        raise EnvironmentProblemError(
            f"the jars in {folder} have changed since they were downloaded",
            hint=f"Nothing of them was run. Delete the folder {folder} and try again.",
        )


def _digest(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
