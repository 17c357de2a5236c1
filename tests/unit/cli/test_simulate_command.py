"""`penstock simulate`: inputs, reports, seeds and exit codes."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from penstock.testing.simulation import checking

APP = """
from penstock import Consumed, Processor, Produced, Record, StreamsBuilder

config = {"application.id": "numbers", "default.key.serde": "string", "default.value.serde": "long"}
builder = StreamsBuilder()
builder.stream("numbers").map_values(lambda number: number * 2).to("doubled")
topology = builder.build()

seen = []


def remembering(number):
    seen.append(number)
    return len(seen)


builder = StreamsBuilder()
builder.stream("numbers").map_values(remembering).to("counted")
wrong = builder.build()
"""
LINES = [{"topic": "numbers", "key": f"k{n % 3}", "value": n, "timestamp": 1_000 * n} for n in range(9)]


@pytest.fixture
def app(tmp_path: Path) -> str:
    file = tmp_path / "numbers_app.py"
    file.write_text(APP)
    return str(file)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    file = tmp_path / "numbers.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in LINES))
    return file


def test_a_right_topology_holds(run, app, records, tmp_path):
    report = tmp_path / "report.json"
    arguments = ("simulate", f"{app}:topology", "--input", records, "--seeds", 3, "--report", report)
    code, out, _ = run(*arguments)
    assert code == 0, out
    assert "3 schedules of 3 with " in out
    assert out.endswith("\nall held\n")
    facts = json.loads(report.read_text())
    assert (facts["failed"], facts["schedules"]["run"], facts["records"], facts["failure"]) == (False, 3, 9, None)
    assert run(*arguments)[1] == out


def test_a_mistake_fails_with_a_story(run, app, records, tmp_path):
    report = tmp_path / "report.json"
    code, out, _ = run("simulate", f"{app}:wrong", "-i", records, "--seeds", 3, "--report", report)
    assert code == 1
    assert "MISTAKE (state-outside): KSTREAM-MAPVALUES-0000000001, remembering (" in out
    assert "of numbers:" in out
    assert "FAILED: The mistake above explains it: state-outside." in out
    facts = json.loads(report.read_text())
    assert [each["kind"] for each in facts["mistakes"]] == ["state-outside"]
    assert facts["failure"]["story"]


def test_one_seed_prints_its_story(run, app, records):
    code, out, _ = run("simulate", f"{app}:topology", "-i", records, "--seed", 4)
    assert (code, out.splitlines()[-1]) == (0, "all held")
    assert out.startswith("seed 4: ")
    assert "committed numbers-" in out
    assert run("simulate", f"{app}:topology", "-i", records, "--seed", 4)[1] == out


def test_lines_of_a_consumed_topic(run, app, tmp_path):
    file = tmp_path / "consumed.jsonl"
    file.write_text(
        '{"partition": 1, "offset": 5, "timestamp": 1, "key": "a", "value": 3, "headers": [["h", "x"]]}\n\n'
    )
    assert run("simulate", f"{app}:topology", "-i", f"numbers={file}", "--seeds", 1)[0] == 0


def test_ctrl_c_reports_what_has_run(run, app, records, monkeypatch):
    schedules = checking.simulate

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return schedules(*arguments, **options)

    monkeypatch.setattr(checking, "simulate", interrupted)
    before = signal.getsignal(signal.SIGINT)
    code, out, _ = run("simulate", f"{app}:topology", "-i", records, "--seeds", 50)
    assert code == 130
    assert "1 schedule of 50" in out
    assert out.endswith("stopped before the end\n\nall held as far as it went\n")
    assert signal.getsignal(signal.SIGINT) is before
    assert threading.current_thread() is threading.main_thread()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "numbers.jsonl:1: not JSON"),
        ("[1]", "numbers.jsonl:1: not a JSON object"),
        ('{"topic": "numbers", "wert": 1}', "no field 'wert'"),
        ('{"topic": "nubmers", "key": "a", "value": 1}', "no source reads topic 'nubmers'"),
        ('{"topic": "numbers", "key": "a", "value": "x"}', "numbers.jsonl:1: "),
        ('{"topic": "numbers", "key": "a", "value": 1, "timestamp": []}', "timestamp is [], not milliseconds"),
        ('{"topic": "numbers", "key": "a", "value": 1, "timestamp": -4}', "numbers.jsonl:1: "),
        ('{"topic": "numbers", "key": "a", "value": 1, "partition": 9}', "numbers has no partition 9"),
        ('{"topic": "numbers", "key": "a", "value": 1, "headers": [1]}', "numbers.jsonl:1: "),
        ("", "there is no record to simulate with"),
    ],
)
def test_bad_lines_have_clear_errors(run, app, tmp_path, line, message):
    file = tmp_path / "numbers.jsonl"
    file.write_text(line + "\n")
    code, _, err = run("simulate", f"{app}:topology", "-i", file)
    assert code == 1
    assert err.startswith("error: ")
    assert message in err


def test_a_wrong_call_has_clear_errors(run, app, records, tmp_path):
    assert "has no attribute 'topologie'" in run("simulate", f"{app}:topologie", "-i", records)[2]
    making = tmp_path / "making.py"
    making.write_text("def make():\n    return {}['topology']\n")
    assert (
        f"{making}:make raised KeyError: 'topology' at {making}:2"
        in run("simulate", f"{making}:make", "-i", records)[2]
    )
    assert "there is no file" in run("simulate", f"{tmp_path}/none.py:topology", "-i", records)[2]
    assert "cannot be read: No such file" in run("simulate", f"{app}:topology", "-i", tmp_path / "none")[2]
    assert "Give --input FILE with records of numbers." in run("simulate", f"{app}:topology")[2]
    both = run("simulate", f"{app}:topology", "-i", records, "--seed", 4, "--report", tmp_path / "report.json")
    assert (both[0], "Use --first-seed 4 --seeds 1." in both[2]) == (1, True)
    assert "no kind of mistakes 'x'" in run("simulate", f"{app}:topology", "-i", records, "--accept", "x")[2]
