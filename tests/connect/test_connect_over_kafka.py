"""Workers over a real broker: a sample of the recorded scenarios; ``run.py --kind rest --log kafka`` runs all."""

import pytest

from brokers import running_broker
from connect_cases import load_cases
from connect_rest import Scenario

SAMPLE = ("errors-dead-letters-headers-distributed", "exactly-once-tasks")
CASES = {case["name"]: case for case in load_cases(kind="rest")}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running.settings.bootstrap_servers


@pytest.mark.parametrize("name", SAMPLE)
def test_a_recorded_scenario_over_a_broker(name, servers):
    assert Scenario(CASES[name], servers).run() == []
