"""Notes of what worker processes do, for those that end abruptly, and for tasks that run long.

A process ends abruptly when it is killed, out of memory, or ended by a user's function. Each worker notes its present
task in a small file beside the replicas, without waiting for the disk. The driver reads the notes of its own machine;
it does not see those of other machines.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.runtime.sensor import Sensor
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from penstock.topology.topology import Topology

__all__ = ["LONG_STEP_S", "CrashNote", "CrashNotes", "functions_of", "notes_of_dead_workers", "notes_of_workers"]

LONG_STEP_S = 30.0  # of a task in one step: from then on it is named
_FOLDER = "working"
_PROCESSING = "processing"


@dataclass(frozen=True, slots=True)
class CrashNote:
    """The last note of a worker process.

    Attributes:
        task: The task that it ran.
        batch: The batch.
        ranges: The first offset, and the one behind the last, by ``topic-partition``.
        node: The running operator; empty before the first one, and where records are processed one by one.
        step: What it does with the task: opening its state, processing, publishing, writing.
        since_ms: When the step began.
    """

    task: str
    batch: int
    ranges: Mapping[str, Sequence[int]] = field(default_factory=dict)
    node: str = ""
    step: str = _PROCESSING
    since_ms: int = field(default=0, compare=False)

    def doing(self, now_ms: int) -> str:
        """Describe what it does now.

        >>> CrashNote("0_3", 7, {}, "KSTREAM-MAPVALUES-0000000001", since_ms=1000).doing(95_000)
        'task 0_3 is processing since 94 s, in KSTREAM-MAPVALUES-0000000001'
        """
        where = f", in {self.node}" if self.node else ""
        return f"task {self.task} is {self.step} since {max(now_ms - self.since_ms, 0) / 1000:.0f} s{where}"

    def sentence(self, topology: Topology) -> str:
        """Describe what happened, and where."""
        where = f", in {self.node}" if self.node else ""
        functions = functions_of(topology, self.node)
        calls = f", which calls {' and '.join(functions)}" if functions else ""
        ranges = ", ".join(f"{name} offsets {start} to {end - 1}" for name, (start, end) in sorted(self.ranges.items()))
        return (
            f"a worker process ended abruptly while it ran task {self.task} in batch {self.batch}{where}{calls}; "
            f"its input: {ranges or 'records of an earlier stage'}"
        )


class CrashNotes(Sensor):
    """The note of this process, and the sensor of its tasks, which keeps the note up to date.

    Args:
        root: The directory of the application's replicas.
    """

    def __init__(self, root: str) -> None:
        self._path = Path(root) / _FOLDER / f"{socket.gethostname()}-{os.getpid()}"
        self._facts: dict[str, Any] = {}
        self._file = -1

    def begin(self, task: str, batch: int, ranges: Mapping[str, Sequence[int]], step: str = _PROCESSING) -> None:
        """Note that a task begins, with its first step."""
        self._facts = {"task": task, "batch": batch, "ranges": dict(ranges), "step": step, "since_ms": unix_ms()}
        self._write()

    def step(self, step: str) -> None:
        """Note the next step of the task."""
        self._facts = {**self._facts, "step": step, "since_ms": unix_ms(), "node": ""}
        self._write()

    def end(self) -> None:
        """Clear the note, as the task has ended, well or with an error."""
        self._facts = {}
        self._write()

    def on_node_start(self, task_id: str, node: str) -> None:  # noqa: ARG002 - the sensor's signature
        """Note that an operator begins."""
        if self._facts:
            self._facts["node"] = node
            self._write()

    def _write(self) -> None:
        with suppress(OSError):  # a note that cannot be written must not end what is noted
            if self._file < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            data = json.dumps(self._facts).encode() if self._facts else b""
            os.pwrite(self._file, data + b"\n", 0)  # the first line counts


def notes_of_dead_workers(root: str) -> list[CrashNote]:
    """Return the notes of dead processes of this machine about tasks in processing, and delete the notes."""
    notes: list[CrashNote] = []
    with suppress(OSError):
        for path in _notes_here(root):
            if not _is_alive(int(path.name.rpartition("-")[2])):
                notes += _read(path)
                path.unlink()
    return [note for note in notes if note.step == _PROCESSING]


def notes_of_workers(root: str) -> list[CrashNote]:
    """Return the notes of processes of this machine that run a task, the longest step first."""
    notes: list[CrashNote] = []
    with suppress(OSError):
        for path in _notes_here(root):
            if _is_alive(int(path.name.rpartition("-")[2])):
                notes += _read(path)
    return sorted(notes, key=lambda note: note.since_ms)


def _notes_here(root: str) -> list[Path]:
    own = socket.gethostname()
    return [path for path in sorted((Path(root) / _FOLDER).iterdir()) if path.name.rpartition("-")[0] == own]


def _read(path: Path) -> list[CrashNote]:
    line = path.read_bytes().partition(b"\n")[0]
    with suppress(ValueError, TypeError):
        return [CrashNote(**json.loads(line))] if line else []
    return []


def functions_of(topology: Topology, name: str) -> list[str]:
    """List the user's functions that an operator calls, with file and line."""
    node = topology.nodes.get(name)
    if not isinstance(node, ProcessorNode):
        return []
    values = [getattr(node.operation, each) for each in node.operation.__dataclass_fields__]
    flat = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return list(dict.fromkeys(one.location for one in flat if isinstance(one, Function) and not one.is_expression))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    with suppress(OSError):  # a zombie: ended, but not yet waited for by its parent
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
