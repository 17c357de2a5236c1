from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.errors import EnvironmentProblemError
from penstock.state import private_folders as module
from penstock.state.checkpoint import read_document, write_document
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica
from penstock.state.private_folders import check_folder, new_file, open_lock, own_folder, state_home
from penstock.state.segments.local_storage import LocalStorage
from penstock.state.segments.segment import SegmentHead, SegmentName, pack

OTHER = 54321  # a user id that owns nothing here


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def everybody(tmp_path):
    """A folder in which all users may make files, such as the directory for temporary files."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def given_away(monkeypatch):
    """Makes folders another user's: in truth as root, else this process takes itself for another user."""

    def give(*paths):
        if os.geteuid() == 0:
            for path in paths:
                os.chown(path, OTHER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(module.os, "geteuid", lambda: OTHER)

    return give


def test_all_that_is_made_is_closed_to_others(tmp_path):
    folder = own_folder(tmp_path / "a" / "b")
    assert [mode(each) for each in (folder, folder.parent)] == [0o700, 0o700]
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o755)
    assert mode(own_folder(open_folder)) == 0o700
    write_document(str(tmp_path / "new"), "instances/a.json", "{}")
    storage = LocalStorage(tmp_path / "state" / "0_0")
    storage.create(SegmentName(0, "delta"), pack(SegmentHead("delta", "app", "", "0_0", 0, -1, ""), {}, {})[0])
    replica = LmdbReplica(tmp_path / "replica", "app", ["s"])
    replica.close()
    made = [tmp_path / "new", tmp_path / "state", tmp_path / "replica"]
    files = [path for root in made for path in root.rglob("*")]
    assert {mode(path) for path in [*made, *files] if path.is_dir()} == {0o700}
    assert {mode(path) for path in files if path.is_file()} == {0o600}
    given = tmp_path / "project"
    given.mkdir(mode=0o755)
    write_document(str(given), "plan.json", "{}")
    assert (mode(given), mode(given / "plan.json")) == (0o755, 0o600)


def test_what_another_user_has_prepared_is_refused(everybody, given_away):
    trap = own_folder(everybody / "penstock" / "app")
    target = everybody / "target"
    target.mkdir()
    (everybody / "link").symlink_to(target)
    given_away(trap, trap.parent, target, everybody / "link")
    for place in (trap, trap / "checkpoint", everybody / "link", everybody / "link" / "app"):
        with pytest.raises(EnvironmentProblemError, match=r"is of another user .*could read and change"):
            own_folder(place)
    with pytest.raises(EnvironmentProblemError, match="another user"):
        LocalStorage(trap / "state" / "0_0").create(SegmentName(0, "delta"), [b"x"])
    with pytest.raises(EnvironmentProblemError, match="another user"):
        LmdbReplica(trap / "replica", "app", [])
    assert list(trap.iterdir()) == []


def test_links_of_ones_own_are_followed_and_links_to_files_are_not(tmp_path, everybody):
    disk = tmp_path / "disk"
    disk.mkdir()
    (everybody / "state").symlink_to(disk)
    assert own_folder(everybody / "state" / "app").is_dir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (disk / "owner.lock").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        open_lock(disk / "owner.lock")
    (disk / "plan.json").symlink_to(victim)
    write_document(str(disk), "plan.json", "{}")
    assert (victim.read_text(), read_document(str(disk), "plan.json")) == ("precious", "{}")


def test_a_folder_that_is_shared_with_a_group_stays_so(tmp_path, given_away):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    below = own_folder(shared / "app" / "state")
    assert mode(below) == 0o2770
    with new_file(below, "x") as (path, _):
        assert mode(path) == 0o660
    assert not list(below.iterdir())
    given_away(shared, below.parent, below)
    assert stat.S_ISDIR(check_folder(below).st_mode)


def test_a_file_system_that_maps_all_users_to_one_is_no_other_user(tmp_path, given_away):
    if os.geteuid() == 0:
        pytest.skip("what root makes belongs to root")
    folder = own_folder(tmp_path / "mapped")
    given_away(folder)  # what is made here belongs to the folder's owner, though that is not this user
    assert own_folder(folder) == folder


def test_the_users_directory_of_state(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_home() == tmp_path
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_home() == tmp_path / "home" / ".local" / "state"
