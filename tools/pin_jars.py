"""Writes the digests of jars that are fetched into src/penstock/base/jars.sha256, which `fetch_jars` checks.

    python tools/pin_jars.py FOLDER...

Fetch a new set on a machine whose repository you trust, look at what came, then add its folder's jars with this. Jars
that no set has any more are taken out by hand.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from penstock.base.jars import PINS, pinned

__all__ = ["main"]


def main(folders: list[str]) -> int:
    """Add the jars of these folders; a jar that is pinned with another digest is an error."""
    known = dict(pinned())
    for folder in folders:
        for jar in sorted(Path(folder).glob("*.jar")):
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            if known.setdefault(jar.name, digest) != digest:
                print(f"{jar} is not the {jar.name} that is pinned", file=sys.stderr)
                return 1
    PINS.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(known.items())))
    print(f"{len(known)} jars are pinned in {PINS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
