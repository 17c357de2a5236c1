"""What is known of a worker process that is gone."""

from __future__ import annotations

import subprocess
import sys

from penstock import StreamsBuilder
from penstock.engines.spark.crash_notes import CrashNote, CrashNotes, notes_of_dead_workers, notes_of_workers

WORKER = """
import os, sys
from penstock.engines.spark.crash_notes import CrashNotes
notes = CrashNotes(sys.argv[1])
notes.begin("0_1", 3, {"lines-1": [5, 40]})
notes.on_node_start("0_1", "A")
notes.on_node_start("0_1", "KSTREAM-MAPVALUES-0000000001")
if sys.argv[2] == "ends": notes.end()
os._exit(9)
"""


def _worker(root, how):
    assert subprocess.run([sys.executable, "-c", WORKER, str(root), how], check=False).returncode == 9


def test_the_dead_are_heard_once_and_the_living_not(tmp_path):
    assert notes_of_dead_workers(str(tmp_path)) == []
    own = CrashNotes(str(tmp_path))
    own.begin("0_0", 3, {})
    _worker(tmp_path, "ends")
    _worker(tmp_path, "dies")
    node = "KSTREAM-MAPVALUES-0000000001"
    assert notes_of_dead_workers(str(tmp_path)) == [CrashNote("0_1", 3, {"lines-1": [5, 40]}, node)]
    assert notes_of_dead_workers(str(tmp_path)) == []


def test_what_is_said_of_it():
    def clean(value):
        return value

    builder = StreamsBuilder()
    builder.stream("lines").map_values(clean).to("out")
    words = CrashNote("0_1", 3, {"lines-1": [5, 40]}, "KSTREAM-MAPVALUES-0000000001")
    line = clean.__code__.co_firstlineno
    assert words.sentence(builder.build()) == (
        "a worker process ended abruptly while it ran task 0_1 in batch 3, in KSTREAM-MAPVALUES-0000000001, which "
        f"calls {clean.__qualname__} ({__file__}:{line}); its input: lines-1 offsets 5 to 39"
    )
    assert "its input: records of an earlier stage" in CrashNote("1_0", 3).sentence(builder.build())


def test_the_living_say_which_task_is_in_which_step_and_for_how_long(tmp_path):
    notes = CrashNotes(str(tmp_path))
    notes.begin("0_3", 7, {"lines-3": [5, 40]}, "opening its state")
    notes.step("processing")
    notes.on_node_start("0_3", "KSTREAM-MAPVALUES-0000000001")
    _worker(tmp_path, "dies")
    (found,) = notes_of_workers(str(tmp_path))
    assert found.doing(found.since_ms + 94_000) == (
        "task 0_3 is processing since 94 s, in KSTREAM-MAPVALUES-0000000001"
    )
    notes.step("writing its outputs")
    (found,) = notes_of_workers(str(tmp_path))
    assert (found.step, found.node) == ("writing its outputs", "")
    notes.end()
    assert notes_of_workers(str(tmp_path)) == []


def test_who_ended_while_it_wrote_is_not_blamed_on_the_task(tmp_path):
    code = WORKER.replace('if sys.argv[2] == "ends": notes.end()', 'notes.step("writing its outputs")')
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path), "dies"], check=False).returncode == 9
    assert notes_of_dead_workers(str(tmp_path)) == []
