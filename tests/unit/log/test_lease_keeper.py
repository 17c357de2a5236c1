"""A lease is renewed from the moment it is taken, whatever its holder does, until it is released or lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from eventually import eventually
from penstock.errors import FencedError
from penstock.log.lease_keeper import LeaseKeeper, held_lease
from penstock.log.open import open_log

TTL_MS = 400


def test_a_lease_outlasts_its_time_to_live_while_its_holder_works(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        with held_lease(log, "app", "holder", TTL_MS):
            end = time.monotonic() + 4 * TTL_MS / 1000
            while time.monotonic() < end:
                with pytest.raises(FencedError, match="runs already: holder"):
                    log.acquire_lease("app", "second")
        assert log.acquire_lease("app", "second").epoch == 2


def test_a_holder_that_was_overtaken_is_told_and_writes_no_more(tmp_path: Path) -> None:
    lost = threading.Event()
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        keeper = LeaseKeeper(log, log.acquire_lease("app", "first", TTL_MS), lost.set)
        keeper.check()
        newer = log.acquire_lease("app", "second", force=True)
        assert lost.wait(60)
        with pytest.raises(FencedError, match="second"):
            keeper.check()
        assert keeper.end()
        assert log.lease("app") == newer


def test_a_lease_is_replaced_between_two_heartbeats(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        keeper = LeaseKeeper(log, log.acquire_lease("app", "me", TTL_MS))
        for epoch in range(2, 30):
            lease = keeper.replace(lambda before: log.acquire_lease("app", "me", TTL_MS, replacing=before))
            assert lease.epoch == epoch
            time.sleep(0.01)
        beat = lease.heartbeat_ms
        eventually(lambda: (log.lease("app") or lease).heartbeat_ms > beat)
        keeper.check()
        keeper.end()
