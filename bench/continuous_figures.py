"""The figures of continuous mode that need a machine without other work, each by one command of a few minutes.

python bench/continuous_figures.py NAME...     # without a name it lists them, with the commands that it runs

Results go to bench/results/. A part that is not over after its time is ended, and so is the rest of the program: what it
has started ends with it.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results"
STOP_S = 60.0

PARTS: dict[str, tuple[int, list[str]]] = {  # the most minutes, and the command
    "rate": (
        25, ["compare.py", "--peers", "penstock", "kstreams", "--n", "1000000", "--timeout", "150", "--name", "continuous-rates"]
    ),
    "latency": (
        10,
        ["compare.py", "--only-latency", "--modes", "continuous", "--peers", "penstock", "kstreams", "--seconds", "15",
         "--commit-interval-ms", "10", "100", "--name", "continuous-latency"],
    ),
    "cpu": (5, ["thread_rate.py", "--n", "500000", "--json", f"{RESULTS / 'continuous-cpu.json'}"]),
    "idle": (3, ["continuous_idle.py", "--load", "0", "--json", f"{RESULTS / 'continuous-idle.json'}"]),
    "idle-kafka": (
        3, ["continuous_idle.py", "--log", "kafka", "--load", "0", "--json", f"{RESULTS / 'continuous-idle-kafka.json'}"]
    ),
    "partitions": (
        4, ["continuous_idle.py", "--partitions", "256", "--load", "0", "--json", f"{RESULTS / 'continuous-256.json'}"]
    ),
    "memory": (8, ["continuous_idle.py", "--minutes", "5", "--json", f"{RESULTS / 'continuous-memory.json'}"]),
    "memory-hour": (65, ["continuous_idle.py", "--minutes", "60", "--json", f"{RESULTS / 'continuous-memory.json'}"]),
    "restore": (5, ["restore_thread.py", "--keys", "1000000", "--json", f"{RESULTS / 'restore-thread.json'}"]),
}  # fmt: skip


def run(name: str) -> None:
    """Run a part; end the program if it fails or takes too long."""
    minutes, (script, *arguments) = PARTS[name]
    print(f"{name}: {script} {' '.join(arguments)}", flush=True)
    began = time.monotonic()
    with subprocess.Popen([sys.executable, str(HERE / script), *arguments]) as process:
        try:
            code = process.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # its brokers and applications end with it
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise SystemExit(f"{name} was not over after {minutes} minutes") from None
    if code:
        raise SystemExit(f"{name} ended with {code}")
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(PARTS))
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - PARTS.keys()):
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(PARTS)}")
    if not given.names:
        for name, (minutes, command) in PARTS.items():
            print(
                f"{name:<12} at most {minutes:>2} minutes: {' '.join(command).replace(f'{RESULTS}/', 'bench/results/')}"
            )
    for name in given.names:
        run(name)


if __name__ == "__main__":
    main()
