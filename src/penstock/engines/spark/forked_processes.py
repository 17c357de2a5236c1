"""Python processes of Spark's planning, forked from one that has imported what they need.

For a query of micro-batches Spark starts a process that plans its batches, and up to three that look for its source
before. Each imports the same modules, 0.7 s of CPU time. `serve` runs in a process that has them (`worker_daemon`), and
forks it for each request. This file itself is the program that Spark starts instead (`worker_python`): it hands its
streams, arguments and environment to a fork, and imports next to nothing.
"""

from __future__ import annotations

import os
import socket
import sys

__all__ = ["ENVIRONMENT", "MODULES", "STREAMS", "other_process", "serve", "take_streams", "wait_as_cat"]

ENVIRONMENT = "PENSTOCK_FORKS"
"""The variable that names the socket and the Python of the process to ask."""
STREAMS = (0, 1, 2)
"""The file descriptors that a process hands to another one, which goes on in its place."""
MODULES = ("-m pyspark.sql.streaming.python_streaming_source_runner", "-m pyspark.daemon pyspark.sql.worker.*")
"""The beginnings of the arguments of processes that are forked, as patterns of the shell."""

_NEEDED = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "penstock.engines.micro_batches.planner",
    "penstock.engines.micro_batches.source",
)
_DAEMON = "pyspark.daemon"  # forks itself, so it has no second thread
_TAKEN = b"\n"
_WAITED_S = 30.0
_TERMINATED = 143
_LONGEST_NAME = 15  # of Linux


def serve(number: int) -> str:
    """Fork for each process that asks, until standard input ends; return in forks, with the module that they run.

    Args:
        number: The file descriptor of the socket that listens, alone in its folder, which is removed at the end.
    """
    import select
    import shutil
    import signal

    os.setpgid(0, 0)  # the daemon of the workers ends its group with itself
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _import_needed()
    listening = socket.socket(fileno=number)
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(listening, select.POLLIN)
    while True:
        if any(ready == 0 for ready, _ in poller.poll()):
            shutil.rmtree(os.path.dirname(listening.getsockname()), ignore_errors=True)  # noqa: PTH120
            os._exit(0)
        connection = listening.accept()[0]
        try:
            if os.fork() == 0:
                break
        except OSError as error:  # the other process goes on by itself
            print(f"no process of Spark's could be forked: {error!r}", file=sys.stderr)
        connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    listening.close()
    return _take_part_of(connection)


def _import_needed() -> None:
    import gc
    from importlib import import_module

    for name in _NEEDED:
        try:
            import_module(name)
        except Exception as error:  # noqa: BLE001 - a process that needs it says so where the user sees it
            print(f"{name} cannot be imported ahead: {error!r}", file=sys.stderr)
    gc.collect()
    gc.freeze()


def _take_part_of(connection: socket.socket) -> str:
    """Take over the streams, folder, arguments and environment of the other process; return the module to run."""
    _, streams, _, _ = socket.recv_fds(connection, 1, len(STREAMS))
    if not streams:
        os._exit(_TERMINATED)  # Spark has ended it already
    with connection.makefile("rb") as file:
        parts = file.read(int(file.readline())).split(b"\0")
    folder, count, *rest = map(os.fsdecode, parts)
    arguments, environment = rest[: int(count)], rest[int(count) :]
    take_streams(streams)
    inherited = {os.path.abspath(each) for each in _folders_of_python_path()}  # noqa: PTH100
    os.environ.clear()
    os.environ.update(each.partition("=")[::2] for each in environment)
    os.chdir(folder)
    as_module = [] if sys.flags.safe_path else [folder]
    own = [each for each in sys.path[len(as_module) :] if each not in inherited]
    sys.path[:] = dict.fromkeys([*as_module, *map(os.path.abspath, _folders_of_python_path()), *own])
    _, module, *others = arguments
    sys.argv = [module, *others]
    _name_process(module)
    os.register_at_fork(after_in_child=connection.close)  # which is open until this process ends, not its own
    if module != _DAEMON:  # that one ends with its standard input
        _end_with(connection)
    try:
        connection.sendall(_TAKEN)
    except OSError:
        os._exit(_TERMINATED)
    return module


def _name_process(module: str) -> None:
    """Show a module's name in lists of processes, whose arguments are those of the daemon."""
    try:
        with open("/proc/self/comm", "w") as file:  # noqa: PTH123 - pathlib is not needed otherwise
            file.write(module.rpartition(".")[-1][:_LONGEST_NAME])
    except OSError:
        return  # not on Linux


def _folders_of_python_path() -> list[str]:
    return [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


def _end_with(connection: socket.socket) -> None:
    """End this process when Spark ends the one that it knows."""
    import threading

    def wait() -> None:
        try:
            connection.recv(1)
        finally:
            os._exit(_TERMINATED)

    threading.Thread(target=wait, name="penstock-fork", daemon=True).start()


# The handing over of a process's part, here and between daemons


def other_process(variable: str) -> str:
    """Return the socket that a variable of the environment names with a Python; empty: not for this process.

    The socket's folder has to be this user's: where it was, after its end, anybody may have made another.
    """
    path, _, python = os.environ.pop(variable, "").partition(os.pathsep)
    try:
        is_own = python == sys.executable and os.lstat(os.path.dirname(path)).st_uid == os.getuid()  # noqa: PTH120
    except OSError:
        is_own = False
    return path if is_own else ""


def take_streams(streams: list[int]) -> None:
    """Go on with the standard streams of the other process."""
    for stream, number in zip(streams, STREAMS, strict=True):
        os.dup2(stream, number)
        os.close(stream)


def wait_as_cat(connection: socket.socket) -> None:
    """Stay for Spark to see and to end, as `cat`, which needs no memory: it ends when the connection does."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(connection.fileno(), 0)
    os.execvp("cat", ["cat"])  # noqa: S606, S607


def _ask() -> None:
    """Let a fork do this process's part, and wait until it ends; return if there is none."""
    path = other_process(ENVIRONMENT)
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_WAITED_S)
            connection.connect(path)
            socket.send_fds(connection, [_TAKEN], STREAMS)
            environment = [name + b"=" + value for name, value in os.environb.items()]
            arguments = [os.fsencode(each) for each in sys.argv[1:]]
            parts = [os.fsencode(os.getcwd()), b"%d" % len(arguments), *arguments, *environment]  # noqa: PTH109
            request = b"\0".join(parts)
            connection.sendall(b"%d\n%b" % (len(request), request))
            if not connection.recv(1):
                return
            connection.settimeout(None)
            wait_as_cat(connection)
    except OSError:
        return  # it has gone


if __name__ == "__main__":
    _ask()
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606
