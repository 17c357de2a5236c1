#!/usr/bin/env python3
"""Runs random scenarios of changes through Debezium's connector and through this project's, and compares the records.

``debezium_side_by_side.py --cases 20`` runs so many, ``--seed`` is the first seed. It prints how many agree, and how the
others differ. It needs a JDK, and PostgreSQL. ``--keep DIR`` writes the scenarios with Debezium's records to a folder, in the
form of the recorded ones; ``--again DIR`` records the scenarios of a folder anew.
"""

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from connect_debezium import (
    CONNECTOR,
    MARKER,
    DebeziumRunner,
    compact,
    connected,
    load_debezium_cases,
    normalized,
    parse,
)
from penstock.base.jars import fetch_jars, java_command
from penstock.tools.broker.java_worker import check_noted
from postgres_server import PostgresServer
from random_changes import random_scenario

VERSION = "3.6.1.Final"
JARS = [("io.debezium", name, VERSION) for name in ("debezium-api", "debezium-connector-postgres", "debezium-embedded")]
SOURCE = Path(__file__).parent / "java" / "DebeziumRecorder.java"
HEARTBEAT = "io.debezium.connector.common.Heartbeat"
PATIENCE_S, QUIET_S = 60, 1.2


class DebeziumRecorder:
    """Debezium's connector in a process, which adds to scenarios the records that it makes.

    Args:
        server: The server (`PostgresServer`).
        folder: Where the compiled classes and the offsets are.
    """

    def __init__(self, server, folder):
        self._server, self._folder = server, Path(folder)
        jars = fetch_jars(f"packages/debezium-postgres-{VERSION}", JARS, check=check_noted)
        java = Path(java_command())
        path = f"{folder}:{jars}/*"
        subprocess.run([java.with_name("javac"), "-nowarn", "-cp", path, "-d", folder, SOURCE], check=True, timeout=180)
        command = [java, "-Duser.timezone=UTC", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", path, "DebeziumRecorder"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def close(self):
        """End the process."""
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def recorded(self, case):
        """The scenario with Debezium's records."""
        DebeziumRunner(self._server).prepare()
        recording = Recording(self, self._server, case, self._folder / "offsets")
        try:
            return recording.case()
        finally:
            recording.close()

    def send(self, command):
        """Send a command."""
        self._process.stdin.write(f"{json.dumps(command)}\n")
        self._process.stdin.flush()

    def said(self, timeout):
        """What comes next; None: nothing."""
        try:
            return self._lines.get(timeout=timeout)
        except queue.Empty:
            return None

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(parse(line))


class Recording:
    """One scenario."""

    def __init__(self, recorder, server, case, offsets):
        self._recorder, self._server, self._case, self._offsets = recorder, server, case, offsets
        offsets.unlink(missing_ok=True)
        self._connections = {}
        self._markers = 0
        self._running, self._failure = False, None
        self._made, self._schemas, self._headers = [], {}, {}
        config = {
            "name": "engine",
            "connector.class": CONNECTOR,
            "plugin.name": "pgoutput",
            "slot.name": "dbz",
            "publication.name": "dbz_pub",
            "topic.prefix": "srv",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "postgres",
            "database.password": "none",
            "database.dbname": "app",
            "poll.interval.ms": "10",
            "errors.max.retries": "0",
            "slot.max.retries": "0",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(offsets),
            "offset.flush.interval.ms": "0",
            **case["connector"],
        }
        self._streams = config.get("snapshot.mode") != "initial_only"
        self._marks = self._streams and "transforms" not in config
        if config.get("message.prefix.include.list"):
            config["message.prefix.include.list"] += f",{MARKER}.*"
        self._config = config

    def close(self):
        """Stop the connector."""
        self._stop()
        for connection in self._connections.values():
            connection.close()

    def case(self):
        """The scenario with its records."""
        made = {**self._case, "steps": []}
        for statement in self._case["before"]:
            self._sql(statement)
        self._start()
        made["snapshot"] = self._phase(made)
        for step in self._case["steps"]:
            done = {**step}
            if step.get("restart"):
                self._stop()
                self._failure = None
            for statement in step["sql"]:
                self._sql(statement)
            if step.get("restart"):
                self._start()
            done["records"] = self._phase(done)
            made["steps"].append(done)
        return {**made, "headers": self._headers, "schemas": self._schemas}

    def _sql(self, statement):
        second = statement.startswith("@2 ")
        if second not in self._connections:
            self._connections[second] = connected(self._server, "app")
        self._connections[second].execute(statement.removeprefix("@2 "))

    def _start(self):
        self._recorder.send({"start": self._config})
        self._running = True
        state = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND application_name LIKE 'Debezium%'"
        deadline = time.monotonic() + PATIENCE_S
        with connected(self._server, "app") as connection:
            while self._running and self._streams and not connection.execute(state).fetchone():
                self._take(0.05)
                if time.monotonic() > deadline:
                    raise RuntimeError("Debezium does not begin to stream")

    def _stop(self):
        self._recorder.send({"stop": True})
        while (said := self._recorder.said(PATIENCE_S)) is not None and "stopped" not in said:
            pass
        self._running = False

    def _phase(self, form):
        """The records until the next marker, or until nothing comes."""
        if self._running and self._marks:
            self._markers += 1
            name = f"{MARKER}{self._markers}_"
            with connected(self._server, "app") as connection:
                connection.execute("SELECT pg_logical_emit_message(false, %s, '')", [name])
            deadline = time.monotonic() + PATIENCE_S
            while self._running and self._take(0.5) != name:
                if time.monotonic() > deadline:
                    raise RuntimeError("the marker does not come")
        if self._running and (not self._marks or "signal.data.collection" in self._config):
            since = begun = time.monotonic()
            while self._running and time.monotonic() - since < QUIET_S:
                if self._take(0.1) not in (None, HEARTBEAT):
                    since = time.monotonic()
                if since - begun > PATIENCE_S:
                    raise RuntimeError("records do not end")
        if self._failure is not None:
            form["failure"] = self._failure
        made, self._made = self._made, []
        return [self._kept(each) for each in first_heartbeats(made)]

    def _take(self, timeout):
        """Take what comes next; its name if it is a marker."""
        said = self._recorder.said(timeout)
        if said is None:
            return None
        if "ended" in said:
            self._running, self._failure = False, said["ended"]
            return "ended"
        record = said["record"]
        for part in ("key", "value"):
            record[part] = None if record[part] is None else parse(record[part])
        for header in record["headers"]:
            if "json" in header:
                document = parse(header.pop("json"))
                text = header.pop("simpleHeaderConverter")
                header |= {"value": document["payload"], "schema": document["schema"], "simpleHeaderConverter": text}
        message = ((record["value"] or {}).get("payload") or {}).get("message") if record["value"] else None
        if isinstance(message, dict) and str(message.get("prefix")).startswith(MARKER):
            return message["prefix"]
        self._made.append(normalized(record))
        return schema_name(record)

    def _kept(self, record):
        """A record whose schemas and headers are named."""
        for part in ("key", "value"):
            if record[part] is not None:
                named = {
                    "schema": named_in(self._schemas, "S", record[part]["schema"]),
                    "payload": record[part]["payload"],
                }
                record[part] = named
        record["headers"] = named_in(self._headers, "H", record["headers"])
        return record


def schema_name(form):
    """The name of the schema of a record's value."""
    return ((form["value"] or {}).get("schema") or {}).get("name") or "none"


def first_heartbeats(forms):
    """Without the second and later heartbeats of a topic."""
    seen = set()
    for form in forms:
        if schema_name(form) == HEARTBEAT:
            if form["topic"] in seen:
                continue
            seen.add(form["topic"])
        yield form


def named_in(names, letter, form):
    """The name of a form; a new one if it has none."""
    for name, other in names.items():
        if compact(other) == compact(form):
            return name
    names[f"{letter}{len(names) + 1}"] = form
    return f"{letter}{len(names)}"


def differences(server, case):
    """How a recorded scenario differs."""
    try:
        return DebeziumRunner(server).run(case)
    except AssertionError as error:
        return [str(error)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, help="a folder whose scenarios are recorded anew")
    parser.add_argument("--keep", type=Path, help="a folder for the scenarios with Debezium's records")
    options = parser.parse_args()
    if options.again:
        cases = load_debezium_cases(options.again)[options.seed : options.seed + options.cases]
    else:
        cases = [random_scenario(seed) for seed in range(options.seed, options.seed + options.cases)]
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    agree = 0
    server = PostgresServer()
    with tempfile.TemporaryDirectory(prefix="debezium-") as folder:
        recorder = DebeziumRecorder(server, folder)
        try:
            for case in cases:
                try:
                    recorded = recorder.recorded(case)
                except Exception as error:  # noqa: BLE001 - the statements are random
                    print(f"{case['name']} cannot be recorded: {error}", flush=True)
                    continue
                if options.keep:
                    (options.keep / f"{case['name']}.json").write_text(compact(recorded))
                found = differences(server, recorded)
                agree += not found
                for each in found[:1]:
                    print(f"{case['name']}: {each[:1500]}\n    {json.dumps(case['connector'])}", flush=True)
        finally:
            recorder.close()
            server.stop()
    print(f"{agree} of {len(cases)} scenarios agree")
    return 0 if agree == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
