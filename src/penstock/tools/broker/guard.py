"""Processes that end with this one, even if it is killed."""

from __future__ import annotations

import subprocess

__all__ = ["guard"]


def guard(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that kills another one when this one ends for any reason, which closes the pipe between them.

    Args:
        pid: The process to kill. Once it has ended by itself, kill the guard before another process gets its id.
    """
    script = 'read -r _; kill -9 "$0"'
    return subprocess.Popen(  # noqa: S603
        ["/bin/sh", "-c", script, str(pid)], stdin=subprocess.PIPE, start_new_session=True
    )
