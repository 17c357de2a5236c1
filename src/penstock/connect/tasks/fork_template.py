"""The process that tasks are forked from, with all modules loaded that a task needs."""

from __future__ import annotations

import gc
import os
import socket
import sys
from importlib import import_module
from multiprocessing import connection, forkserver

from penstock.log.url import kafka_servers

__all__ = ["fork_template", "has_template", "modules_for"]

_FIRST, _LAST = "penstock.connect.tasks.forkserver_first_import", "penstock.connect.tasks.forkserver_last_import"
_MODULES = ("penstock.connect.tasks.task_handles", "penstock.log.clients.consumer", "penstock.log.clients.dispatch")
_KAFKA = (
    "penstock.log.kafka.log",
    "penstock.log.kafka.clients.consumer",
    "kafka.protocol.admin",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
)
# What `multiprocessing` knows of its fork server, up to Python 3.13.
_KNOWN = ("_forkserver_address", "_forkserver_alive_fd", "_forkserver_pid")
_NEWER = "_forkserver_authkey"


def modules_for(url: str) -> list[str]:
    """Return the modules that tasks need, also those that a task would import when it opens this log, in order."""
    return [_FIRST, *_MODULES, *(() if kafka_servers(url) is None else _KAFKA), _LAST]


def fork_template(url: str) -> None:
    """Make a fork of this process the fork server of `multiprocessing`: it shares memory, and imports nothing again.

    To be called before this process starts threads or opens anything. Where it is not possible, and after the end of
    the fork, `multiprocessing` starts a server that imports the modules by itself.

    Args:
        url: The log that tasks open.
    """
    server = getattr(forkserver, "_forkserver", None)
    if sys.platform != "linux" or hasattr(server, _NEWER) or not all(hasattr(server, name) for name in _KNOWN):
        return
    for name in modules_for(url):
        import_module(name)
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined] # as in `multiprocessing`
        listener.bind(address)
        os.chmod(address, 0o600)  # noqa: PTH101 - a socket
        listener.listen()
        alive_r, alive_w = os.pipe()
        gc.collect()
        gc.freeze()  # else each look for garbage writes to the pages that the processes share
        pid = os.fork()
        if pid == 0:
            _serve(listener, alive_r, alive_w)
    os.close(alive_r)
    for name, value in zip(_KNOWN, (address, alive_w, pid), strict=True):
        setattr(server, name, value)


def has_template() -> bool:
    """Return whether there is a process from which tasks are forked, of `fork_template` or `multiprocessing`."""
    return getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None) is not None


def _serve(listener: socket.socket, alive_r: int, alive_w: int) -> None:
    """Fork a task for each request, until no process is left that could ask."""
    code = 1
    try:
        os.close(alive_w)
        forkserver.main(listener.detach(), alive_r, [])
    except SystemExit:
        code = 0
    finally:
        os._exit(code)
