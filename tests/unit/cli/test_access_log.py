"""The example's topology in the driver, and the demo's proof."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock import TopologyTestDriver
from penstock.connect.record_generators import GeneratorSettings
from penstock.connect.record_generators import access_log as lines
from penstock.tools.demo import access_log, job
from penstock.tools.demo.job import LogWriter

START = 1_790_000_000_000
IPHONE = (
    '1.2.3.4 - - [21/Nov/2026:03:00:05 +0100] "GET / HTTP/1.1" 200 5 "-" '
    '"Mozilla/5.0 (iPhone; CPU iPhone OS 17_6 like Mac OS X)"'
)


def test_parse_line():
    hit = access_log.parse_line(IPHONE)
    assert (hit["ip"], hit["status"], hit["path"]) == ("1.2.3.4", 200, "/")
    assert access_log.system_of(hit["agent"]) == "iOS"
    with pytest.raises(ValueError, match="combined format"):
        access_log.parse_line("GET /")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (IPHONE, 1_795_226_405_000),
        ("no time", 7),
        ("[21/Nvo/2026:03:00:05 +0000]", 7),
        ("[99/Nov/2026:03:00:05 +0000]", 7),
    ],
)
def test_hit_time(line, expected):
    from types import SimpleNamespace

    assert access_log.hit_time(SimpleNamespace(value=line), 7) == expected


def test_bad_lines_go_to_the_dead_letter_topic_and_all_others_are_counted():
    records = list(
        lines(GeneratorSettings(seed=1, count=3000, rate=20, disorder_ms=5000, start_ms=START), bad_share=0.01)
    )
    with TopologyTestDriver(access_log.topology, access_log.config) as driver:
        for record in records:
            driver.pipe_raw("access_log", None, record.value.encode(), 5)
        results = driver.output_topic("os-check").read_key_values_to_map()
        letters = []
        while letter := driver.read_raw("access_log-bad"):
            letters.append(dict(letter.headers))
    assert sum(results.values()) + len(letters) == 3000
    assert 10 < len(letters) < 60
    assert b"combined format" in letters[0]["__streams.errors.message"]


def test_recount_says_what_the_topology_says(tmp_path):
    records = list(lines(GeneratorSettings(seed=2, count=500, rate=5, start_ms=START)))
    path = tmp_path / "access.log"
    path.write_text("".join(r.value + "\n" for r in records))
    found = job.recount(path, path.stat().st_size)
    with TopologyTestDriver(access_log.topology, access_log.config) as driver:
        for record in records:
            driver.pipe_raw("access_log", None, record.value.encode(), 5)
        results = driver.output_topic("os-check").read_key_values_to_map()
    assert found.counts == Counter({(key.window.start, key.key): count for key, count in results.items()})
    assert found.good + found.bad == 500


def test_the_writer_goes_on_after_the_last_line(tmp_path):
    path = tmp_path / "access.log"
    times = []
    for _ in range(2):
        writer = LogWriter(path, rate=2000)
        writer.start()
        while writer.lines < 200:
            pass
        writer.stop()
        from types import SimpleNamespace

        times.append([access_log.hit_time(SimpleNamespace(value=line), 0) for line in path.read_text().splitlines()])
    first, both = times
    assert both[: len(first)] == first
    assert min(t for t in both[len(first) :] if t) > max(first)
