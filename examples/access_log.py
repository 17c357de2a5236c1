"""Which operating systems visit us? An nginx access log becomes counts per minute, while it is written.

    topic access_log    one record per line, as nginx has written it
      -> parse_line     a line becomes a dict; a line that is none goes to the dead letter topic access_log-bad
      -> by system      "Windows", "macOS", "Android", ...
      -> count          in windows of one minute of the log's own time, late lines welcome for ten seconds
    topic os-check      key: system and window, value: hits so far

Run it as a program (`python examples/access_log.py [FILE]`), with a live view (`penstock demo access-log`), or look at
it: `penstock describe examples/access_log.py:topology`.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import Any

from penstock import Consumed, Grouped, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows

__all__ = ["config", "hit_time", "main", "parse_line", "system_of", "topology"]

COMBINED = re.compile(
    r"(?P<ip>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "
    r'"(?P<method>[A-Z]+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<size>\d+|-) '
    r'"(?P<referrer>[^"]*)" "(?P<agent>[^"]*)"'
)
TIME = re.compile(r"\[(\d\d)/(\w{3})/(\d{4}):(\d\d:\d\d:\d\d) ([+-]\d{4})\]")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
SYSTEMS = (
    ("Windows", "Windows"),
    ("iPhone", "iOS"),
    ("iPad", "iOS"),
    ("Android", "Android"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
    ("bot", "a bot"),
)
WINDOW = TimeWindows.of("1 minute", grace="10 seconds")


def parse_line(line: str) -> dict[str, Any]:
    """Return the fields of a line; an error sends the line to the dead letter topic, with the reason as a header."""
    match = COMBINED.fullmatch(line)
    if not match:
        raise ValueError("not a line in nginx's combined format")
    hit: dict[str, Any] = match.groupdict()
    hit["status"] = int(hit["status"])
    return hit


def system_of(agent: str) -> str:
    """Return the operating system in a user agent."""
    return next((system for sign, system in SYSTEMS if sign in agent), "other")


def hit_time(record: Any, partition_time_ms: int) -> int:
    """Return the time in the line; for a line without one, the latest time before it."""
    match = TIME.search(record.value or "")
    if not match:
        return partition_time_ms
    day, month, year, clock, zone = match.groups()
    try:
        when = datetime.fromisoformat(f"{year}-{MONTHS.index(month) + 1:02}-{day}T{clock}{zone}")
    except ValueError:
        return partition_time_ms
    return int(when.timestamp()) * 1000


def build() -> StreamsBuilder:
    """Build the topology, from the topic of lines to the topic of counts."""
    builder = StreamsBuilder()
    lines = builder.stream(
        "access_log", Consumed(key_serde="bytes", value_serde="string", timestamp_extractor=hit_time)
    )
    (
        lines.map_values(parse_line)
        .group_by(lambda _, hit: system_of(hit["agent"]), Grouped(key_serde="string", value_serde="json"))
        .windowed_by(WINDOW)
        .count(Materialized("os-counts"))
        .to_stream()
        .to("os-check", Produced(key_serde=Serdes.time_windowed(Serdes.string(), 60_000), value_serde="long"))
    )
    return builder


topology = build().build()
config = {
    "application.id": "os-check",
    "deserialization.exception.handler": "continue",
    "processing.exception.handler": "continue",
    "errors.dead.letter.queue.topic.name": "access_log-bad",
}


def main() -> None:
    """Follow a log file (the first argument) or a generated one until Ctrl-C, and print the counts."""
    from penstock.tools.demo import run_demo

    run_demo(topology, config, path=sys.argv[1] if len(sys.argv) > 1 else None, seconds=None)


if __name__ == "__main__":
    main()
