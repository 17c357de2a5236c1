"""What the console costs: the speed of a search of messages, and the CPU time of a server with and without browsers.

python bench/console.py [--records 400000] [--seconds 20] [--browsers 50] [--output FILE]

The search reads an embedded log of orders in JSON by filters that few, and many, records meet. The server is a process of
its own beside an application that reports ten batches a second; browsers are streams of its overview, as a page holds
them. Its CPU seconds a second are those of the whole process, with the application's reports: what browsers cost is
the difference to the same run without any.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa

import machine
from penstock.console.messages import MessageQuery, read_messages
from penstock.log.open import open_log

ROOT = Path(__file__).parent.parent
BATCHES_A_SECOND = 10
FILTERS = {
    "one text": 'value.user = "user-7777"',
    "a text within": 'value.note ~ "needle"',
    "a number": "value.total > 4990",
    "two conditions": 'value.user = "user-77" and value.total > 4000',
    "a key": 'key = "k-39999"',
}


def fill(url: str, records: int) -> int:
    """Write orders in JSON; return their bytes."""
    note, size = "lorem ipsum dolor sit amet " * 4, 0
    with open_log(url) as log:
        log.create_topic("orders", 1)
        for begin in range(0, records, 50_000):
            rows = []
            for n in range(begin, min(begin + 50_000, records)):
                value = {
                    "user": f"user-{n % 10_000}",
                    "total": n % 5_000,
                    "items": [{"sku": f"s-{n % 77}"}] * 3,
                    "note": note,
                }
                rows.append((f"k-{n}".encode(), json.dumps(value).encode()))
            size += sum(len(key) + len(value) for key, value in rows)
            columns = {
                "timestamp": pa.array(range(begin, begin + len(rows)), pa.int64()),
                "key": pa.array([key for key, _ in rows], pa.large_binary()),
                "value": pa.array([value for _, value in rows], pa.large_binary()),
            }
            log.append("orders", 0, pa.RecordBatch.from_pydict(columns))
    return size


def search(url: str, wanted: str, size: int) -> dict[str, Any]:
    """Search the whole topic, page by page; return MB a second of wall clock and of CPU time."""
    with open_log(url) as log:
        began, cpu, hits, cursor = time.perf_counter(), time.process_time(), 0, ""
        while True:
            found = read_messages(
                log, MessageQuery("orders", "oldest", limit=200, wanted=wanted, value_format="json", cursor=cursor)
            )
            hits += len(found.rows)
            cursor = found.cursor
            if not cursor:
                break
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"hits": hits, "mb_a_second": round(size / 1e6 / seconds, 1), "mb_a_cpu_second": round(size / 1e6 / cpu, 1)}


def serve(root: str, rate: float) -> None:
    """The main function of the server's process: an application that reports so many batches a second, and its console."""
    sys.path[:0] = [str(ROOT / "tests" / "browser")]
    from recorded import recorded

    from penstock.console.web.server import ConsoleAddress, ConsoleServer

    with recorded(Path(root)) as found:
        server = ConsoleServer(found.site, ConsoleAddress(port=0))
        server.start()
        print(server.port, flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
        while True:
            if rate:
                found.batch()
            time.sleep(1 / (rate or 1))


class Browsers:
    """Pages that are open: each holds a stream of events, and reads it."""

    def __init__(self, port: int, count: int) -> None:
        self.events = 0
        self._lock = threading.Lock()
        for _ in range(count):
            threading.Thread(target=self._read, args=(port,), daemon=True).start()

    def _read(self, port: int) -> None:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30).read().decode()
        assert "<html" in page
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/live?of=/", timeout=60) as stream:
            for line in stream:
                if line.startswith(b"data:"):
                    with self._lock:
                        self.events += 1


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(count: int, rate: float, seconds: float) -> dict[str, Any]:
    """Measure the server with so many browsers at so many batches a second."""
    with tempfile.TemporaryDirectory() as root:
        command = [sys.executable, __file__, "--serve", root, "--rate", str(rate)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            browsers = Browsers(int(server.stdout.readline()), count)
            time.sleep(5)
            began, cpu, events = time.perf_counter(), cpu_of(server.pid), browsers.events
            time.sleep(seconds)
            took = time.perf_counter() - began
            share = (cpu_of(server.pid) - cpu) / took
            return {"share_of_a_core": round(share, 4), "events_a_second": round((browsers.events - events) / took, 1)}
        finally:
            server.stdin.close()
            server.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--browsers", type=int, default=50)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=BATCHES_A_SECOND, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.rate)
        return
    found: dict[str, Any] = machine.facts("bench/console.py")
    with tempfile.TemporaryDirectory() as root:
        url = f"sqlite:///{root}/log.db"
        size = fill(url, given.records)
        found["search"] = {"records": given.records, "megabytes": round(size / 1e6, 1)}
        found["search"] |= {name: search(url, wanted, size) for name, wanted in FILTERS.items()}
    kinds = {"idle": (0, 0.0), "one_page_without_batches": (1, 0.0), "no_browser": (0, BATCHES_A_SECOND)}
    kinds[f"browsers_{given.browsers}"] = (given.browsers, BATCHES_A_SECOND)
    found["server"] = {name: load(count, rate, given.seconds) for name, (count, rate) in kinds.items()}
    more = (
        found["server"][f"browsers_{given.browsers}"]["share_of_a_core"]
        - found["server"]["no_browser"]["share_of_a_core"]
    )
    found["server"]["share_more_with_browsers"] = round(more, 4)
    machine.show(found, given.output)


if __name__ == "__main__":
    main()
