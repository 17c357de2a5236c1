"""Machines with disks that forget: what was not written to the disk before a power cut is gone, or is torn."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

__all__ = ["Machine"]

_PAGE_BYTES = 4096


class Machine:
    """A machine: its clock, its folder of replicas, and the id of its last start.

    The operating system writes changed files to the disk at times of its own (`write_back`). A power cut leaves the
    files as they were then, or some of their pages newer than others. A file that was never written back is gone, or
    has the right length and no content.

    Args:
        name: The name of the machine.
        root: The folder for all that it keeps.
    """

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root / name
        self.replicas = self.root / "replicas"
        self._disk = root / f"{name}-disk"
        self.boots = 0
        self.booted_s = 0.0
        self.clock_offset_ms = 0
        self.replicas.mkdir(parents=True, mode=0o700)
        (self.replicas / "place").write_text(f"place of {name}")
        self._disk.mkdir(mode=0o700)
        self._note_boot()

    def write_back(self, folder: Path) -> None:
        """Write the files of a replica to the disk, as the operating system does now and then."""
        target = self._disk / folder.relative_to(self.replicas)
        target.mkdir(parents=True, exist_ok=True)
        source = folder / "data.mdb"
        if source.exists():
            shutil.copyfile(source, target / "data.mdb")

    def cut_power(self, now_s: float, dice: random.Random) -> None:
        """Start the machine again after a power cut; nothing of it runs any more."""
        for file in sorted(self.replicas.rglob("data.mdb")):
            disk = self._disk / file.relative_to(self.replicas)
            before = disk.read_bytes() if disk.exists() else b""
            now, fate = file.read_bytes(), dice.random()
            if fate < 0.25:
                kept = before
            elif fate < 0.4:
                kept = bytes(len(now))
            else:
                kept = _torn(before, now, dice)
            if kept:
                file.write_bytes(kept)
                disk.parent.mkdir(parents=True, exist_ok=True)
                disk.write_bytes(kept)
            else:
                file.unlink()
        self.booted_s = now_s
        self._note_boot()

    def _note_boot(self) -> None:
        self.boots += 1
        self.boot_file = self.root.with_name(f"{self.name}-boot-{self.boots}")  # each is read once
        self.boot_file.write_text(f"{self.name}-boot-{self.boots}\n")

    def __fspath__(self) -> str:
        return os.fspath(self.boot_file)


def _torn(before: bytes, now: bytes, dice: random.Random) -> bytes:
    """Return a file some of whose pages are newer than others."""
    pages = []
    for start in range(0, len(now), _PAGE_BYTES):
        old = before[start : start + _PAGE_BYTES]
        new = now[start : start + _PAGE_BYTES]
        pages.append(new if dice.random() < 0.5 else old.ljust(len(new), b"\0"))
    return b"".join(pages)
