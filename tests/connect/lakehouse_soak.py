"""A sink to a lakehouse that is killed again and again while records come: each record is a row once.

python tests/connect/lakehouse_soak.py --kills 50 --json bench/results/lakehouse-kills.json

The results of other runs in the file are kept: kinds and modes can be run by themselves, also at the same time.
"""

import argparse
import fcntl
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from eventually import eventually  # noqa: E402
from lakehouses import KINDS, Lakehouse  # noqa: E402
from penstock.log import Producer  # noqa: E402
from penstock.log.open import open_log  # noqa: E402

__all__ = ["killed"]

COMMAND = [sys.executable, "-c", "from penstock.cli.main import main; main()", "connect", "run"]
KEYS, MODES = 50, ("insert", "upsert")
AT_ONCE = 4  # records every 20 ms: what has come meanwhile should not be most of the work after a start


def killed(lake, folder, kills, seed, mode="insert"):
    """Kill the sink of a lakehouse so many times while records come, let the last one end, compare; returns what happened."""
    choice, url = random.Random(seed), f"sqlite:///{folder}/log.db"
    table = lake / "hits"
    config = {
        "name": "hits", "connector.class": table.lake.connector.java_class, "topics": "hits",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "false",
        "flush.size": "40", "flush.interval.ms": "20", "compact.commits": "5", **table.config,
    }  # fmt: skip
    if mode == "upsert":
        config |= {"insert.mode": "upsert", "pk.mode": "record_value", "pk.fields": "key"}
    (folder / "hits.json").write_text(json.dumps(config))
    command = [*COMMAND, str(folder / "hits.json"), "-b", url]
    began = time.monotonic()
    with open_log(url) as log:
        log.create_topic("hits", 3)
        stopped, count = Event(), [0]

        def produce():
            with Producer(log) as producer:
                while not stopped.wait(0.02):
                    for _ in range(AT_ONCE):
                        n = count[0]
                        value = json.dumps({"n": n, "key": n % KEYS})
                        producer.send("hits", value.encode(), partition=n % KEYS % 3)
                        count[0] += 1
                    producer.flush()

        thread = Thread(target=produce)
        thread.start()
        try:
            for _ in range(kills):
                before = version(table)
                process = subprocess.Popen(command, cwd=folder)
                try:
                    eventually(lambda before=before: version(table) != before, 600)
                    time.sleep(choice.random() / 2)  # anywhere between two commits, or in one
                finally:
                    process.kill()
                    process.wait()
        finally:
            stopped.set()
            thread.join()
        subprocess.run([*command, "--once"], cwd=folder, check=True, timeout=1200)
    found = sorted(row["n"] for row in table.rows())
    newest = {n % KEYS: n for n in range(count[0])}
    assert found == (list(range(count[0])) if mode == "insert" else sorted(newest.values()))
    return {
        "kills": kills,
        "records": count[0],
        "rows": len(found),
        "lost": 0,
        "doubled": 0,
        **commits(table),
        "seconds": round(time.monotonic() - began, 1),
    }


def version(table):
    """The newest version of a table; None: there is no table yet."""
    if not table.exists:
        return None
    loaded = table.load()
    return loaded.version() if table.lake.kind == "delta" else loaded.metadata.current_snapshot_id


def commits(table):
    """The number of commits, and of those that made large files of small ones."""
    loaded = table.load()
    if table.lake.kind == "delta":
        operations = [each.get("operation") for each in loaded.history()]
        return {"commits": len(operations), "compactions": operations.count("OPTIMIZE")}
    operations = [each.summary.operation.value for each in loaded.snapshots()]
    return {"commits": len(operations), "compactions": operations.count("replace")}


def keep(path, name, result):
    """Put a result into a file of results, which other processes may write too."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        results = json.loads(file.read() or "{}") | {name: result}
        file.truncate(0)
        file.write(json.dumps(dict(sorted(results.items())), indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    for kind in given.kind or KINDS:
        for mode in given.mode or MODES:
            with tempfile.TemporaryDirectory() as folder:
                result = killed(Lakehouse(kind, Path(folder)), Path(folder), given.kills, given.seed, mode)
            result = {"command": f"python {' '.join(sys.argv)}", "at": time.strftime("%FT%TZ", time.gmtime()), **result}
            print(json.dumps({f"{kind} {mode}": result}, indent=1), flush=True)
            if given.json:
                keep(given.json, f"{kind} {mode}", result)


if __name__ == "__main__":
    main()
