"""What production code uses in place of parts of its process: time, threads, the log, the channel to the driver.

The code itself is unchanged. For the length of a simulation the names by which its modules know these parts stand for
those of the simulation.
"""

from __future__ import annotations

import fcntl
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.base import clock as base_clock
from penstock.engines import global_store_copy
from penstock.engines.threads.hosting import control_channel, group_members, hosted_tasks, thread_host
from penstock.engines.threads.loop import global_state, stream_thread
from penstock.engines.threads.loop.commit import Purger
from penstock.engines.threads.replicas import replica_folders, restoring
from penstock.log import processes
from penstock.state.lmdb_replicas import lmdb_replica
from penstock.state.lmdb_replicas.lmdb_replica import LmdbReplica, open_environment, remove_files
from penstock.state.lmdb_replicas.other_process import watch_replicas
from penstock.testing.simulation.machines import Machine
from penstock.testing.simulation.scheduler import Actor, Scheduler, SimulatedProcess

__all__ = ["OpenCopies", "SimulatedThreads", "SimulatedTime", "installed"]

EPOCH_MS = 1_700_000_000_000  # the wall clock at the beginning
_TIMED = (
    "penstock.base.clock",
    "penstock.engines.global_store_copy",
    "penstock.engines.threads.hosting.restore_notes",
    "penstock.engines.threads.hosting.thread_host",
    "penstock.engines.threads.loop.thread_figures",
    "penstock.engines.threads.loop.global_state",
    "penstock.engines.threads.loop.standby",
    "penstock.engines.threads.loop.task",
    "penstock.engines.threads.loop.stream_thread",
    "penstock.engines.threads.replicas.restoring",
    "penstock.runtime.task",
)
_THREADED = (
    "penstock.engines.threads.loop.commit",
    "penstock.engines.threads.loop.standby",
    "penstock.engines.threads.replicas.replica_folders",
)


class SimulatedTime:
    """The module ``time``, by the clock of a scheduler and of the machine that asks; other threads see the real one.

    Args:
        scheduler: The scheduler.
    """

    CLOCK_MONOTONIC, CLOCK_BOOTTIME = 1, 7

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return 1000.0 + self._scheduler.look_s() if self._scheduler.runs_this_thread() else time.monotonic()

    perf_counter = monotonic

    def time_ns(self) -> int:
        if not self._scheduler.runs_this_thread():
            return time.time_ns()
        machine = self._machine()
        offset_ms = 0 if machine is None else machine.clock_offset_ms
        return (EPOCH_MS + offset_ms) * 1_000_000 + int(self._scheduler.look_s() * 1e9)

    def time(self) -> float:
        return self.time_ns() / 1e9

    def clock_gettime_ns(self, clock: int) -> int:
        if not self._scheduler.runs_this_thread():
            return time.clock_gettime_ns(clock)
        machine = self._machine()
        booted_s = 0.0 if machine is None else machine.booted_s
        return int((self._scheduler.look_s() - booted_s) * 1e9)

    def sleep(self, seconds: float) -> None:
        if self._scheduler.runs_this_thread():
            self._scheduler.wait(seconds)
        else:
            time.sleep(seconds)

    def _machine(self) -> Machine | None:
        actor = self._scheduler.current
        return None if actor is None else actor.process.machine

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class SimulatedThreads:
    """The module ``threading``: its threads are actors of the process that starts them.

    Args:
        scheduler: The scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.Thread = partial(_Thread, scheduler)
        self.Condition = partial(_Condition, scheduler)
        self.Event = partial(_Event, scheduler)


class _Thread:
    """A thread, see `threading.Thread`."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        target: Callable[..., None],
        name: str,
        args: tuple[Any, ...] = (),
        daemon: bool = True,  # noqa: ARG002 - as that of the standard library
    ) -> None:
        self._scheduler = scheduler
        self._target = partial(target, *args)
        self._name = name
        self._actor: Actor | None = None

    def start(self) -> None:
        process = _current(self._scheduler).process
        name = f"{process.name} {self._name.removeprefix('penstock-')}"
        self._actor = self._scheduler.spawn(name, process, self._target)

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.is_done

    def join(self, timeout: float | None = None) -> None:
        self._scheduler.wait(1e9 if timeout is None else timeout, lambda: not self.is_alive())


class _Condition:
    """A condition with its lock, see `threading.Condition`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Actor | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = None

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        if not predicate():
            depth, self._depth, self._holder = self._depth, 0, None
            try:
                self._scheduler.wait(1e9 if timeout is None else timeout, lambda: bool(predicate()))
            finally:  # also of a process that has ended: the blocks around are left
                self._holder, self._depth = self._scheduler.current, depth
        return bool(predicate())

    def notify_all(self) -> None:
        """Do nothing: the scheduler asks those who wait."""

    def _take(self) -> None:
        me = self._scheduler.current
        if self._holder not in (None, me):
            self._scheduler.wait(1e9, lambda: self._holder is None)
        self._holder = me
        self._depth += 1


class _Event:
    """An event, see `threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._scheduler.wait(1e9 if timeout is None else timeout, self.is_set)
        return self._is_set


def _current(scheduler: Scheduler) -> Actor:
    assert scheduler.current is not None, "only actors start threads"  # noqa: S101
    return scheduler.current


def _let_go(replica: Any) -> None:
    """Close the files of a replica, as the operating system does when their process ends."""
    replica._close_env()  # noqa: SLF001 - `close` would also tidy up, which a process that has crashed does not
    replica._lock.close()  # noqa: SLF001


class _Watched:
    """A replica that another simulated process has open, see `WatchedReplica`: LMDB opens a file once in a process."""

    def __init__(self, replica: Any) -> None:
        self.position = replica.position

    def reader(self) -> Self:
        return self

    def close(self) -> None:
        """Do nothing: it holds nothing."""


def _folder(path: Path) -> Path:
    """Make a folder, see `own_folder`; whose the folders on the way are is no part of a simulation."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


class _SharedEnvironments:
    """LMDB's files: each is opened once in this process, for all simulated processes that have it open."""

    def __init__(self) -> None:
        self._users: dict[tuple[int, int], tuple[Any, list[_SharedEnvironment]]] = {}

    def open(self, directory: Path, map_bytes: int, stores: int, *, flushes: bool) -> _SharedEnvironment:
        """Open an environment, see `open_environment`."""
        file = directory / "data.mdb"
        opened = self._users.get(_identity(file)) if file.exists() else None
        if opened is None:
            env = open_environment(directory, map_bytes, stores, flushes=flushes)
            opened = self._users[_identity(file)] = env, []
        env, users = opened
        users.append(_SharedEnvironment(env, self._closed))
        return users[-1]

    def _closed(self, user: _SharedEnvironment) -> None:
        for identity, (env, users) in self._users.items():
            if user in users:
                users.remove(user)
                if not users:
                    del self._users[identity]
                    env.close()
                return


class _SharedEnvironment:
    """An environment as one simulated process has it open."""

    def __init__(self, env: Any, on_close: Callable[[_SharedEnvironment], None]) -> None:
        self._env, self._on_close = env, on_close

    def close(self) -> None:
        """Close it; the files are closed when nobody has them open."""
        self._on_close(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def _identity(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


class _FileLocks:
    """The module ``fcntl``: who waits for the lock of a file lets others go on."""

    LOCK_EX, LOCK_NB, LOCK_UN = fcntl.LOCK_EX, fcntl.LOCK_NB, fcntl.LOCK_UN

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def flock(self, file: Any, operation: int) -> None:
        is_patient = not operation & (fcntl.LOCK_NB | fcntl.LOCK_UN) and self._scheduler.runs_this_thread()
        while is_patient:
            try:
                fcntl.flock(file, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                self._scheduler.wait(_LOCKED_S)
            else:
                return
        fcntl.flock(file, operation)


_LOCKED_S = 0.01  # between two tries for a lock


class OpenCopies:
    """The folders of copies of global stores that processes have open: each process sees its own.

    Args:
        scheduler: The scheduler.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._open: set[tuple[SimulatedProcess | None, Path]] = set()

    def add(self, folder: Path) -> None:
        """Note that the present process has a copy open."""
        self._open.add((self._process(), folder))

    def discard(self, folder: Path) -> None:
        """Note that the present process has closed a copy."""
        self._open.discard((self._process(), folder))

    def __contains__(self, folder: Path) -> bool:
        return (self._process(), folder) in self._open

    def followed(self) -> set[Path]:
        """Return the copies that living processes have open."""
        return {folder for process, folder in self._open if process is not None and not process.is_dead}

    def _process(self) -> SimulatedProcess | None:
        return None if self._scheduler.current is None else self._scheduler.current.process


class _BootId:
    """The path of the boot id of the machine that asks."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __fspath__(self) -> str:
        actor = self._scheduler.current
        return "/nowhere" if actor is None else actor.process.machine.__fspath__()


class _Uuids:
    """The module ``uuid``, whose random ids are those of the seed."""

    UUID, uuid5 = uuid.UUID, staticmethod(uuid.uuid5)

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._scheduler.dice.getrandbits(128))


@contextmanager
def installed(
    scheduler: Scheduler, open_log: Callable[[], Any], client: Any, on_disk: Callable[[Any, str], None]
) -> Iterator[OpenCopies]:
    """Have production modules use the simulation's parts in place of their process's; yield the copies that are open.

    Args:
        scheduler: The scheduler.
        open_log: Returns a connection of the present process to the log.
        client: The class in place of `ControlClient`.
        on_disk: Called before and after each write to a replica.
    """
    clock, threads, copies = SimulatedTime(scheduler), SimulatedThreads(scheduler), OpenCopies(scheduler)
    opened, move = LmdbReplica.__init__, LmdbReplica._move  # noqa: SLF001 - every write goes by it
    replicas: list[Any] = []

    def noted(self: Any, *args: Any, **options: Any) -> None:
        opened(self, *args, **options)
        if scheduler.current is not None:
            scheduler.current.process.releases.append(partial(_let_go, self))
            replicas.append(self)

    def watched(directory: Path, identity: str, stores: Iterable[str]) -> list[Any]:
        is_open = lambda each: each._env is not None and each.directory.parent == directory  # noqa: E731, SLF001
        return [*map(_Watched, filter(is_open, replicas)), *watch_replicas(directory, identity, stores)]

    def moved(self: Any, *args: Any) -> Any:
        on_disk(self, "write a replica")
        rows = move(self, *args)
        on_disk(self, "written a replica")
        return rows

    def removed(directory: Path) -> None:
        if scheduler.current is None or not scheduler.current.process.is_dead:  # else it closes nothing any more
            remove_files(directory)

    parts: list[tuple[Any, str, Any]] = [(import_module(name), "time", clock) for name in _TIMED]
    parts += [(import_module(name), "threading", threads) for name in _THREADED]
    parts += [
        (base_clock, "_BOOT_ID", _BootId(scheduler)),
        (processes, "_own_place", lambda: "simulated"),  # else kept from the first simulated machine
        (stream_thread, "Purger", partial(Purger, clock_s=clock.monotonic)),
        (hosted_tasks, "open_log", lambda *_: open_log()),
        (hosted_tasks, "_NEAR", 3),
        (control_channel, "ControlClient", client),
        (group_members, "uuid", _Uuids(scheduler)),
        (global_store_copy, "_PIECE_RECORDS", 3),
        (global_store_copy, "fcntl", _FileLocks(scheduler)),
        (global_state, "_open_here", copies),
        (lmdb_replica, "open_environment", _SharedEnvironments().open),
        (lmdb_replica, "own_folder", _folder),
        (lmdb_replica, "remove_files", removed),
        (replica_folders, "watch_replicas", watched),
        (restoring, "_PIECE_BYTES", 100),
        (thread_host, "load_app", lambda _: None),
        (thread_host, "_log_of", lambda _: open_log()),
        (thread_host, "_close_log", lambda _: None),
        (LmdbReplica, "__init__", noted),
        (LmdbReplica, "_move", moved),
    ]
    before = [(where, name, getattr(where, name)) for where, name, _ in parts]
    logger = logging.getLogger("penstock")
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)  # what is logged about faults is not about this process
        for where, name, part in parts:
            setattr(where, name, part)
        yield copies
    finally:
        logger.setLevel(level)
        for where, name, part in before:
            setattr(where, name, part)
