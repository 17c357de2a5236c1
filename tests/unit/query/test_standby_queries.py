"""Queries answered by standbys of continuous mode: who answers, how far it is behind, and which hosts have a key."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app as command
from penstock.engines.committed_state.continuous_state import ReplicatedState, ReplicatedStores
from penstock.engines.threads.loop.stream_thread import ThreadLog
from penstock.engines.threads.replicas.replica_folders import place_of
from penstock.engines.threads.replicas.task_replica import TaskReplica
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.open import open_log
from penstock.query import KeyQuery, LagInfo, StateQueryRequest, StoreQueryParameters
from penstock.query.execute import run_query
from penstock.query.http.client import LocalClient, QueryClient, RemoteClient, StoreQuery
from penstock.query.http.server import QueryServer
from penstock.query.http.service import QueryService
from penstock.query.instances import HostInfo, Instance, Registration
from penstock.query.placement import PlacementNote, Placements, Standby, TaskPlaces
from penstock.query.stores import open_store
from penstock.topology.plan.plan import TaskId
from threads import append, run_to_end

from .thread_worker import STORE, app_in

ACTIVE, TASK = "the-active-place", TaskId(0, 0)


class Machine:
    """A machine with a standby of task 0_0; the thread that runs the task is on another one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = cast("ThreadLog", open_log(f"sqlite:///{root / 'log.db'}"))
        self.active = app_in(root / "elsewhere", self.log, "direct")
        self.here = app_in(root, self.log, "direct")
        self.checkpoint = str(root / "checkpoint")
        self.place = place_of(str(root / "replicas"))
        self.note = PlacementNote(self.checkpoint)
        self.state = self.open()

    def count(self, *keys: str) -> None:
        append(cast("EmbeddedLog", self.log), "lines", [(key, "x", 1) for key in keys], 0)
        run_to_end(self.active, self.log)

    def follow(self) -> None:
        """Bring the standby to the end; it is a process of its own otherwise, and LMDB opens a file once in each."""
        self.state.close()
        standby = TaskReplica.open(self.here, TASK)
        standby.restore(self.log, self.log.committed_offsets("app"))
        standby.close()
        self.state = self.open()

    def open(self) -> ReplicatedState:
        own = open_log(self.log.url)
        stores = ReplicatedStores(
            "app", self.checkpoint, self.root / "queries", self.here.topology.stores, None, str(self.root / "replicas")
        )
        return ReplicatedState(stores, lambda: self.here, own, 0.0)

    def close(self) -> None:
        self.state.close()
        self.log.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    made.count("a", "a", "b")
    made.follow()
    made.note.write({"0_0": TaskPlaces("first", ACTIVE, (Standby("second", made.place, 0),))})
    yield made
    made.close()


def read(state: Any) -> tuple[dict[str, int], str, int | None]:
    with state.reading(STORE, [0]) as reading:
        rows = {key: found.value for key, found in reading.views[0].all()}
        return rows, reading.sources[0], reading.position.offset("lines", 0)


def test_a_standby_that_has_caught_up_answers_and_says_so(machine: Machine) -> None:
    assert read(machine.state) == ({"a": 2, "b": 1}, "standby", 2)
    request = StateQueryRequest.in_store(STORE).with_query(KeyQuery.with_key("a")).with_partitions([0])
    answer = run_query(machine.state, request, is_active=False).partition_results[0]
    assert (answer.get(), answer.read_from, answer.position.offset("lines", 0)) == (2, "standby", 2)


def test_a_standby_that_is_behind_answers_only_where_stale_state_is_allowed(machine: Machine) -> None:
    read(machine.state)
    machine.count("a", "c")
    assert read(machine.state.stale()) == ({"a": 2, "b": 1}, "standby", 2)  # it waits for nothing
    assert machine.state.lags() == {STORE: {0: LagInfo(2, 4)}}
    read(machine.state)
    time.sleep(1.2)  # the standby stands still
    assert read(machine.state) == ({"a": 3, "b": 1, "c": 1}, "own", 4)
    assert read(machine.state.stale())[:2] == ({"a": 2, "b": 1}, "standby")
    wanted = StoreQueryParameters(STORE).enable_stale_stores()
    assert open_store(machine.state.stale(), wanted).get("a") == 2
    machine.follow()
    assert read(machine.state.stale()) == ({"a": 3, "b": 1, "c": 1}, "standby", 4)
    assert machine.state.lags()[STORE][0].offset_lag == 0


def test_without_a_copy_on_the_machine_stale_reads_are_those_of_the_log(machine: Machine) -> None:
    append(cast("EmbeddedLog", machine.log), "lines", [("d", "x", 1)], 1)
    run_to_end(machine.active, machine.log)
    with machine.state.stale().reading(STORE, [1]) as reading:
        assert {key for key, _ in reading.views[1].all()} == {"d"}
        assert reading.sources == {1: "own"}


def test_the_hosts_of_a_key_are_those_with_its_state(machine: Machine) -> None:
    places = {"active": ACTIVE, "near": machine.place, "far": "another-place"}
    ports = dict(zip(places, (1, 2, 3), strict=True))
    made = [
        Registration(machine.checkpoint, Instance("h", ports[name], "active" if name == "active" else "standby"),
                     lambda place=place: place)
        for name, place in places.items()
    ]  # fmt: skip
    service = QueryService(machine.state)
    try:
        # "a" is in partition 0 or 1; only the places of task 0_0 are noted.
        key = next(key for key in "abcdefgh" if service.key_metadata(STORE, key).partition == 0)
        found = service.key_metadata(STORE, key)
        assert (found.active_host, found.standby_hosts) == (HostInfo("h", 1), {HostInfo("h", 2)})
        assert (found.active_machine, found.standby_machines) == ("first", {"second": 0})
        shown = service.metadata(STORE, key)
        assert (shown["standby_hosts"], shown["standby_machines"]) == (["h:2"], {"second": 0})
        other = next(key for key in "abcdefgh" if service.key_metadata(STORE, key).partition == 1)
        unknown = service.key_metadata(STORE, other)
        assert unknown.standby_hosts == {HostInfo("h", 2), HostInfo("h", 3)}  # any of them can answer
    finally:
        for each in made:
            each.close()


@pytest.mark.parametrize("way", ["here", "http"])
def test_clients_read_stale_state_lags_and_hosts(machine: Machine, way: str) -> None:
    machine.count("a")
    service = QueryService(machine.state)
    server = QueryServer(service)
    server.start()
    client: QueryClient = LocalClient(service) if way == "here" else RemoteClient(server.url)
    try:
        asked = StoreQuery(STORE, "get", "a", stale=True)
        answer = client.query(asked)
        assert (answer["value"], answer["read_from"], answer["position"]) == (2, "standby", {"lines": {"0": 2}})
        entries = client.query(StoreQuery(STORE, "range", stale=True))
        assert "standby" in entries["read_from"]
        assert client.lags()[STORE]["0"] == {
            "current_offset_position": 2, "end_offset_position": 3, "offset_lag": 1,
        }  # fmt: skip
        assert client.metadata(STORE, "a", "auto")["partition"] in (0, 1)
        if way == "http":
            run = CliRunner().invoke(command, ["query", STORE, "a", "--stale", "--url", server.url])
            assert run.exit_code == 0, run.output
            assert "from standby" in run.output
            run = CliRunner().invoke(command, ["query", "lags", "--url", server.url])
            assert run.exit_code == 0, run.output
            assert STORE in run.output
            run = CliRunner().invoke(command, ["query", "where", STORE, "a", "--url", server.url])
            assert run.exit_code == 0, run.output
            assert "standby hosts" in run.output
    finally:
        server.close()
        if way == "http":
            client.close()


def test_a_note_that_is_old_or_damaged_is_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Placements(machine.checkpoint).of("0_0") == TaskPlaces(
        "first", ACTIVE, (Standby("second", machine.place, 0),)
    )
    path = Path(machine.checkpoint) / "placement.json"
    text = path.read_text()
    for broken in ("", "[]", "{", '{"written_ms": 1e400}', text.replace('"host"', '"hosts"'), text.replace("1", "0")):
        path.write_text(broken)
        assert Placements(machine.checkpoint).of("0_0") is None, broken
    machine.note.remove()
    assert not path.exists()
