"""The soak's power cut: what was synchronised stays whole, the rest is in danger."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from soak_power import Power, is_possible

WRITES = """
import sys
from pathlib import Path
from penstock.state.durable_files import replace_durably, sync_directory, sync_path
folder = Path(sys.argv[1])
for number in range(30):
    file = (folder / "new").open("wb")
    file.write(b"durable")
    replace_durably(file, folder / "new", folder / f"durable-{number}")
for number in range(30):
    (folder / f"named-{number}").write_bytes(b"contents are not on the disk")
sync_directory(folder)
for number in range(30):
    (folder / f"unnamed-{number}").write_bytes(b"contents are")
    sync_path(folder / f"unnamed-{number}")
    (folder / f"nothing-{number}").write_bytes(b"neither is")
"""


@pytest.mark.skipif(not is_possible(), reason="no C compiler, or no system that preloads libraries")
def test_only_what_is_on_the_disk_is_safe(tmp_path: Path) -> None:
    power, state = Power(tmp_path), tmp_path / "state"
    (state / "app" / "replicas").mkdir(parents=True)
    environment = {**os.environ, **power.environment}
    subprocess.run([sys.executable, "-c", WRITES, str(state / "app")], env=environment, check=True)
    emptied, gone = power.lose(state, random.Random(7))
    left: dict[str, list[int]] = {}
    for path in (state / "app").iterdir():
        left.setdefault(path.name.partition("-")[0], []).append(path.stat().st_size)
    assert left["durable"] == [7] * 30
    assert len(left["named"]) == 30
    assert 0 < left["named"].count(0) < 30
    assert len(left["unnamed"]) < 30
    assert 0 not in left["unnamed"]
    assert 0 < left["nothing"].count(0) < len(left["nothing"]) < 30
    assert gone == 60 - len(left["unnamed"]) - len(left["nothing"])
    assert emptied == left["named"].count(0) + left["nothing"].count(0)
    assert "replicas" not in left
