"""Checks that a process of this machine still runs; its id alone may have been reused, or be of another container.

Containers of one image may have the same host name, and each has process ids of its own. So the start of a process is
kept with an id of the place where its process id means something: the machine's last start and the namespace.
"""

from __future__ import annotations

import os
import select
import socket
import uuid
from contextlib import suppress
from functools import cache

from penstock.base.clock import boot_id

__all__ = ["has_ended", "is_of_here", "may_run", "own_process", "process_start"]

_ENDED = "ZX"  # a process has ended, and its parent has not looked yet


def process_start(pid: int) -> str:
    """Return where a process runs, and its start time as the kernel reports it; that is empty if it does not."""
    return f"{_place()}/{_ticks(pid)}"


def own_process() -> tuple[str, int, str]:
    """Return what `may_run` takes, of this process: the name of its host, its id, and its start."""
    pid = os.getpid()
    return socket.gethostname(), pid, process_start(pid)


def is_of_here(start: str) -> bool:
    """Return whether a process of that start can be seen from here: it is of this machine and container."""
    return start.rpartition("/")[0] == _place()


def may_run(host: str, pid: int, start: str) -> bool:
    """Return False if a process is known to be gone: only one of this machine and container can be seen.

    Args:
        host: The name of its host.
        pid: Its id.
        start: What `process_start` has returned there; earlier versions noted no place, and the host's name decides.
    """
    machine, has_machine, ticks = start.rpartition("/")
    if (machine != _place()) if has_machine else (host != socket.gethostname()):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return ticks == _ticks(pid)


def has_ended(pid: int, within_s: float = 0.0) -> bool:
    """Return whether a process of this machine has ended, or ends within this time; also if nobody has looked yet.

    Args:
        pid: Its id.
        within_s: How long to wait for its end, where the system can: its connections end shortly before it.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):  # not on Linux, or not allowed
        return _is_gone(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(within_s * 1000))
    finally:
        os.close(handle)


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _ticks(pid: int) -> str:
    if pid != os.getpid():
        return _read_ticks(pid)
    with suppress(LookupError):
        return _own_ticks(pid)
    return ""


@cache
def _own_ticks(pid: int) -> str:
    """Return the start of this process; LookupError where it cannot be read now, which is not kept."""
    if not (ticks := _read_ticks(pid)):
        raise LookupError(pid)
    return ticks


def _read_ticks(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a pseudo file
            fields = file.read().rpartition(")")[2].split()
            return "" if fields[0] in _ENDED else fields[19]
    except (OSError, IndexError):
        return ""


def _place() -> str:
    with suppress(LookupError, OSError):
        return _own_place()
    return f"{uuid.getnode():x}"


@cache
def _own_place() -> str:
    """Return where this process runs; an error where that cannot be read now, which is not kept."""
    if not (boot := boot_id()):
        raise LookupError
    return f"{boot}:{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - it is not a path
