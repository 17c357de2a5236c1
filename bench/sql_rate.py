"""W1 to W4 written in SQL beside the same topologies in the DSL, in one run; and the time to parse and plan a script.

python bench/sql_rate.py [--n 400000] [--only w1 w3] [--output FILE]

Each topology runs on Spark in a process of its own, over the same topics, first the DSL's, then SQL's. Compared are
records per CPU second behind the first batch, which do not depend on what else the machine does. Both must have written the
same number of records. Results of other workloads stay in FILE, each with the time of its run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
import prepare
from datasets import PARTITIONS
from measure import MASTER, cpu_s, steady
from workloads import TOPICS, WORKLOADS

HERE = Path(__file__).parent
BATCHES = 5
STATEMENTS = 200
LINE = r'^(\S+) \S+ \S+ \[[^\]]+\] "\S+ (\S+) [^"]*" (\d{3}) (?:\d+|-) "[^"]*" "([^"]*)"$'
LOGS = "CREATE STREAM logs (line VARCHAR) WITH (kafka_topic='logs', value_format='KAFKA');"
SYSTEMS = ("Windows", "iPhone", "iPad", "Android", "CrOS", "Ubuntu", "Macintosh", "Linux")
AGENT = f"REGEXP_EXTRACT('{LINE}', line, 4)"
WHENS = " ".join(f"WHEN agent LIKE '%{name}%' THEN '{name}'" for name in SYSTEMS)
SYSTEM = f"CASE {WHENS} ELSE 'other' END".replace("agent", AGENT)
COUNTED = "WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 15 MINUTES)"
OUT = "WITH (kafka_topic='out', key_format='KAFKA', value_format='KAFKA')"
SCRIPTS = {
    "w1": f"""{LOGS}
        CREATE STREAM errors WITH (kafka_topic='out', value_format='JSON') AS
          SELECT REGEXP_EXTRACT('{LINE}', line, 1) AS ip, REGEXP_EXTRACT('{LINE}', line, 2) AS path,
            CAST(REGEXP_EXTRACT('{LINE}', line, 3) AS INT) AS status
          FROM logs WHERE CAST(REGEXP_EXTRACT('{LINE}', line, 3) AS INT) >= 400;""",
    "w2a": f"""{LOGS}
        CREATE TABLE counts {OUT} AS SELECT {SYSTEM} AS os, COUNT(*) AS n
          FROM logs {COUNTED} GROUP BY {SYSTEM};""",
    "w2b": f"""{LOGS}
        CREATE TABLE counts {OUT} AS SELECT REGEXP_EXTRACT('{LINE}', line, 1) AS ip, COUNT(*) AS n
          FROM logs {COUNTED} GROUP BY REGEXP_EXTRACT('{LINE}', line, 1);""",
    "w3": f"""
        CREATE STREAM sums (k VARCHAR KEY, amount BIGINT) WITH (kafka_topic='sums', value_format='DELIMITED');
        CREATE TABLE totals {OUT} AS SELECT k, SUM(amount) AS total FROM sums GROUP BY k;""",
    "w4": f"""
        CREATE STREAM orders (k VARCHAR KEY, item VARCHAR) WITH (kafka_topic='orders', value_format='JSON');
        CREATE TABLE users (k VARCHAR PRIMARY KEY, city VARCHAR) WITH (kafka_topic='users', value_format='JSON');
        CREATE TABLE cities {OUT} AS SELECT u.city AS city, COUNT(*) AS n
          FROM orders o JOIN users u ON o.k = u.k GROUP BY u.city;""",
}


def topology_of(engine: str, workload: str) -> Any:
    if engine == "dsl":
        return WORKLOADS[workload]()
    from penstock.sql.session import SessionSettings
    from penstock.sql.session.script_application import Script

    known = dict.fromkeys((*TOPICS[workload], "out"), PARTITIONS)
    return Script(SCRIPTS[workload], SessionSettings.of({}), known).topology()


def measure(engine: str, workload: str, given: Path, work: Path, n: int) -> dict[str, Any]:
    from penstock import KafkaStreams
    from penstock.log.open import open_log

    url = prepare.log_url(given, TOPICS[workload][0])
    with open_log(url) as log:
        if any(topic.name == "out" for topic in log.topics()):
            log.delete_topic("out")
        log.create_topic("out", PARTITIONS)
    settings = {
        "application.id": f"sql-rate-{engine}-{workload}", "bootstrap.servers": url, "state.dir": str(work),
        "spark.master": MASTER, "processing.mode": "micro_batch", "commit.interval.ms": 0,
        "penstock.max.records.per.batch": n // BATCHES,
    }  # fmt: skip
    app = KafkaStreams(topology_of(engine, workload), settings)
    ends: list[tuple[float, int]] = []
    cpu: list[float] = []
    written = 0

    def on(progress: Any) -> None:
        nonlocal written
        written += progress.records_out
        if progress.records_in:
            ends.append((time.perf_counter(), progress.records_in))
            cpu.append(cpu_s())

    app.add_progress_listener(on)
    app.run(until="latest")
    return steady(ends, cpu) | {"records_written": written}


def planned() -> dict[str, Any]:
    """CPU time to parse and plan a script of 200 statements."""
    from penstock.sql.session import SessionSettings
    from penstock.sql.session.script_application import Script

    columns = "id INT KEY, item VARCHAR, price DECIMAL(9, 2), ms BIGINT"
    lines = [f"CREATE STREAM orders ({columns}) WITH (kafka_topic='orders', value_format='JSON', partitions=4);"]
    for number in range((STATEMENTS - 1) // 2):
        lines.append(
            f"CREATE STREAM big_{number} AS SELECT id, UCASE(item) AS item, price * 2 AS twice, ms % {number + 2} AS m "
            f"FROM orders WHERE price > {number} AND item LIKE '%a%' AND NOT ms BETWEEN 3 AND 5;"
        )
        lines.append(
            f"CREATE TABLE sums_{number} AS SELECT item, COUNT(*) AS n, SUM(twice) AS total FROM big_{number} "
            "WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY item HAVING COUNT(*) > 1;"
        )
    lines.append("CREATE STREAM last AS SELECT * FROM orders;")
    settings = SessionSettings.of({})
    Script("\n".join(lines[:3]), settings)  # imports and registries
    begin = time.process_time()
    script = Script("\n".join(lines), settings)
    middle = time.process_time()
    script.topology()
    return {
        "statements": len(lines), "parse_and_plan_s": round(middle - begin, 3),
        "topology_s": round(time.process_time() - middle, 3),
    }  # fmt: skip


def compared(workload: str, data: Path, n: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for engine in ("dsl", "sql"):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as work:
            command = [sys.executable, __file__, "--measure", engine, workload, str(data), work, "--n", str(n)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if done.returncode or not lines:
            raise SystemExit(f"{engine} {workload} failed\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        row[engine] = json.loads(lines[-1].removeprefix("RESULT "))
    if workload != "w2a" and row["dsl"]["records_written"] != row["sql"]["records_written"]:
        print(f"{workload}: the DSL has written {row['dsl']['records_written']}, SQL {row['sql']['records_written']}")
    row["ratio"] = round(row["sql"]["records_per_cpu_s"] / row["dsl"]["records_per_cpu_s"], 3)
    return row


def earlier(output: Path | None) -> dict[str, Any]:
    """The results in a file of before, which stay for workloads that are not run now; each has its own time."""
    if output is None or not output.exists():
        return {}
    found: dict[str, Any] = json.loads(output.read_text())["results"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=400_000, help="records of each data set")
    parser.add_argument("--only", nargs="*", choices=list(SCRIPTS), default=list(SCRIPTS))
    parser.add_argument("--measure", nargs=4, metavar=("ENGINE", "WORKLOAD", "DATA", "WORK"), help="one run, inside")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    if given.measure:
        engine, workload, data, work = given.measure
        print("RESULT", json.dumps(measure(engine, workload, Path(data), Path(work), given.n)))
        return
    facts = machine.facts("bench/sql_rate.py")
    report = facts | {"records": given.n, "planned": planned(), "results": earlier(given.output)}
    when = {name: facts[name] for name in ("at", "load_before")}
    print(f"parsed and planned: {report['planned']}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        data = Path(directory)
        for topic in dict.fromkeys(topic for name in given.only for topic in TOPICS[name]):
            prepare.load(data, topic, given.n)
        for name in given.only:
            row = report["results"][name] = when | compared(name, data, given.n)
            rates = [row[engine]["records_per_cpu_s"] for engine in ("dsl", "sql")]
            print(f"{name:4} DSL {rates[0]:>9,} SQL {rates[1]:>9,} records per CPU second, {row['ratio']}", flush=True)
            if given.output:
                given.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
