"""A thread that does not know yet that its task is another one's by now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eventually import eventually
from penstock import StreamsBuilder, StreamsConfig
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.threads.hosting.control_channel import ControlAddress, ControlServer, Member
from penstock.engines.threads.hosting.epoch_start import NewEpoch, prepare_epoch
from penstock.engines.threads.hosting.thread_host import run_thread
from penstock.log.base import TopicPartition
from penstock.log.open import open_log

SECRET = b"s" * 32
ME = Member("thread-0", 1)
PLACE = TopicPartition("in", 0)


class Driver:
    """The driver's end of the control channel, and the thread."""

    def __init__(self, url: str, root: Path) -> None:
        self.log, self.gate, self.began = open_log(url), root / "gate", root / "began"
        self.log.create_topic("in", 1)
        self.log.create_topic("out", 1)
        self.reports: list[dict[str, Any]] = [{}]  # none has come yet
        self.errors: list[str] = []
        self.server = ControlServer(SECRET, self._heard)
        self._thread = threading.Thread(target=run_thread, args=(self._job(url, root), 0))
        self._thread.start()

    def _job(self, url: str, root: Path) -> Any:
        gate, began = str(self.gate), str(self.began)

        def wait(value: str) -> str:
            import time
            from pathlib import Path

            Path(began).touch()
            while not Path(gate).exists():
                time.sleep(0.01)
            return value

        builder = StreamsBuilder()
        builder.stream("in").map_values(wait).to("out")
        topology = builder.build()
        given = {"application.id": "app", "bootstrap.servers": url, "group.protocol": "streams"}
        serdes = {"default.key.serde": "string", "default.value.serde": "string", "commit.interval.ms": 600_000}
        config = StreamsConfig({**given, **serdes, "state.dir": str(root / "state")})
        app = PlannedApp(topology, config, plan_for(topology, config, self.log), self.log)
        job = prepare_epoch(app, NewEpoch(1, 1, instance="one"), None).job
        return replace(job, control=ControlAddress("127.0.0.1", self.server.port, SECRET, 60.0, 0.05))

    def _heard(self, _: Member, message: dict[str, Any]) -> None:
        if "report" in message:
            self.reports.append(message["report"])
        self.errors += [message["error"]] if "error" in message else []

    def assign(self, revision: int, member: str, *tasks: str) -> None:
        self.server.send(ME, {"member": [member, 1]})
        self.server.send(ME, {"assign": {"revision": revision, "active": tasks, "standby": [], "member": member}})

    def write(self, count: int) -> None:
        columns = {"timestamp": [1] * count, "key": [b"k"] * count, "value": [b"v"] * count}
        types = {"timestamp": pa.int64(), "key": pa.large_binary(), "value": pa.large_binary()}
        self.log.append("in", 0, pa.RecordBatch.from_pydict({n: pa.array(columns[n], types[n]) for n in columns}))

    def process_one(self) -> None:
        """Have the thread process its first record, in which it stays until the gate is opened."""
        self.write(1)
        eventually(self.began.exists)

    def close(self) -> None:
        self.gate.touch()
        self.server.send(ME, {"stop": True})
        self._thread.join(60.0)
        self.server.close()
        self.log.close()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with closing(Driver(f"sqlite:///{tmp_path / 'log.db'}", tmp_path)) as made:
        eventually(lambda: made.server.send(ME, {}))
        made.assign(1, "me", "0_0")
        yield made


def test_a_task_whose_records_its_next_owner_has_deleted_is_dropped(driver: Driver) -> None:
    driver.process_one()
    driver.write(3)
    driver.log.commit_offsets("app", {PLACE: 4})
    driver.log.purge({PLACE: 4})
    driver.gate.touch()
    eventually(lambda: driver.errors or driver.reports[-1].get("fenced") == "me")
    assert not driver.errors
    driver.assign(2, "me again", "0_0")
    eventually(lambda: driver.errors or driver.reports[-1].get("positions") == {"in-0": 4})
    assert not driver.errors
    assert driver.log.end_offset("out", 0) == 0  # what it had begun as the member before


def test_records_that_are_gone_before_anybody_has_read_them_are_an_error(driver: Driver) -> None:
    driver.process_one()
    driver.write(3)
    driver.log.purge({PLACE: 4})
    driver.gate.touch()
    eventually(lambda: driver.errors)
    assert "fenced" not in driver.reports[-1]
