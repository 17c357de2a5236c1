"""A power cut without a machine of one's own: what no process has had written to the disk is taken back.

A library that all processes of the application load (``synced.c``) notes each fsync. After they were stopped and killed
at one moment, a file keeps its contents only if an fsync came after its last change, and its name only if an fsync of
its folder came after that. What is not sure goes by chance: it is there, it is empty, or it is gone, as file systems do it.
Deletions are not taken back. Replicas are removed, as a start after a boot does.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("synced.c")


def is_possible() -> bool:
    """It takes a C compiler, and a system that preloads libraries."""
    return os.uname().sysname == "Linux" and shutil.which("cc") is not None


@dataclass(frozen=True)
class Noted:
    """What fsync has made durable of a file or a folder."""

    size: int
    changed_ns: int
    at_ns: int


class Power:
    """The notes of one soak.

    Args:
        folder: For the library and its notes.
    """

    def __init__(self, folder: Path) -> None:
        self._library = folder / "synced.so"
        self._notes = folder / "synced.txt"
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)

    @property
    def environment(self) -> dict[str, str]:
        """Of all processes that may be cut off."""
        return {"LD_PRELOAD": str(self._library), "PENSTOCK_SOAK_SYNCED": str(self._notes)}

    def lose(self, below: Path, chance: random.Random) -> tuple[int, int]:
        """Takes back what is not durable; gives how many files were emptied and how many are gone."""
        noted = self._read()
        for replicas in list(below.rglob("replicas")):
            shutil.rmtree(replicas)
        emptied = gone = 0
        for path in sorted(path for path in below.rglob("*") if path.is_file() and not path.is_symlink()):
            found, folder = path.stat(), path.parent.stat()
            own, of_folder = noted.get((found.st_dev, found.st_ino)), noted.get((folder.st_dev, folder.st_ino))
            is_whole = own is not None and (own.size, own.changed_ns) == (found.st_size, found.st_mtime_ns)
            is_named = of_folder is not None and of_folder.at_ns >= found.st_ctime_ns
            fate = chance.choice(["kept", "empty", "gone"])
            if fate == "gone" and not is_named:
                path.unlink()
                gone += 1
            elif fate == "empty" and not is_whole:
                os.truncate(path, 0)
                emptied += 1
        return emptied, gone

    def _read(self) -> dict[tuple[int, int], Noted]:
        """(device, inode) -> the last note."""
        found = {}
        if self._notes.exists():
            for line in self._notes.read_text().splitlines():
                device, inode, size, changed_ns, at_ns = map(int, line.split())
                found[device, inode] = Noted(size, changed_ns, at_ns)
        return found
