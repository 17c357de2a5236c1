"""Recorded scenarios of Kafka Connect's workers over the embedded log: a sample; ``run.py --kind rest`` runs all."""

import pytest

from connect_cases import load_cases
from connect_rest import Scenario

SAMPLE = (
    "admin-off", "cluster-balance", "cluster-forwarding", "config-patch-distributed", "config-put-standalone", "cors", "create-bodies-distributed",
    "errors-dead-letters-headers-distributed", "errors-dead-letters-reported", "exactly-once-tasks", "failed-sink-file",
    "initial-state-standalone", "internal-endpoints", "internal-topics-tasks", "lifecycle-several",
    "lifecycle-sink-distributed", "loggers-distributed", "mirror-heartbeat", "mirror-validate", "offsets-scripted", "offsets-scripted-sink",
    "offsets-source-distributed", "offsets-source-shapes-distributed", "plugin-version", "recreate-keeps-offsets",
    "root-distributed", "sink-tasks", "sink-transforms", "source-format-distributed", "source-transforms-fail",
    "standalone-files", "tasks-max", "topic-creation", "validate-common", "validate-overrides", "worker-restart",
)  # fmt: skip
CASES = {case["name"]: case for case in load_cases(kind="rest")}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_recorded_scenario(name):
    assert Scenario(CASES[name], most_sleep_ms=300).run() == []
