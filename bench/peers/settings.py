"""What the Python peers share: settings from the environment, marks on standard output, and the parsing of a line.

Standard library only: each peer has an interpreter of its own. compare.py sets for every peer, the one in Java and
Penstock included:

  BOOTSTRAP   the broker                            WORKLOAD    w1, w2a, w2b, w3 or w4
  APP_ID      application or consumer group         STATE_DIR   a folder of this process's own
  TOPIC_LOGS, TOPIC_SUMS, TOPIC_ORDERS, TOPIC_USERS, TOPIC_OUT
  GUARANTEE   alo or eos                            EXPECT_PROCESSED  end after that many records; 0: go on
  TAIL        1: more records will come (latency)   PROC_INDEX  which of several processes this is

and reads lines "@@NAME milliseconds" from standard output: RUNNING, FIRST (the first record is processed), PROCESSED
(all are), AT milliseconds records (so many are).
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

ENV = os.environ
WORKLOAD = ENV["WORKLOAD"]
OUT = ENV["TOPIC_OUT"]
EXACTLY_ONCE = ENV.get("GUARANTEE") == "eos"
TAIL = ENV.get("TAIL") == "1"
LINE = re.compile(r'^(\S+) \S+ \S+ \[[^\]]+\] "\S+ (\S+) [^"]*" (\d{3}) (?:\d+|-) "[^"]*" "([^"]*)"$').match
OS_NAMES = ("Windows", "iPhone", "iPad", "Android", "CrOS", "Ubuntu", "Macintosh", "Linux")
_begun = False


def mark(name: str, *more: int) -> None:
    """Tells compare.py; Faust takes sys.stdout for its log, so not there."""
    print(f"@@{name}", int(time.time() * 1000), *more, file=sys.__stdout__, flush=True)


def begin() -> None:
    """Called with each record; marks the first."""
    global _begun  # noqa: PLW0603 - one process, one run
    if not _begun:
        _begun = True
        mark("FIRST")


def parse(line: str) -> dict[str, Any] | None:
    """A line of the access log; None if it is something else."""
    begin()
    found = LINE(line)
    if found is None:
        return None
    ip, path, status, agent = found.groups()
    return {"ip": ip, "path": path, "status": int(status), "agent": agent}


def os_of(agent: str) -> str:
    for name in OS_NAMES:
        if name in agent:
            return name
    return "other"


def group_of(hit: dict[str, Any]) -> str:
    """What W2 counts by."""
    return os_of(hit["agent"]) if WORKLOAD == "w2a" else hit["ip"]


def shown(hit: dict[str, Any]) -> dict[str, Any]:
    """What W1 writes."""
    return {"ip": hit["ip"], "path": hit["path"], "status": hit["status"]}
