"""A segment that counts survives a power cut: nothing changes in its folder after the folder was synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.segments import local_storage as storage_module
from penstock.state.segments.local_storage import LocalStorage
from penstock.state.segments.segment import SegmentName


@pytest.mark.parametrize("is_late", [False, True])
def test_the_folder_is_synced_after_its_last_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    storage, name = LocalStorage(tmp_path / "0_0"), SegmentName(3, "delta")
    if is_late:
        assert storage.create(name, [b"the faster attempt"])
    synced: list[list[tuple[str, int]]] = []

    def names() -> list[tuple[str, int]]:
        return sorted((path.name, path.stat().st_nlink) for path in (tmp_path / "0_0").iterdir())

    monkeypatch.setattr(storage_module, "sync_directory", lambda _: synced.append(names()))
    assert storage.create(name, [b"one"]) is not is_late
    assert synced[-1] == names() == [("3.delta", 1)]


def test_a_segment_that_is_found_is_made_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, name = LocalStorage(tmp_path / "0_0"), SegmentName(3, "delta")
    synced: list[Path] = []
    with monkeypatch.context() as patch:
        patch.setattr(storage_module, "sync_directory", lambda _: None)  # its process is killed before
        storage.create(name, [b"one"])
    monkeypatch.setattr(storage_module, "sync_path", synced.append)
    monkeypatch.setattr(storage_module, "sync_directory", synced.append)
    storage.make_durable(name)
    assert synced == [tmp_path / "0_0" / "3.delta", tmp_path / "0_0"]
