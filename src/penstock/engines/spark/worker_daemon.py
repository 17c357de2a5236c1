"""Spark's daemon of Python workers, which has imported what each of them needs before it forks them.

PySpark's own forks empty processes: each worker imports the same 1,000 modules once more, 0.9 s of CPU time and 60 MB
each. Here they are imported once, and workers share the memory. When it forks, no other thread runs Python code, and
nothing is open: what the modules start (threads of the allocators) a worker can do without.

Spark starts it by the setting ``spark.python.daemon.module``, where all of it runs in one process. As it does so late,
when the first job runs, the driver starts one ahead, which imports while Java starts. What Spark starts then hands its
streams and its environment to that one. Where queries of micro-batches will run, the one ahead leaves a second process
behind, which forks those that plan (`forked_processes`).
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from runpy import run_module

from penstock.engines.spark import forked_processes

__all__ = ["DaemonAhead", "main"]

_NEEDED = (  # by tasks of both modes over an embedded log; what else they need they import themselves
    "pyspark.worker",
    "penstock.api.topology",
    "penstock.engines.threads.hosting.control_channel",
    "penstock.engines.threads.hosting.hosted_tasks",
    "penstock.engines.threads.hosting.thread_host",
    "penstock.engines.threads.loop.bounded_log",
    "penstock.engines.threads.loop.stream_thread",
    "penstock.engines.threads.replicas.replica_folders",
    "penstock.log.embedded.log",
    "penstock.serde.model_serde",
    "penstock.serde.serdes",
)
_AHEAD = "PENSTOCK_WORKER_DAEMON"
_WORKER_MODULE = "pyspark.worker"
_LISTENING = "--listening"


class DaemonAhead:
    """A daemon that the driver has started, and that waits for the process which Spark starts as its daemon.

    It ends when this process does; when Spark has it, with Spark.

    Args:
        environment: What the workers' environment has beside the driver's: libraries read it as they are imported.
        plans: Whether it also forks the processes in which Spark plans micro-batches.

    Raises:
        OSError: It cannot be started; Spark's own start is enough.
    """

    def __init__(self, environment: Mapping[str, str], *, plans: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-daemon-"))  # of this user alone
        self._forks = Path(tempfile.mkdtemp(prefix="penstock-forks-")) if plans else None
        try:
            with ExitStack() as sockets:
                numbers = []
                for folder in (self._folder, *([self._forks] if self._forks else [])):
                    listening = sockets.enter_context(socket.socket(socket.AF_UNIX))
                    listening.bind(str(folder / "socket"))
                    listening.listen(len(forked_processes.STREAMS))
                    numbers.append(listening.fileno())
                self._process = subprocess.Popen(  # noqa: S603 - nobody else's command
                    [sys.executable, "-m", __name__, _WORKER_MODULE, _LISTENING, *map(str, numbers)],
                    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=numbers, process_group=0,
                    env={"PYTHONHASHSEED": "0", **os.environ, "PYTHONUNBUFFERED": "YES", **environment},  # as Spark's
                )  # fmt: skip
        except OSError:
            self._remove()
            raise
        threading.Thread(target=self._wait, name="penstock-worker-daemon", daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """What the environment of Spark's daemon has to have, so that it finds this one."""
        return {_AHEAD: f"{self._folder / 'socket'}{os.pathsep}{sys.executable}"}

    @property
    def environment_of_java(self) -> dict[str, str]:
        """What the environment of Spark's JVM has to have, so that processes that plan are forked."""
        return (
            {forked_processes.ENVIRONMENT: f"{self._forks / 'socket'}{os.pathsep}{sys.executable}"}
            if self._forks
            else {}
        )

    def end(self) -> None:
        """End it, unless Spark has it."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _wait(self) -> None:
        self._process.wait()
        self.end()
        self._remove()

    def _remove(self) -> None:
        for folder in (self._folder, self._forks):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Be the daemon: at once, or of the process that Spark starts, or hand that process's part over to one ahead."""
    waits = _LISTENING in sys.argv
    os.environ.pop(forked_processes.ENVIRONMENT, None)  # no matter of workers
    if not waits:
        _hand_over()
    _import_ahead()
    if waits:
        waiting, *forking = map(int, sys.argv[sys.argv.index(_LISTENING) + 1 :])
        if forking and os.fork() == 0:
            os.close(waiting)
            _run(forked_processes.serve(*forking))
            return
        for number in forking:
            os.close(number)
        if not _take_over(waiting):
            return
    from pyspark import daemon

    manager: Callable[[], None] = daemon.manager
    manager()


def _import_ahead() -> None:
    from penstock.base.late_pandas import keep_pandas_out

    keep_pandas_out()
    for name in _NEEDED:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001 - a worker that needs it says so where the user sees it
            print(f"{name} cannot be imported ahead: {error!r}", file=sys.stderr)
    os.register_at_fork(after_in_child=_draw_other_numbers)
    gc.collect()
    gc.freeze()  # a collection in a worker would write to each object, and so copy the shared pages


def _hand_over() -> None:
    """Give the streams and the environment to the daemon that was started ahead; return if there is none."""
    path = forked_processes.other_process(_AHEAD)
    if not path:
        return
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
            socket.send_fds(connection, [b"\n"], forked_processes.STREAMS)
            connection.sendall(json.dumps([sys.argv, sys.path, dict(os.environ)]).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            is_taken = bool(connection.recv(1))
        except OSError:
            is_taken = False
        if not is_taken:
            return  # it has gone, or another process of Spark's has it
        forked_processes.wait_as_cat(connection)


def _run(module: str) -> None:
    """Run a module as the program of this process."""
    sys.modules.pop(module, None)  # its contents are imported, but it is not the program
    run_module(module, run_name="__main__", alter_sys=True)


def _take_over(waiting: int) -> bool:
    """Wait for the process that Spark starts, and go on in its place; return False if the driver or Spark has ended."""
    import select

    listening = socket.socket(fileno=waiting)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(listening, select.POLLIN)
    has_ended = any(number == 0 for number, _ in poller.poll())
    connection = None if has_ended else listening.accept()[0]
    # The next daemon of Spark's is its own.
    shutil.rmtree(Path(listening.getsockname()).parent, ignore_errors=True)
    listening.close()
    if connection is None:
        return False
    _, streams, _, _ = socket.recv_fds(connection, 1, len(forked_processes.STREAMS))
    with connection.makefile("rb") as file:
        sys.argv, path, environment = json.loads(file.readline())
    forked_processes.take_streams(streams)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)
    try:
        connection.sendall(b"\n")
    except OSError:  # Spark has ended
        return False
    os.register_at_fork(after_in_child=connection.close)  # which ends with this process, not with its workers
    return True


def _draw_other_numbers() -> None:
    """Seed NumPy's own generator anew, as Python does with its own: workers would draw the same numbers."""
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()


if __name__ == "__main__":
    main()
