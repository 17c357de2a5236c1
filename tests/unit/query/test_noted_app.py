"""Queries of an application in continuous mode by what its checkpoint notes and its log has, without its topology."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from eventually import eventually
from penstock import Materialized, StreamsBuilder, Suppressed, TimeWindows
from penstock.console.applications import Applications
from penstock.engines.committed_state.opening import state_of_checkpoint
from penstock.engines.threads.app import ThreadApp, noted_app, write_noted_app
from penstock.errors import StateError
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.query.http.answers import Paging
from penstock.query.http.service import QueryService
from threads import append, run_to_end, thread_app

SERDES = {"default.key.serde": "string", "default.value.serde": "string", "processing.mode": "continuous"}


def topology() -> Any:
    builder = StreamsBuilder()
    builder.table("names", materialized=Materialized("names"))
    words = builder.stream("lines").group_by(lambda _, word: word)
    words.count(Materialized("counts")).to_stream().to("out")
    windows = words.windowed_by(TimeWindows.of("1 minute")).count(Materialized("by-minute"))
    windows.suppress(Suppressed.until_window_closes()).to_stream().to("closed")
    builder.global_table("places", materialized=Materialized("places"))
    return builder.build({"topology.optimization": "all", **SERDES})


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def opened(root: Path) -> Callable[[], EmbeddedLog]:
    return lambda: cast("EmbeddedLog", open_log(f"sqlite:///{root / 'log.db'}"))


@pytest.fixture
def checkpoint(root: Path, opened: Callable[[], EmbeddedLog]) -> str:
    """The checkpoint of an application that has run, and whose threads have left their replicas on another machine."""
    with opened() as log:
        for topic in ("lines", "names", "places", "out", "closed"):
            log.create_topic(topic, 2)
        append(log, "lines", [("k", "a", 1), ("k", "b", 2), ("k", "a", 70_000)], 1)
        append(log, "names", [("x", "one", 1), ("y", "two", 2)], 0)
        app = thread_app(topology(), {**SERDES, "topology.optimization": "all"}, log, str(root / "elsewhere"))
        run_to_end(app, log)
        place = root / "app" / "checkpoint"
        place.mkdir(parents=True)
        (place / "mode.json").write_text(json.dumps({"mode": "continuous"}))
        (place / "plan.json").write_text(json.dumps({"plan": {"application": "app"}}))
        write_noted_app(str(place), app)
    return str(place)


def entries(service: QueryService, store: str) -> dict[Any, Any]:
    return {each["key"]: each["value"] for each in service.range(store, None, None, Paging())["entries"]}


def test_the_stores_are_answered_by_their_serdes(checkpoint: str, opened: Callable[[], EmbeddedLog]) -> None:
    service = QueryService(state_of_checkpoint(checkpoint, open_log=opened))
    try:
        assert {each["name"] for each in service.stores()} == {"counts", "by-minute", "names", "places"}
        assert entries(service, "counts") == {"a": 2, "b": 1}
        assert entries(service, "names") == {"x": "one", "y": "two"}  # its source topic is its changelog
        windows = service.windows("by-minute", "a", None, None, Paging())["entries"]
        assert [(each["start"], each["value"]) for each in windows] == [(0, 1), (60_000, 1)]  # 0 is in the cache
        with pytest.raises(StateError, match="is global"):
            service.get("places", "x", "auto")
    finally:
        service.close()


def test_answers_follow_the_log(checkpoint: str, root: Path, opened: Callable[[], EmbeddedLog]) -> None:
    service = QueryService(state_of_checkpoint(checkpoint, open_log=opened))
    try:
        assert entries(service, "counts")["a"] == 2
        with opened() as log:
            append(log, "lines", [("k", "a", 3)], 0)
            app = thread_app(topology(), {**SERDES, "topology.optimization": "all"}, log, str(root / "elsewhere"))
            run_to_end(app, log)
        eventually(lambda: entries(service, "counts")["a"] == 3)  # commits are looked for at intervals
    finally:
        service.close()


def test_what_is_noted_is_the_application_but_for_what_only_threads_need(
    checkpoint: str, opened: Callable[[], EmbeddedLog]
) -> None:
    with opened() as log:
        app: ThreadApp = thread_app(topology(), {**SERDES, "topology.optimization": "all"}, log)
        found = noted_app(checkpoint, log.identity(), None)
    assert found is not None
    assert found.changelogs == {name: topic for name, topic in app.changelogs.items() if name in found.topology.stores}
    assert found.numbers_topic == app.numbers_topic
    assert list(found.tasks()) == list(app.tasks())
    assert all(found.plan.sources(task) == app.plan.sources(task) for task in app.tasks())


def test_the_console_of_another_process_asks_them(checkpoint: str, opened: Callable[[], EmbeddedLog]) -> None:
    with opened() as log:
        applications = Applications(log, checkpoints=[checkpoint])
        with pytest.raises(StateError, match="continuous mode"):
            applications.get("app").queries()
        applications.close()
        applications = Applications(log, checkpoints=[checkpoint])
        applications.open_log = opened
        assert applications.get("app").queries().get("counts", "a", "auto")["value"] == 2
        applications.close()


def test_a_checkpoint_of_an_earlier_version_says_what_to_do(checkpoint: str, opened: Callable[[], EmbeddedLog]) -> None:
    (Path(checkpoint) / "continuous.json").unlink()
    with pytest.raises(StateError) as raised:
        state_of_checkpoint(checkpoint, open_log=opened)
    assert "Start the application once" in str(raised.value.hint)
