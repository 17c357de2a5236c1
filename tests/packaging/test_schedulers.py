"""The examples of backfills as programs, and by Airflow and Dagster themselves, in environments of their own with the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from test_wheel import _bare, built, environment, wheel  # noqa: F401 - fixtures

ROOT = Path(__file__).parents[2]
BACKFILLS = ROOT / "examples" / "backfills"
DAY = "2026-11-02"

pytestmark = pytest.mark.whole

# The topic, and records of item, price and day; further records where the topic is there.
SELL = """
import json, sys
from datetime import datetime
from penstock.log import Producer, open_log

with open_log(sys.argv[1]) as log:
    if not log.topics():
        log.create_topic("sales", partitions=2)
with Producer(sys.argv[1]) as producer:
    for item, price, day in json.loads(sys.argv[2]):
        at = int(datetime.fromisoformat(day + "T10:00+00:00").timestamp() * 1000)
        producer.send("sales", json.dumps({"price": price}).encode(), key=item.encode(), timestamp=at)
"""
# The last result of each key, and how many were sent: the topic is compacted.
READ = """
import json, struct, sys
from penstock.log import Consumer, TopicPartition

with Consumer(sys.argv[1]) as consumer:
    consumer.assign([TopicPartition("turnover-by-day", number) for number in range(2)])
    consumer.seek_to_beginning()
    last = {record.key.decode(): struct.unpack(">d", record.value)[0] for record in consumer.poll(1)}
    print(json.dumps([last, sum(consumer.end_offsets().values())]))
"""


class Shop:
    """A log with sales, and the commands of an environment."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder, self.binaries, self.log = folder, binaries, str(folder / "shop.db")
        self.sell(["lamp", 1.0, "2026-11-01"], ["lamp", 2.0, DAY], ["desk", 5.0, DAY])

    def run(self, command: str, *words: str) -> str:
        own = {
            "PENSTOCK_LOG": self.log, "AIRFLOW_HOME": str(self.folder / "airflow"), "DAGSTER_HOME": str(self.folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(BACKFILLS), "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }  # fmt: skip
        done = subprocess.run(
            [self.binaries / command, *words], capture_output=True, text=True, check=False, timeout=900, cwd=self.folder,
            env={**_bare(), **own, "PATH": f"{self.binaries}:{os.environ['PATH']}"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def sell(self, *rows: list[object]) -> None:
        self.run("python", "-c", SELL, self.log, json.dumps(rows))

    def results(self) -> list[object]:
        return json.loads(self.run("python", "-c", READ, self.log).splitlines()[-1])


def _installed(folder: Path, package: str, penstock: Path) -> Path:
    venv.create(folder / "venv", with_pip=True)
    pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    done = subprocess.run([*pip, package, penstock], capture_output=True, text=True, check=False, timeout=1800)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {package} for Python {sys.version_info[:2]}: {done.stderr[-300:]}")
    return folder / "venv" / "bin"


FIRST = [{"2026-11-01 lamp": 1.0, "2026-11-02 lamp": 2.0, "2026-11-02 desk": 5.0}, 3]
AGAIN = [{"2026-11-01 lamp": 1.0, "2026-11-02 lamp": 2.5, "2026-11-02 desk": 5.0}, 5]


def test_as_programs_and_one_backfill_twice(tmp_path, environment):  # noqa: F811
    shop = Shop(tmp_path, environment / "bin")
    program = str(BACKFILLS / "turnover.py")
    shop.run("python", program, shop.log)
    assert shop.results() == FIRST
    shop.sell(["lamp", 0.5, DAY])
    shop.run("python", program, shop.log, DAY, DAY)
    assert shop.results() == AGAIN
    shop.run("python", program, shop.log, DAY, DAY)
    assert shop.results() == [AGAIN[0], 7]
    shop.run("python", program, shop.log)  # goes on with its own state
    assert shop.results() == [AGAIN[0], 8]


def test_airflow_runs_both_dags(tmp_path, wheel):  # noqa: F811
    shop = Shop(tmp_path, _installed(tmp_path, "apache-airflow>=3", wheel))
    shop.run("airflow", "db", "migrate")
    shop.run("airflow", "dags", "test", "turnover")
    assert shop.results() == FIRST
    shop.sell(["lamp", 0.5, DAY])
    shop.run("airflow", "dags", "test", "turnover_backfill", "--conf", json.dumps({"first": DAY, "last": DAY}))
    assert shop.results() == AGAIN


def test_dagster_runs_the_job_and_the_asset(tmp_path, wheel):  # noqa: F811
    shop = Shop(tmp_path, _installed(tmp_path, "dagster", wheel))
    (tmp_path / "dagster.yaml").touch()
    file = str(BACKFILLS / "dagster_job.py")
    shop.run("dagster", "job", "execute", "-f", file, "-j", "turnover")
    assert shop.results() == FIRST
    shop.sell(["lamp", 0.5, DAY])
    days = f"{DAY}...{DAY}"
    shop.run("dagster", "asset", "materialize", "-f", file, "--select", "turnover_by_day", "--partition-range", days)
    assert shop.results() == AGAIN
