"""`penstock doctor` over a broker: what works is shown step by step, and the step that does not has a name."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.tools.broker.broker_settings import free_port

from .conftest import Bench


def doctor(*options: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the findings about Kafka by their names."""
    called = CliRunner().invoke(app, ["doctor", "--json", *options])
    findings = {each["name"]: each for each in json.loads(called.output)["findings"]}
    first = list(findings).index("cryptography")
    return called.exit_code, {name: findings[name] for name in list(findings)[first + 1 :]}


def test_a_broker_that_works(kafka_bench: Bench) -> None:
    kafka_bench.log.create_topic("looked-at")
    kafka_bench.write("looked-at", [("k", "v", 0)])
    code, found = doctor("--bootstrap-servers", kafka_bench.url)
    assert code == 0
    assert list(found) == [f"broker {kafka_bench.url}"]
    assert found[f"broker {kafka_bench.url}"]["found"].startswith("answers; ")
    assert " was read" in found[f"broker {kafka_bench.url}"]["found"]


def test_what_does_not_work_has_a_name_and_a_remedy() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    code, found = doctor("-b", nobody)
    assert code == 1
    assert list(found) == [f"broker {nobody}"]
    assert f"no broker answers at {nobody}: " in found[f"broker {nobody}"]["found"]
    assert "penstock broker start" in found[f"broker {nobody}"]["remedy"]
    code, found = doctor("-b", "topics.db")
    assert (code, list(found)) == (1, ["broker topics.db"])
