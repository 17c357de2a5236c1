"""What an earlier version has left, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

from penstock.base.clock import unix_ms
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log

FOLDER = Path(__file__).parent
YEAR_MS = 365 * 86_400_000


def kept(name: str, target: Path) -> Path:
    """Unpack what is kept, as retention leaves it in ten years: tests have the same outcome whenever they run."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    with open_log(f"sqlite:///{target / 'log.db'}") as log:
        assert isinstance(log, EmbeddedLog)
        log.clean(unix_ms() + 10 * YEAR_MS)
    return target
