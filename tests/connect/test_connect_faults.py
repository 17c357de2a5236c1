"""Workers and tasks that are killed or stopped: sources lose and double nothing, sinks lose nothing."""

import random

import pytest

from brokers import running_broker
from connect_soak import FAULTS, Soak


def test_a_killed_task_loses_and_doubles_nothing_over_an_embedded_log(tmp_path):
    with Soak(tmp_path, f"sqlite:///{tmp_path}/log.db", random.Random(3), step=30, workers=1) as soak:
        soak.round("kill-task")


@pytest.mark.whole
@pytest.mark.parametrize("log", ["kafka", "embedded"])
def test_faults_of_three_workers_lose_and_double_nothing(tmp_path, log):
    if log == "embedded":
        go_through_all(tmp_path, f"sqlite:///{tmp_path}/log.db")
        return
    with running_broker(tmp_path / "kafka") as broker:
        go_through_all(tmp_path, broker.settings.bootstrap_servers)


def go_through_all(folder, url):
    with Soak(folder, url, random.Random(5)) as soak:
        for fault in FAULTS:
            soak.round(fault)
