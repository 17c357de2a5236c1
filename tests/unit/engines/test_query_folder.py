"""The folders of Spark's notes: one for each process, and none is left of those that were killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from penstock.engines.threads.hosting.query_folder import own_query_folder, remove_query_folder
from penstock.log.processes import process_start

OWN = (
    "from pathlib import Path; import sys; from penstock.engines.threads.hosting.query_folder import own_query_folder; "
)
OWN += "folder = own_query_folder(Path(sys.argv[1])); folder.mkdir(); (folder / 'metadata').touch(); "


def test_the_folder_of_a_killed_process_is_removed_at_the_next_start(tmp_path: Path) -> None:
    code = f"{OWN} import os; os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=120)
    assert len([*tmp_path.glob("query-*/metadata")]) == 1
    own = own_query_folder(tmp_path)
    own.mkdir()
    assert [*tmp_path.glob("query-*/")] == [own]
    assert len([*tmp_path.iterdir()]) == 2  # and who owns it


def test_the_folder_of_a_process_that_runs_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"{OWN} print(folder, flush=True); input()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        assert own_query_folder(tmp_path) != theirs
        assert (theirs / "metadata").exists()
        other.communicate("\n", timeout=60)


def test_folders_of_another_machine_stay_and_have_other_names(tmp_path: Path) -> None:
    """Two containers that share a disk may both be process 1."""
    owner = tmp_path / "query-0123.owner.json"
    owner.write_text(json.dumps(["elsewhere", os.getpid(), "another-machine/12345"]))
    (tmp_path / "query-0123").mkdir()
    own = own_query_folder(tmp_path)
    assert (tmp_path / "query-0123").is_dir()
    assert own.name != "query-0123"
    assert own_query_folder(tmp_path) == own
    noted = json.loads((tmp_path / f"{own.name}.owner.json").read_text())
    assert noted == [socket.gethostname(), os.getpid(), process_start(os.getpid())]


def test_nothing_is_left_of_an_instance_that_has_ended_in_order(tmp_path: Path) -> None:
    own = own_query_folder(tmp_path)
    own.mkdir()
    remove_query_folder(own)
    assert [*tmp_path.iterdir()] == []
