"""Applications whose log, checkpoint and state an earlier version has left go on exactly where they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import KafkaStreams
from penstock.testing import TopologyTestDriver
from versions import kept_application
from versions.unpacking import kept

MODES = {"threads": "continuous", "batches": "micro_batch"}


def undisturbed(root: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The outputs of both parts of the input in one run of the test driver."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    with TopologyTestDriver(kept_application.topology(), kept_application.settings(root)) as driver:
        for part in range(2):
            records = [
                (at, topic, key, value)
                for topic, rows in kept_application.rows(part).items()
                for key, value, at in rows
            ]
            for at, topic, key, value in sorted(records, key=lambda record: record[0]):
                driver.input_topic(topic).pipe(value, key, at)
        for topic in kept_application.OUTPUTS:
            written = driver.output_topic(topic, "bytes", "bytes").read_records_to_list()
            found[topic] = [(record.key, record.value, record.timestamp) for record in written]
    return found


def newest(rows: list[tuple[Any, ...]]) -> dict[bytes, bytes]:
    return {key: value for key, value, _ in rows}


@pytest.mark.parametrize("name", MODES)
def test_an_application_goes_on(name: str, tmp_path: Path, spark: Any) -> None:
    root = kept(name, tmp_path)
    before = kept_application.read(root)
    kept_application.write(root, 1)
    settings = kept_application.settings(root, **{"processing.mode": MODES[name]})
    KafkaStreams(kept_application.topology(), settings, session=spark).run(until="latest")
    after, expected = kept_application.read(root), undisturbed(tmp_path / "driver")
    for topic in kept_application.OUTPUTS:
        assert before[topic], topic
        if topic == "linked":  # how often a row is sent is a matter of when both sides of the join run
            assert newest(after[topic]) == newest(expected[topic])
        else:
            assert after[topic] == expected[topic], topic
