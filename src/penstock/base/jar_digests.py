"""The pinned digests of downloaded jars, so that no changed jar of a repository or cache is ever run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from penstock.errors import EnvironmentProblemError

__all__ = ["PINS", "check_jars", "pinned"]

PINS = Path(__file__).with_name("jars.sha256")
"""Lines ``digest  file name``, written by ``tools/pin_jars.py``."""


@cache
def pinned() -> Mapping[str, str]:
    """Read the pinned digests (SHA-256, hexadecimal) by file name."""
    lines = PINS.read_text(encoding="ascii").splitlines() if PINS.exists() else []
    return MappingProxyType({name: digest for digest, _, name in (line.partition("  ") for line in lines)})


def check_jars(folder: Path) -> None:
    """Compare each jar of a folder with its pinned digest.

    Raises:
        EnvironmentProblemError: A jar is not pinned, or its content differs.
    """
    digests = pinned()
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digests.get(jar.name) != digest:
            relation = "differs in content from" if jar.name in digests else "is not one of"
            raise EnvironmentProblemError(
                f"{jar} {relation} the jars that Penstock was tested with (its SHA-256 is {digest})",
                hint=f"Nothing of it was run. Delete the folder {folder} and try again; if it comes back, the "
                "machine's Maven repository serves something else under this name.",
                jar=str(jar),
            )
