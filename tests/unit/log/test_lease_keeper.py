"""A lease is renewed from the moment it is taken, whatever its holder does, until it is released or lost."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from eventually import eventually
from penstock.errors import FencedError
from penstock.log.leases import LeaseKeeper, held_lease
from penstock.log.open import open_log

TTL_MS = 400


def test_a_lease_outlasts_its_time_to_live_while_its_holder_works(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        with held_lease(log, "app", "holder", TTL_MS) as keeper:
            after = keeper.lease.since_ms + 2 * TTL_MS
            eventually(lambda: (log.lease("app") or keeper.lease).heartbeat_ms > after)
            keeper.check()
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


def test_work_under_a_lease_that_was_lost_does_not_end_as_if_it_were_done(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:

        def work() -> str:
            with held_lease(log, "app", "first", TTL_MS) as keeper:
                log.acquire_lease("app", "second", force=True)
                keeper._thread.join(60)
                return "done"

        with pytest.raises(FencedError, match="second"):
            work()
        held = log.lease("app")
        assert held is not None
        assert (held.owner, held.released) == ("second", False)


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


def test_a_heartbeat_that_comes_after_the_release_does_not_take_the_lease_again(tmp_path: Path) -> None:
    with open_log(f"sqlite:///{tmp_path / 'log.db'}") as log:
        lease = log.acquire_lease("app", "first")
        log.renew_lease(lease)
        log.release_lease(lease)
        log.renew_lease(lease)
        held = log.lease("app")
        assert held is not None
        assert held.released
        assert log.acquire_lease("app", "second").epoch == lease.epoch + 1


@pytest.mark.logs_error("the lease of app could not be renewed")
def test_heartbeats_go_on_after_an_error_that_nobody_expected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log.db"
    with open_log(f"sqlite:///{path}") as log, closing(sqlite3.connect(path, timeout=60)) as other:
        lease = log.acquire_lease("app", "me", TTL_MS)
        keeper = LeaseKeeper(log, lease)
        other.execute("UPDATE fenced_records SET value = '{' || value")
        other.commit()
        eventually(lambda: "the lease of app could not be renewed" in caplog.text)
        other.execute("UPDATE fenced_records SET value = substr(value, 2)")
        other.commit()
        known = log.lease("app")
        assert known is not None
        eventually(lambda: (log.lease("app") or lease).heartbeat_ms > known.heartbeat_ms)
        keeper.check()
        assert keeper.end()
