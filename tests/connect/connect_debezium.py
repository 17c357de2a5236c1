"""Recorded cases of Debezium's connector for PostgreSQL: a case is run over a real server, and its records are compared."""

import contextlib
import hashlib
import json
import re
from itertools import zip_longest
from pathlib import Path

from connect_cases import case_texts
from penstock.connect.connectors.installed_plugins import known_plugins
from penstock.connect.delivery import Pipeline
from penstock.connect.delivery.local_run import PLAIN_CONVERTERS
from penstock.connect.testing import ConnectTestDriver
from penstock.errors import PenstockError

__all__ = ["ARCHIVE", "DIFFERENT", "DebeziumRunner", "load_debezium_cases"]

ARCHIVE = Path(__file__).with_name("debezium-cases.tar.xz")
DIFFERENT = {
    "array_bit", "array_nested_text", "column_exclude_pk", "column_hash_types", "column_include_no_pk",
    "column_include_other_table", "column_mask_key", "db_bytea_escape", "db_intervalstyle",
    "domain_enum_array_elsewhere", "initial_statements_tz", "name",
}  # fmt: skip # docs/connect/differences.md has the reasons
CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
MARKER = "__marker"
MOST_POLLS = 2000
QUIET_POLLS = 2
JSON = "org.apache.kafka.connect.json.JsonConverter"
NUMBER = "\x01"
SOURCE_PLACEHOLDERS = {"version": "<version>", "txId": "<xid>", "lsn": "<lsn>", "xmin": "<xmin>"}
TIMES = {"ts_ms": "<ts_ms>", "ts_us": "<ts_us>", "ts_ns": "<ts_ns>"}
OFFSET_PLACEHOLDERS = {
    "lsn": "<lsn>",
    "lsn_commit": "<lsn>",
    "lsn_proc": "<lsn>",
    "ts_usec": "<ts_us>",
    "txId": "<xid>",
    "transaction_id": "<xid>:<lsn>",
}
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")


def load_debezium_cases(place=ARCHIVE):
    """All cases of a folder or an archive, by name."""
    cases = [parse(text) for text in case_texts(place)]
    return sorted((case for case in cases if isinstance(case, dict) and "steps" in case), key=lambda case: case["name"])


def parse(text):
    """JSON whose fractions stay as they are written."""
    return json.loads(text, parse_float=lambda number: f"{NUMBER}{number}{NUMBER}")


def compact(form):
    """The JSON text of what `parse` has made, in the order of its fields."""
    text = json.dumps(form, separators=(",", ":"), ensure_ascii=False)
    return re.sub(r'"\\u0001([^\\"]+)\\u0001"', r"\1", text)


class DebeziumRunner:
    """Runs cases over a server: a new database, slot and publication for each.

    Args:
        server: The server (`PostgresServer`).
    """

    def __init__(self, server):
        self._server = server

    def prepare(self):
        """Make the database anew, without slots."""
        self._clean()
        self._execute(
            "postgres", "CREATE DATABASE app TEMPLATE template0 LC_COLLATE 'C.UTF-8' LC_CTYPE 'C.UTF-8' ENCODING 'UTF8'"
        )

    def run(self, case):
        """The differences of a case."""
        self.prepare()
        run = CaseRun(self._server, case)
        try:
            return run.differences()
        finally:
            run.close()
            self._clean()

    def _clean(self):
        self._execute(
            "postgres",
            "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE active",
            "SELECT gid FROM pg_prepared_xacts WHERE database = 'app'",
        )
        slots = self._execute("postgres", "SELECT slot_name FROM pg_replication_slots WHERE NOT temporary")
        for (slot,) in slots:
            self._execute("postgres", f"SELECT pg_drop_replication_slot('{slot}')")
        if self._execute("postgres", "SELECT 1 FROM pg_database WHERE datname = 'app'"):
            for (gid,) in self._execute("postgres", "SELECT gid FROM pg_prepared_xacts WHERE database = 'app'"):
                self._execute("app", f"ROLLBACK PREPARED '{gid}'")
            self._execute("postgres", "DROP DATABASE app WITH (FORCE)")

    def _execute(self, database, *statements):
        with connected(self._server, database) as connection:
            for each in statements:
                cursor = connection.execute(each)
            return cursor.fetchall() if cursor.description else []


def connected(server, database):
    import psycopg  # here, as tests are skipped where it cannot be loaded

    return psycopg.connect(host="127.0.0.1", port=server.port, user="postgres", dbname=database, autocommit=True)


class CaseRun:
    """One case."""

    def __init__(self, server, case):
        self._server, self._case = server, case
        self._driver = None
        self._log = None
        self._begins = True
        self._failure = None
        self._made = []
        self._markers = 0
        self._connections = {}
        self._pipeline = None
        config = {
            "connector.class": CONNECTOR,
            "plugin.name": "pgoutput",
            "slot.name": "dbz",
            "publication.name": "dbz_pub",
            "topic.prefix": "srv",
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "postgres",
            "database.dbname": "app",
            "poll.interval.ms": "1",
            "errors.max.retries": "0",
            "slot.max.retries": "0",
            "key.converter": JSON,
            "value.converter": JSON,
            **case["connector"],
        }
        self._config = config
        mode = config.get("snapshot.mode")
        self._marks = "transforms" not in config and mode != "initial_only"
        prefixes = config.get("message.prefix.include.list")
        if prefixes:
            config["message.prefix.include.list"] = f"{prefixes},{MARKER}.*"

    def close(self):
        """Stop the connector and close all connections."""
        self._stop()
        for connection in self._connections.values():
            connection.close()

    def differences(self):
        """The differences of the whole case."""
        case = self._case
        for statement in case["before"]:
            self._sql(statement, "main")
        found = self._phase("snapshot", case["snapshot"], case.get("snapshot_digest"), case.get("failure"), self._start)
        for number, step in enumerate(case["steps"]):
            if found:
                break

            def act(step=step):
                if step.get("restart"):
                    self._stop()
                    self._failure = None
                for statement in step["sql"]:
                    if statement.startswith("@2 "):
                        self._sql(statement[3:], "second")
                    else:
                        self._sql(statement, "main")
                if step.get("restart"):
                    self._begins = True
                    self._start()

            found = self._phase(f"step {number}", step["records"], step.get("digest"), step.get("failure"), act)
        return found

    def _phase(self, where, records, digest, failure, act):
        self._made = []
        had_failed = self._failure
        if self._driver is not None and self._failure is None and where != "snapshot":
            self._await_heartbeat()
        act()
        if self._driver is not None and self._failure is None:
            self._drain(begins=self._begins)
            self._begins = False
        if failure is not None:
            if self._failure is None:
                return [f"{where}: the connector goes on, where Debezium fails: {failure[-300:]}"]
            if not fails_alike(failure, self._failure):
                return [f"{where}: it fails with {self._failure!r}, Debezium with {failure[-400:]}"]
        elif self._failure is not None and not had_failed:
            return [f"{where}: it fails with {self._failure!r}"]
        return [f"{where}: {line}" for line in self._compare(records, digest)]

    def _start(self):
        try:
            self._driver = ConnectTestDriver(CONNECTOR, self._config, log=self._log, plugins=known_plugins())
            self._log = self._driver.log
            self._pipeline = Pipeline.of(self._config, self._driver.plugins, PLAIN_CONVERTERS)
        except PenstockError as error:
            self._failure = str(error)

    def _stop(self):
        if self._driver is not None:
            with contextlib.suppress(PenstockError):
                self._driver.stop()
            self._driver = None

    def _drain(self, *, begins):
        """Poll until the marker comes, or, where there is none, until nothing comes that was committed before."""
        if begins:
            if not self._poll_until_quiet():
                return
            self._await_heartbeat()
        if self._marks:
            self._markers += 1
            name = f"{MARKER}{self._markers}_"
            with connected(self._server, "app") as connection:
                connection.execute("SELECT pg_logical_emit_message(false, %s, '')", [name])
            for _ in range(MOST_POLLS):
                records = iter(self._polled() or ())
                for record in records:
                    if not is_marker(record.value, MARKER):
                        self._take(record)
                    elif is_marker(record.value, name):
                        if "signal.data.collection" in self._config:  # what a signal asks for comes behind the marker
                            for behind in records:
                                self._take(behind)
                            self._poll_until_quiet()
                        return
                if self._failure is not None:
                    return
            raise AssertionError("the marker does not come")
        self._poll_until_quiet()

    def _await_heartbeat(self):
        """Wait for the first heartbeat of a phase, where there are any: it comes before what the phase does."""
        if int(self._config.get("heartbeat.interval.ms", 0)) == 0:
            return
        for _ in range(MOST_POLLS):
            if any(is_heartbeat(record) for record in self._made) or self._failure is not None:
                return
            for record in self._polled() or ():
                self._take(record)
        raise AssertionError("no heartbeat comes")

    def _poll_until_quiet(self):
        """Poll until nothing comes that was committed before; whether the connector goes on."""
        quiet = 0
        while quiet < QUIET_POLLS:
            records = self._polled()
            if records is None:
                return False
            for record in records:
                self._take(record)
            quiet = 0 if any(not is_heartbeat(record) for record in records) else quiet + 1
        return True

    def _polled(self):
        try:
            return self._driver.poll()
        except PenstockError as error:
            self._failure = str(error)
            return None

    def _take(self, record):
        passed, changed = self._pipeline.transformed(record)
        assert passed
        if changed is not None:
            self._made.append(changed)

    def _sql(self, statement, name):
        if name not in self._connections:
            self._connections[name] = connected(self._server, "app")
        self._connections[name].execute(statement)

    def _compare(self, expected, digest):
        forms = [self._form(record) for record in only_first_heartbeats(self._made)]
        if digest is not None:
            text = "".join(f"{form['topic']}\t{payload(form['key'])}\t{payload(form['value'])}\n" for form in forms)
            if digest["count"] != len(forms):
                return [f"{digest['count']} records expected, got {len(forms)}"]
            chosen = [expected[0], expected[1], expected[-1]] if len(expected) >= 3 else expected
            made = [forms[0], forms[1], forms[-1]] if len(expected) >= 3 else forms[: len(expected)]
            found = self._pairs(chosen, made)
            if not found and hashlib.sha256(text.encode()).hexdigest() != digest["sha256"]:
                found = ["the digest differs"]
            return found
        return self._pairs(expected, forms)

    def _pairs(self, expected, forms):
        found = []
        for number, (want, have) in enumerate(zip_longest(expected or [], forms)):
            if have is None:
                found.append(f"record {number} is missing: {compact(want)[:700]}")
                break
            if want is None:
                found.append(
                    f"record {number} is not expected: {compact({k: v for k, v in have.items() if k != 'schemas'})[:700]}"
                )
                break
            found += [f"record {number}{line}" for line in first_differences(self._resolved(want), have)]
        return found

    def _resolved(self, record):
        """An expected record with its schemas and headers in place."""
        schemas, headers = self._case["schemas"], self._case["headers"]
        resolved = dict(record)
        for part in ("key", "value"):
            if record[part] is not None:
                resolved[part] = {"schema": schemas[record[part]["schema"]], "payload": record[part]["payload"]}
        if record["headers"] is not None:
            resolved["headers"] = headers[record["headers"]]
        return resolved

    def _form(self, record):
        converters = self._pipeline.converters
        encoded = converters.encode(record, 0)
        return normalized(
            {
                "topic": record.topic,
                "partition": record.source_partition,
                "kafkaPartition": record.partition,
                "offset": dict(sorted((record.source_offset or {}).items())),
                "timestamp": record.timestamp,
                "headers": [
                    header_form(header, bytes_)
                    for header, (_, bytes_) in zip(record.headers, encoded.headers, strict=True)
                ],
                "key": None if encoded.key is None else parse(encoded.key),
                "value": None if encoded.value is None else parse(encoded.value),
            }
        )


def is_marker(value, name):
    if (
        value is None
        or value.schema.field("message") is None
        or value.schema.name != "io.debezium.connector.postgresql.MessageValue"
    ):
        return False
    return value["message"]["prefix"].startswith(name)


def fails_alike(expected, actual):
    """Whether our sentence has the one of Debezium's last cause; not where that is an exception of Java's own."""
    cause = expected.rsplit(" | ", 1)[-1]
    sentence = re.sub(r"^(?:[\w$]+\.)+[\w$]+: ", "", cause)
    if re.match(r"java\.", cause):
        return True
    if "value is invalid: " in sentence:
        setting, _, reason = sentence.partition("The ")[2].partition(" value is invalid: ")
        return setting.strip("'") in actual and reason in actual
    start = re.split(r"PostgresOffsetContext \[|<", sentence)[0].strip()
    return start in actual


def payload(form):
    return "null" if form is None else compact(form["payload"])


def is_heartbeat(record):
    schema = record.value_schema
    return schema is not None and schema.name == "io.debezium.connector.common.Heartbeat"


def only_first_heartbeats(records):
    seen = set()
    for record in records:
        if is_heartbeat(record):
            if record.topic in seen:
                continue
            seen.add(record.topic)
        yield record


def header_form(header, encoded):
    """A header as the cases have it."""
    schema = header.schema
    kind = None if schema is None else schema.type.value
    form = {"key": header.key, "type": kind}
    if kind in ("struct", "array", "map"):
        from penstock.connect.converters import JsonConverter

        converter = JsonConverter()
        converter.configure({"schemas.enable": "true"}, "value")
        parsed = parse(converter.from_connect("", schema, header.value))
        form |= {"value": parsed["payload"], "schema": parsed["schema"]}
        form["simpleHeaderConverter"] = encoded.decode()
    else:
        form["value"] = header.value
    return form


def normalized(form):
    """A record with placeholders in place of values that differ from run to run."""
    offset = form["offset"]
    for name, placeholder in OFFSET_PLACEHOLDERS.items():
        if offset.get(name) is not None:
            offset[name] = placeholder
    if form["timestamp"] is not None:
        form["timestamp"] = "<ts_ms>"
    for header in form["headers"]:
        if header["key"].endswith(".runId"):
            header["value"] = "<run_id>"
    for part in ("key", "value"):
        if form[part] is not None:
            _payload(form[part]["schema"], form[part]["payload"], form)
    return form


def _payload(schema, value, form):
    name = (schema or {}).get("name") or ""
    if not isinstance(value, dict):
        return
    if name.endswith(".Envelope") or name == "io.debezium.connector.postgresql.MessageValue":
        _times(value)
        if value.get("source") is not None:
            source = value["source"]
            _times(source)
            for field, placeholder in SOURCE_PLACEHOLDERS.items():
                if source.get(field) is not None:
                    source[field] = placeholder
            if source.get("sequence") is not None:
                source["sequence"] = re.sub(r"\d+", "<lsn>", source["sequence"])
        if value.get("transaction") is not None:
            value["transaction"]["id"] = "<xid>:<lsn>"
        if value.get("after") and "snapshot-window" in str(value["after"].get("type")):
            _volatile(value["after"])
    elif name.startswith("io.debezium.connector.common.TransactionMetadata"):
        value["id"] = "<xid>:<lsn>"
        _times(value)
    elif name == "io.debezium.connector.common.Heartbeat":
        _times(value)
    elif name.startswith("io.debezium.connector.common.Notification"):
        value["id"] = "<uuid>"
        if "timestamp" in value:
            value["timestamp"] = "<ts_ms>"
            if value["additional_data"]:
                value["additional_data"] = dict(sorted(value["additional_data"].items()))
    elif (
        name.endswith(".Key")
        and UUID.match(str(value.get("id")))
        and str(value.get("id")).endswith(("-open", "-close"))
    ):
        _volatile(value)


def _volatile(value):
    for field, text in value.items():
        if isinstance(text, str):
            value[field] = INSTANT.sub("<instant>", UUID.sub("<uuid>", text))


def _times(value):
    for name, placeholder in TIMES.items():
        if value.get(name) is not None:
            value[name] = placeholder


def first_differences(expected, actual, path=""):
    """The first difference of two forms, with its path; the order of fields counts."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if path and list(expected) != list(actual):
            return [f"{path}: fields {list(expected)} expected, got {list(actual)}"]
        for key in expected:
            found = first_differences(expected[key], actual.get(key), f"{path}/{key}")
            if found:
                return found
        return []
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{path}: {compact(expected)[:1200]} expected, got {compact(actual)[:1200]}"]
        for number, (want, have) in enumerate(zip(expected, actual, strict=True)):
            found = first_differences(want, have, f"{path}/{number}")
            if found:
                return found
        return []
    if type(expected) is not type(actual) or expected != actual:
        return [f"{path}: {compact(expected)[:500]} expected, got {compact(actual)[:500]}"]
    return []
