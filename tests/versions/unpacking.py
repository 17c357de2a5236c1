"""What an earlier version has left, unpacked."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import lmdb

from penstock.base.clock import boot_id, unix_ms
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.state.lmdb_replicas.lmdb_replica import ABOUT, NUMBERS
from penstock.state.maps import time_notes

FOLDER = Path(__file__).parent
YEAR_MS = 365 * 86_400_000


def kept(name: str, target: Path) -> Path:
    """Unpack what is kept, as retention leaves it in ten years: tests have the same outcome whenever they run.

    Its replicas are as if they had been left a moment ago: those of another start of the machine would not be used.
    """
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    with open_log(f"sqlite:///{target / 'log.db'}") as log:
        assert isinstance(log, EmbeddedLog)
        log.clean(unix_ms() + 10 * YEAR_MS)
    for replica in target.glob("state/**/data.mdb"):
        _left_just_now(replica.parent)
    return target


def _left_just_now(replica: Path) -> None:
    with lmdb.open(str(replica), max_dbs=1, lock=False) as environment:
        numbers = environment.open_db(b"numbers", create=False)
        with environment.begin(db=numbers, write=True) as transaction:
            about = json.loads(transaction.get(ABOUT))
            position = json.loads(transaction.get(NUMBERS))
            transaction.put(ABOUT, json.dumps({**about, "boot": boot_id()}).encode())
            transaction.put(
                NUMBERS, json.dumps({**position, "notes": {**position.get("notes", {}), **time_notes()}}).encode()
            )
