"""Places in stream threads and their driver at which a test lets a process die or stop; the product knows none of it.

A process with `environment` wraps the functions of SITES as their modules are imported. A test arms one place at a time
by a file; the first process that comes there takes the file away, notes its id, and kills or stops itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

VARIABLE = "PENSTOCK_TEST_FAULT"
APPLICATIONS = "_app.py"  # the names of the programs that tests start end so


class Site(NamedTuple):
    """A function, by its module and its name there, and when: before or after a call."""

    module: str
    function: str
    when: str


_THREAD, _TASK = "penstock.engines.threads.loop.stream_thread", "penstock.engines.threads.loop.task"
_KAFKA, _EMBEDDED = "penstock.log.kafka.transactions.commit_producer", "penstock.log.embedded.log"
_START = "penstock.engines.threads.hosting.epoch_start"

# Of threads, in the order of an interval.
BOTH = {
    "processed": [Site(_TASK, "ActiveTask.process", "after")],
    "before the transaction": [
        Site(_KAFKA, "KafkaCommitProducer.commit", "before"),
        Site(_EMBEDDED, "EmbeddedCommitProducer.commit", "before"),
    ],
    "in the transaction": [
        Site("penstock.log.kafka.wire.transactions", "ProducerTransactions.end", "before"),
        Site("penstock.log.embedded.log", "write_offsets", "after"),
    ],
    "before the replica": [
        Site(_KAFKA, "KafkaCommitProducer.commit", "after"),
        Site(_EMBEDDED, "EmbeddedCommitProducer.commit", "after"),
    ],
    "in the replica": [Site("penstock.state.lmdb_replicas.lmdb_replica", "LmdbReplica._write_position", "before")],
    "after the replica": [Site("penstock.engines.threads.replicas.task_replica", "TaskReplica.commit", "after")],
}
STARTING = {
    "before the start": [Site(_THREAD, "StreamThread.start", "before")],
    "before a restore": [Site("penstock.engines.threads.replicas.restoring", "Restorer.run", "before")],
    "in a restore": [Site("penstock.engines.threads.replicas.restoring", "Restorer._apply", "after")],
    "after the start": [Site(_THREAD, "StreamThread.start", "after")],
}
DRIVER = {
    "before the epoch": [Site(_START, "pickle_app", "after")],
    "in the epoch's start": [Site(_START, "commit_start_positions", "after")],
    "before the epoch's threads": [Site("penstock.engines.threads.hosting.epoch_start", "prepare_epoch", "after")],
}
SITES = {**BOTH, **STARTING, **DRIVER}


class Fault:
    """The place that is armed at the moment, as a test sees it; ``root`` is a folder that the processes share."""

    def __init__(self, root: Path) -> None:
        self._file = root / "fault"
        self._taken = root / "fault.taken"
        hooks = root / "fault-hooks"
        hooks.mkdir()
        lines = (
            f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\nimport fault_sites\nfault_sites.install()\n"
        )
        (hooks / "sitecustomize.py").write_text(lines)
        self._hooks = hooks

    def environment(self, given: dict[str, str]) -> dict[str, str]:
        """An environment in which processes come to the places."""
        path = os.pathsep.join([str(self._hooks), *filter(None, [given.get("PYTHONPATH")])])
        return {**given, "PYTHONPATH": path, VARIABLE: str(self._file)}

    def arm(self, site: str, action: str = "kill") -> None:
        """Let the next process that comes to a place kill or stop itself."""
        assert site in SITES
        self._taken.unlink(missing_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(f"{site}|{action}")
        new.replace(self._file)

    def disarm(self) -> None:
        self._file.unlink(missing_ok=True)

    @property
    def taken_by(self) -> int | None:
        """The process that has come to the place."""
        text = self._taken.read_text() if self._taken.exists() else ""
        return int(text) if text else None


def install() -> None:
    """Wrap the functions in this process, as their modules are imported."""
    if os.environ.get(VARIABLE):
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]


class _Finder:
    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        wanted = [(label, site) for label, sites in SITES.items() for site in sites if site.module == name]
        spec = PathFinder.find_spec(name, path) if wanted else None
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            for label, site in wanted:
                _wrap(module, label, site)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _wrap(module: ModuleType, label: str, site: Site) -> None:
    owner: Any = module
    *classes, name = site.function.split(".")
    for each in classes:
        owner = getattr(owner, each)
    function: Callable[..., Any] = getattr(owner, name)

    @wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        if site.when == "before":
            _reach(label)
        found = function(*args, **options)
        if site.when == "after":
            _reach(label)
        return found

    setattr(owner, name, wrapped)


def _reach(label: str) -> None:
    if label not in DRIVER and sys.argv[0].endswith(APPLICATIONS):
        return  # its driver, which ends transactions, too: those of its lease and of its notes
    file = Path(os.environ[VARIABLE])
    try:
        site, action = file.read_text().split("|")
        if site != label:
            return
        os.rename(file, file.with_suffix(".mine"))  # noqa: PTH104 - only one process succeeds
    except (FileNotFoundError, ValueError):
        return
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(str(os.getpid()))
    new.replace(file.with_suffix(".taken"))
    os.kill(os.getpid(), signal.SIGSTOP if action == "stop" else signal.SIGKILL)
