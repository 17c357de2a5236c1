"""Whatever a crash leaves of a replica, the state after a restore is that of the last commit."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replica_place import Running, running
from store_writes import SPECS, contents, write

from penstock.engines.threads.replicas import restoring
from penstock.state.maps import MemoryTaskState
from penstock.state.views import open_view
from penstock.topology.stores import StoreSpec

SEEDS = st.integers(0, 1 << 40)  # not lists of steps: Hypothesis makes short ones, which find nothing
STEPS = ["write"] * 14 + ["commit"] * 4 + ["crash", "half", "half", "keep", "set back", "lose", "tear", "cut"]


class Compared:
    """A task beside the same one in memory, which never crashes."""

    def __init__(self, specs: list[StoreSpec], task: Running) -> None:
        self.specs = specs
        self.task = task
        self.now = 0
        self._committed: Any = None
        self._model = MemoryTaskState(specs)
        self._kept: Path | None = None
        self.note()

    def note(self) -> None:
        """The model's state is the committed one."""
        rows = {spec.name: dict(self._model.map(spec.name).scan()) for spec in self.specs}
        self._committed = rows, dict(self._model.meta), self.now

    def go_back(self) -> None:
        """The model forgets what was not committed."""
        rows, meta, self.now = self._committed
        self._model = MemoryTaskState(self.specs)
        for store, found in rows.items():
            self._model.map(store).put_many(list(found), list(found.values()))
        self._model.meta.update(meta)

    def do(self, step: str, number: int) -> None:
        task = self.task
        match step:
            case "write":
                self._write(number)
                return
            case "commit":
                task.commit()
                self.note()
                return
            case "crash":
                task.crash()
            case "half":
                task.write_log()
                self.note()
                task.crash()
            case "keep":
                self._keep()
                return
            case "set back":
                self._set_back()
            case "lose":
                task.lose()
            case "tear":
                self._tear(number)
            case "cut":
                self._cut(number)
        self.go_back()

    def _write(self, number: int) -> None:
        dice = random.Random(number)
        spec = dice.choice(self.specs)
        self.now += dice.choice([0, 10, 1_000, 20_000, 100_000])
        for state in (self.task.replica.state, self._model):
            state.meta["stream_time"] = self.now
            view = open_view(spec, state.map(spec.name), state.meta)
            write(spec, view, random.Random(number), self.now)

    def _keep(self) -> None:
        if self.task.root is not None:
            self._kept = self.task.root.parent / "kept"
            shutil.rmtree(self._kept, ignore_errors=True)
            shutil.copytree(self.task.root, self._kept)

    def _set_back(self) -> None:
        self.task.replica.close()
        if self._kept is not None and self.task.root is not None:
            shutil.rmtree(self.task.root)
            shutil.copytree(self._kept, self.task.root)
        self.task.replica = self.task.opened()

    def _tear(self, number: int) -> None:
        self.task.replica.close()
        for file in [] if self.task.root is None else self.task.root.rglob("data.mdb"):
            content = file.read_bytes()
            file.write_bytes(content[: number % len(content)] if number % 2 else b"\x07" * 100_000)
        self.task.replica = self.task.opened()

    def _cut(self, number: int) -> None:
        """Die in a restore after a while, then once more."""
        if self.task.root is not None and number % 2:
            shutil.rmtree(self.task.root)
        for most in (number % 7, number % 11):
            self.task.replica.close()
            self.task.cut_after = most
            try:
                self.task.replica = self.task.opened()
            except InterruptedError:
                self.task.replica = self.task.unrestored
        self.task.cut_after = None
        self.task.crash()

    def check(self) -> None:
        state = self.task.replica.state
        assert dict(state.meta) == dict(self._model.meta)
        for spec in self.specs:
            found = contents(spec, state.map(spec.name), state.meta)
            assert found == contents(spec, self._model.map(spec.name), self._model.meta), spec.name


@contextmanager
def compared(specs: list[StoreSpec], place: str) -> Iterator[Compared]:
    with TemporaryDirectory() as folder:
        root = Path(folder) if place == "disk" else None
        if root is not None:
            (root / "task").mkdir()
        with running(specs, root and root / "task") as task:
            yield Compared(specs, task)


@pytest.fixture(autouse=True)
def _small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restoring, "_PIECE_BYTES", 300)
        yield


def run(both: Compared, seed: int) -> None:
    dice = random.Random(seed)
    for step in dice.choices(STEPS, k=dice.randrange(20, 120)):
        both.do(step, dice.randrange(1 << 30))
        if step != "write":
            both.check()


@pytest.mark.parametrize("place", ["memory", "disk"])
@settings(max_examples=8)
@given(SEEDS)
def test_all_stores_at_once(place: str, seed: int) -> None:
    with compared(SPECS, place) as both:
        run(both, seed)


@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
@settings(max_examples=8)
@given(SEEDS)
def test_one_store(spec: StoreSpec, seed: int) -> None:
    with compared([spec], "disk") as both:
        run(both, seed)
