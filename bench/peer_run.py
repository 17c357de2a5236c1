"""One run of a peer: its processes, the marks they print, their CPU time and memory."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

import psutil

import machine
from peer_setup import PEERS, Peer
from penstock.tools.broker.broker_settings import free_port

LOOK_S = 0.1
MEMORY_EVERY = 4  # looks; reading the memory maps of a JVM is not free
STOP_S = 10.0
WARM = 1 / 3  # of the records


class PeerRun:
    """Starts the processes; ``look`` samples them; they end with the block."""

    def __init__(self, peer: Peer, installed: Path, environment: dict[str, str], state: Path, log: Path) -> None:
        self.marks: dict[str, float] = {}
        self.counts: list[tuple[float, int]] = []  # when so many records were processed
        self.cpu: list[tuple[float, float]] = []  # when so many CPU seconds were used
        self.peak_rss = self.peak_pss = 0
        self._looks = 0
        self._each: dict[int, float] = {}
        recovery = state / "recovery"
        if peer.name == "bytewax":
            recovery.mkdir(parents=True)
            subprocess.run(
                [str(installed), "-m", "bytewax.recovery", str(recovery), str(peer.processes)], check=True, timeout=60
            )
        port = free_port() - peer.processes
        self.began = time.time()
        self.processes: list[subprocess.Popen[str]] = []
        for index in range(peer.processes):
            own = state / str(index)
            own.mkdir(parents=True)
            path = os.pathsep.join(filter(None, [str(PEERS), os.environ.get("PYTHONPATH")]))
            wanted = {**os.environ, **environment, "STATE_DIR": str(own), "PROC_INDEX": str(index), "PYTHONPATH": path}
            with log.with_suffix(f".{index}.log").open("w") as errors:
                process = subprocess.Popen(
                    peer.command(installed, index, port, recovery), env=wanted, cwd=own, text=True,
                    stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
                )  # fmt: skip
            self.processes.append(process)
            threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.startswith("@@"):
                continue
            name, at, *more = line[2:].split()
            when = int(at) / 1000
            if name == "AT":
                self.counts.append((when, int(more[0])))
            choose = min if name == "FIRST" else max
            self.marks[name] = choose(when, self.marks.get(name, when))

    def look(self) -> bool:
        """Samples CPU and memory; False once all processes have ended."""
        measure = self._looks % MEMORY_EVERY == 0
        self._looks += 1
        rss = pss = 0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                self._each[process.pid] = sum(process.cpu_times()[:2])
                if measure:
                    rss += process.memory_info().rss
                    pss += machine.pss(process)
        self.cpu.append((time.time(), sum(self._each.values())))
        self.peak_rss, self.peak_pss = max(self.peak_rss, rss), max(self.peak_pss, pss)
        return any(process.poll() is None for process in self.processes)

    def _tree(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in self.processes:
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(process.pid)
                found += [root, *root.children(recursive=True)]
        return found

    def failed(self) -> str:
        """Exit codes that are not 0; empty when there are none."""
        codes = [process.returncode for process in self.processes]
        return "" if not any(codes) else f"exit codes {codes}"

    def cpu_at(self, when: float) -> float:
        """CPU seconds used until then."""
        return max((used for at, used in self.cpu if at <= when), default=0.0)

    def warm_rate(self, n: int) -> int | None:
        """Records a second behind the first third, which warms up JIT compilers and workers; None: nothing told it."""
        total = max((count for _, count in self.counts), default=0)
        warm = [(at, count) for at, count in sorted(self.counts) if count >= total * WARM]
        if total == 0 or len(warm) < 2:
            return None
        (begin, done), end = warm[0], next(at for at, count in warm if count == total)
        return round(n * (total - done) / total / max(end - begin, 1e-3)) if end > begin else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        tree = self._tree()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_S
        while any(process.poll() is None for process in self.processes) and time.monotonic() < end:
            time.sleep(LOOK_S)
        for left in tree:
            with contextlib.suppress(psutil.Error):
                left.kill()  # psutil knows a process by its start too: never somebody else's
        for process in self.processes:
            process.wait()


def last_lines(log: Path) -> str:
    """The ends of a run's logs, in short."""
    files = sorted(log.parent.glob(f"{log.stem}.*.log"))
    return " / ".join(" ".join(file.read_text(errors="replace").split()[-60:]) for file in files)
