"""What a result has to say about where it came from, how it is shown and kept, and the memory of a process tree."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import psutil


def facts(script: str) -> dict[str, Any]:
    """Command, versions, cores and the load before the run."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    names = ("penstock", "pyspark", "polars", "pyarrow", "lmdb")
    return {
        "command": " ".join(["python", script, *map(_shown, sys.argv[1:])]),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": [round(each, 2) for each in os.getloadavg()],
        "versions": {name: importlib.metadata.version(name) for name in names}
        | {"python": platform.python_version(), "java": java[0] if java else "?"},
    }


def show(found: Any, path: Path | None) -> None:
    """Prints a result as JSON, and keeps it if there is a path."""
    text = json.dumps(found, indent=1)
    print(text)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def own_bytes(pid: int) -> int:
    """Memory of a process that is nobody else's and no file's; 0 when it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as lines:  # noqa: PTH123 - a few lines of it
        found = dict(line.split(":", 1) for line in lines)
        return sum(int(found[name].split()[0]) for name in ("RssAnon", "RssShmem") if name in found) * 1024
    return 0


def _shown(argument: str) -> str:
    """An argument without the machine's own folders: a path in the project as seen from it, others by their name."""
    if not Path(argument).is_absolute():
        return argument
    project = Path(__file__).resolve().parents[1]
    return os.path.relpath(argument, project) if Path(argument).is_relative_to(project) else Path(argument).name


def _cpu() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:  # noqa: PTH123 - one line of it
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


class TreeWatch:
    """Samples the memory of a process and all below it: proportional set size, so shared pages count once."""

    def __init__(self, pid: int, every_s: float = 0.4) -> None:
        self.peak_bytes = 0
        self._process = psutil.Process(pid)
        self._every_s = every_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            with contextlib.suppress(psutil.Error):
                tree = [self._process, *self._process.children(recursive=True)]
                self.peak_bytes = max(self.peak_bytes, sum(pss(process) for process in tree))


def pss(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
    except psutil.Error:
        return 0
    return getattr(full, "pss", full.rss)
