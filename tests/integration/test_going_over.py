"""An instance goes over to sharing its tasks while its log fails at each of the places that it comes to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eventually import eventually
from penstock import KafkaStreams, StreamsBuilder
from penstock.engines.application.application_lease import LeaseTenure, SharingRecord
from penstock.engines.lifecycle import State
from penstock.errors import LogUnavailableError
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.embedded.streams_groups import EmbeddedStreamsCoordinator
from penstock.log.open import open_log

# In the order in which a run comes to them.
PLACES: list[tuple[type, str]] = [
    (EmbeddedLog, "release_lease"),
    (EmbeddedStreamsCoordinator, "describe"),
    (EmbeddedStreamsCoordinator, "set_group_settings"),
]


def feed(log: EmbeddedLog, numbers: range) -> None:
    columns = {
        "timestamp": pa.array([0] * len(numbers), pa.int64()),
        "key": pa.array([b"key"] * len(numbers), pa.large_binary()),
        "value": pa.array([b"%d" % number for number in numbers], pa.large_binary()),
    }
    for partition in range(2):
        log.append("in", partition, pa.RecordBatch.from_pydict(columns))


def passed(log: EmbeddedLog) -> Counter[bytes]:
    ends = [(partition, log.end_offset("out", partition)) for partition in range(2)]
    batches = [batch for partition, end in ends for batch in log.iterate("out", partition, 0, end)]
    return Counter(value for batch in batches for value in batch.column("value").to_pylist())


@contextmanager
def running(root: Path, threads: int) -> Iterator[tuple[EmbeddedLog, KafkaStreams]]:
    """An application that passes records on, once it has passed the first hundred of both partitions."""
    url = f"sqlite:///{root / 'log.db'}"
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    settings = {"application.id": f"over-{os.getpid()}", "bootstrap.servers": url, "state.dir": str(root / "state"),
                "default.key.serde": "bytes", "default.value.serde": "bytes", "num.stream.threads": threads}  # fmt: skip
    with open_log(url) as log:
        assert isinstance(log, EmbeddedLog)
        for topic in ("in", "out"):
            log.create_topic(topic, 2)
        feed(log, range(100))
        with KafkaStreams(builder.build(), settings) as app:
            eventually(lambda: passed(log).total() == 200, facts=lambda: (app.state, app.error))
            yield log, app
        assert passed(log) == Counter({b"%d" % number: 2 for number in range(200)})


@pytest.mark.parametrize("places", [PLACES[:2], PLACES[2:]], ids=["first", "last"])  # three would use up all restarts
def test_a_log_that_is_away_while_an_instance_goes_over_to_sharing_does_not_end_it(
    places: list[tuple[type, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def fail_once(owner: type, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def failing(*given: Any, **more: Any) -> Any:
            if name not in failed and armed:
                failed.append(name)
                raise LogUnavailableError(f"no broker answers: {name}")
            return real(*given, **more)

        monkeypatch.setattr(owner, name, failing)

    armed: list[bool] = []
    for place in places:
        fail_once(*place)
    with running(tmp_path, 2) as (log, app):
        application = str(app.config["application.id"])
        armed.append(True)
        SharingRecord(log, application).ask()
        coordinator = log.streams_coordinator()
        eventually(lambda: len(failed) == len(places) or app.error is not None, facts=lambda: (app.state, failed))
        feed(log, range(100, 200))
        eventually(lambda: passed(log).total() >= 400 or app.error is not None, facts=lambda: (app.state, app.error))
        assert app.error is None
        eventually(lambda: app.state is State.RUNNING, facts=lambda: (app.state, app.error))
        described = coordinator.describe(application)
        assert described is not None
        assert len(described.members) == 2
        coordinator.close()
    assert failed == [name for _, name in places]


def test_an_epoch_that_ends_while_the_log_is_away_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away, asked = [True], []
    real = LeaseTenure.membership

    def membership(tenure: LeaseTenure, timeout_s: float = 0.0) -> Any:
        if is_armed and away:
            asked.append(True)
            raise LogUnavailableError("no broker answers")
        return real(tenure, timeout_s)

    is_armed: list[bool] = []
    monkeypatch.setattr(LeaseTenure, "membership", membership)
    with running(tmp_path, 1) as (log, app):
        is_armed.append(True)
        eventually(lambda: len(asked) > 3 or app.error is not None, facts=lambda: (app.state, app.error))
        assert app.error is None
        assert app.state is State.REBALANCING
        away.clear()
        feed(log, range(100, 200))
        eventually(lambda: passed(log).total() >= 400 or app.error is not None, facts=lambda: app.error)
        eventually(lambda: app.state is State.RUNNING, facts=lambda: (app.state, app.error))
