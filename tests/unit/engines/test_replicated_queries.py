"""Opening of the state of an application in continuous mode by its topology and settings, without Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.config import StreamsConfig
from penstock.engines.application.locations import Locations
from penstock.engines.committed_state.continuous_state import ReplicatedState
from penstock.engines.committed_state.micro_batch_state import CommittedState
from penstock.engines.committed_state.opening import lag_of, open_committed, state_of_checkpoint
from penstock.engines.threads.loop.stream_thread import ThreadLog
from penstock.errors import StateError
from penstock.log.open import open_log
from penstock.query import StoreQueryParameters
from penstock.query.http.service import QueryService
from penstock.query.stores import open_store
from penstock.state.checkpoint import write_document
from threads import append, run_to_end, thread_app

MODULE = """
from penstock import Materialized, StreamsBuilder

builder = StreamsBuilder()
builder.stream("lines").group_by_key().count(Materialized("count"))
builder.global_table("names", materialized=Materialized("names-store"))
topology = builder.build()
config = {{
    "application.id": "app",
    "bootstrap.servers": "{url}",
    "state.dir": "{root}/state",
    "default.key.serde": "string",
    "default.value.serde": "string",
}}
"""


@pytest.fixture
def app(tmp_path: Path) -> Mapping[str, Any]:
    """The names of a module whose application has run two records in a stream thread."""
    text = MODULE.format(url=f"sqlite:///{tmp_path / 'log.db'}", root=tmp_path)
    (tmp_path / "counted.py").write_text(text)
    found: dict[str, Any] = {}
    exec(text, found)
    config = StreamsConfig(found["config"])
    with open_log(config["bootstrap.servers"]) as opened:
        log = cast("ThreadLog", opened)
        for topic in ("lines", "names"):
            log.create_topic(topic, 1)
        append(log, "names", [("k", "Kate", 1)])
        append(log, "lines", [("a", "x", 1), ("a", "x", 2)])
        places = Locations.of(config, opened)
        run_to_end(thread_app(found["topology"], config, log, places.replicas), log)
    return found


def note_mode(config: StreamsConfig, mode: str) -> str:
    checkpoint = Locations.of(config).checkpoint
    write_document(checkpoint, "mode.json", json.dumps({"mode": mode}))
    return checkpoint


def test_the_mode_noted_in_the_checkpoint_counts(app: Mapping[str, Any]) -> None:
    config = StreamsConfig(app["config"])
    note_mode(config, "micro_batch")
    state = open_committed(app["topology"], config)
    assert isinstance(state, CommittedState)
    state.close()
    note_mode(config, "continuous")
    state = open_committed(app["topology"], config)
    assert isinstance(state, ReplicatedState)
    assert state.application_id == "app"
    assert open_store(state, StoreQueryParameters("count")).get("a") == 2
    with state.reading("count") as reading:
        assert reading.sources == {0: "worker"}, "the planned folder is that of the thread"
    state.close()


def test_global_tables_are_read_to_the_present_end(app: Mapping[str, Any]) -> None:
    config = StreamsConfig(app["config"])
    note_mode(config, "continuous")
    state = open_committed(app["topology"], config, refresh_s=0)
    names = open_store(state, StoreQueryParameters("names-store"))
    assert names.get("k") == "Kate"
    with open_log(config["bootstrap.servers"]) as log:
        append(cast("ThreadLog", log), "names", [("k", "Kim", 2)])
    assert names.get("k") == "Kim"
    with state.reading("names-store") as reading:
        assert reading.position.to_json() == {"names": {"0": 1}}
    state.close()


def test_a_copy_of_global_tables_in_another_format_is_made_again(app: Mapping[str, Any]) -> None:
    note_mode(StreamsConfig(app["config"]), "continuous")
    for format_ in ("DEFAULT", "HEADERS", "DEFAULT"):
        state = open_committed(app["topology"], StreamsConfig({**app["config"], "dsl.store.format": format_}))
        assert open_store(state, StoreQueryParameters("names-store")).get("k") == "Kate"
        state.close()


def test_the_service_knows_the_lag(app: Mapping[str, Any]) -> None:
    from eventually import eventually

    config = StreamsConfig(app["config"])
    note_mode(config, "continuous")
    service = QueryService(open_committed(app["topology"], config, refresh_s=0), lag=lag_of(config))
    with open_log(config["bootstrap.servers"]) as log:
        append(cast("ThreadLog", log), "lines", [("a", "x", 3)])
    eventually(lambda: service.about()["records_behind"] == 1)
    assert service.about()["stores"] == ["count", "names-store"]
    service.close()


def test_the_command_line(app: Mapping[str, Any], tmp_path: Path) -> None:
    checkpoint = note_mode(StreamsConfig(app["config"]), "continuous")
    command = [
        str(Path(sys.executable).with_name("penstock")),
        "query",
        f"{tmp_path / 'counted.py'}:topology",
        "count",
        "a",
    ]
    found = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    answer = json.loads(found.stdout)
    assert (answer["value"], answer["position"], answer["batch"]) == (2, {"lines": {"0": 1}}, -1)
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.search(r"as of [\d.]+ m?s ago", shown.stdout)
    assert "batch" not in shown.stdout
    write_document(checkpoint, "plan.json", "{}")
    with pytest.raises(StateError, match="its state is in its log"):
        state_of_checkpoint(checkpoint)


def test_before_the_topics_are_there_no_store_is(app: Mapping[str, Any]) -> None:
    config = StreamsConfig({**app["config"], "application.id": "another"})
    note_mode(config, "continuous")
    state = open_committed(app["topology"], config)
    with pytest.raises(StateError, match="does not exist yet"):
        state.store("count")
    state.close()
