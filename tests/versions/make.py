"""Writes what this version leaves behind into archives beside this file, for later versions to go on with.

    python tests/versions/make.py [NAME ...]      # threads, batches, sql, connect; all by default

Run it for a format whose number has grown, and keep the archive of the number before under another name.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from penstock import KafkaStreams
from versions import kept_application, kept_connect, kept_sql

FOLDER = Path(__file__).parent


def application(mode: str) -> Callable[[Path], None]:
    """Return what runs the application over the first part of its input."""

    def run(root: Path) -> None:
        kept_application.write(root, 0)
        settings = kept_application.settings(root, **{"processing.mode": mode})
        KafkaStreams(kept_application.topology(), settings).run(until="latest")

    return run


KEPT: dict[str, Callable[[Path], None]] = {
    "threads": application("continuous"),
    "batches": application("micro_batch"),
    "sql": kept_sql.begin,
    "connect": kept_connect.begin,
}


def packed(name: str, target: Path) -> None:
    """Make what is kept under this name, and pack it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        KEPT[name](root)
        with tarfile.open(target, "w:xz") as archive:
            for path in sorted(root.rglob("*")):
                if path.suffix not in (".lock", ".db-shm") and path.name != "owner.lock" and not path.is_socket():
                    archive.add(path, path.relative_to(root), recursive=False)


def main() -> None:
    for name in sys.argv[1:] or KEPT:
        target = FOLDER / f"{name}.tar.xz"
        packed(name, target)
        print(f"{target.name}: {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
