"""`penstock app plan`, over two files and over a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from penstock.cli.topology_loader import load_topology
from penstock.log.open import open_log
from penstock.topology.plan.plan import plan_of
from penstock.topology.plan.plan_json import StoredPlan, document_of

CODE = """
from penstock import Consumed, Materialized, StreamsBuilder

config = {{"application.id": "shop"}}
builder = StreamsBuilder()
for store in {stores}:
    builder.stream(store + "-in", Consumed(key_serde="string", value_serde="string")).group_by_key().count(Materialized(store))
topology = builder.build()
"""
Call = Callable[..., tuple[int, str, str]]


def version(folder: Path, name: str, *stores: str) -> Path:
    file = folder / f"{name}.py"
    file.write_text(CODE.format(stores=stores))
    return file


def test_two_topologies(run: Call, tmp_path: Path) -> None:
    old, new = version(tmp_path, "version_1", "b"), version(tmp_path, "version_2", "a", "b")
    code, out, _ = run("app", "plan", old, new)
    assert code == 0
    assert out.startswith("safe: ")
    assert "note: store 'a' is new" in out
    code, out, _ = run("app", "plan", new, old, "--json")
    assert code == 1
    found = json.loads(out)
    assert (found["verdict"], len(found["reasons"])) == ("refuse", 1)
    code, out, _ = run("app", "plan", new, old, "--drop", "a")
    assert code == 0
    assert "migration: store 'a' is taken out" in out
    assert run("app", "plan", old, old)[1].startswith("same: ")


def test_the_format_of_stores_is_part_of_a_plan(run: Call, tmp_path: Path) -> None:
    was = version(tmp_path, "version_1", "b")
    (tmp_path / "version_2.py").write_text(
        was.read_text().replace('"shop"', '"shop", "dsl.store.format": "headers"'), encoding="utf-8"
    )
    now = tmp_path / "version_2.py"
    for old, new, kept in ((was, now, "no headers"), (now, was, "headers")):
        code, out, _ = run("app", "plan", old, new)
        assert code == 1
        assert f"store 'b' was kept with {kept}" in out
    assert run("app", "plan", now, now)[1].startswith("same: ")


def test_a_checkpoint_and_the_topics_as_they_are(run: Call, tmp_path: Path) -> None:
    file = version(tmp_path, "version_1", "b")
    topology = load_topology(str(file))[0]
    document = document_of(plan_of(topology, "shop", {"b-in": 4}), topology)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "plan.json").write_text(json.dumps(StoredPlan.first(document, "1").facts()))
    assert run("app", "plan", checkpoint, file)[1].startswith("same: ")
    log = tmp_path / "log.db"
    with open_log(f"sqlite:///{log}") as topics:
        topics.create_topic("b-in", 6)
    code, out, _ = run("app", "plan", checkpoint, file, "-b", log)
    assert code == 1
    assert "input topic 'b-in' had 4 partitions and now has 6" in out
    code, _, err = run("app", "plan", checkpoint, file, "--config", "application.id=other")
    assert code == 1
    assert "is of application 'shop'" in err
    code, _, err = run("app", "plan", tmp_path, file)
    assert "there is no checkpoint at" in err
