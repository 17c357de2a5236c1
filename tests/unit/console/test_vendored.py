from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vendored import FOLDERS, differences


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.parent.name)
def test_vendored_files_are_those_of_the_registry_with_their_licences(folder: Path) -> None:
    assert differences(folder) == []
    assert list(folder.glob("*.LICENSE"))


def test_a_changed_missing_or_unknown_file_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "vendor"
    shutil.copytree(FOLDERS[0], folder)
    (folder / "uPlot.LICENSE").unlink()
    (folder / "more.js").write_text("")
    (folder / "dagre.min.js").write_text("alert(1)")
    assert [line.rpartition("/")[2] for line in differences(folder)] == [
        "dagre.min.js differs from its checksum", "more.js is not in vendor.json", "uPlot.LICENSE is missing",
    ]  # fmt: skip
