"""Recorded cases of Confluent's JDBC source and sink: a case is run over a database, and what comes out is compared.

A case has the settings of a connector and steps. The step ``sql`` runs statements (``@2 ...`` on a second connection),
``poll`` reads what is new, ``put`` writes records, ``restart`` starts the tasks again from the stored offsets,
``rows`` and ``columns`` look at what is in the database. Steps that have an outcome have the recorded one in ``out``.
"""

import contextlib
import json
import re
import sqlite3
import tempfile
from itertools import zip_longest
from pathlib import Path

from connect_cases import case_texts, write_archive
from mariadb_server import MariadbServer
from penstock.connect.connectors.installed_plugins import known_plugins
from penstock.connect.converters import JsonConverter
from penstock.connect.data import RetriableError
from penstock.connect.delivery import Encoded
from penstock.connect.delivery.pipeline import batches_of
from penstock.connect.testing import ConnectTestDriver
from penstock.errors import PenstockError
from penstock.log.ensure_topic import ensure_topic
from postgres_server import PostgresServer

__all__ = ["ARCHIVE", "CaseRun", "JdbcRunner", "load_jdbc_cases", "save_jdbc_cases"]

ARCHIVE = Path(__file__).with_name("jdbc-cases.tar.xz")
CLASSES = {
    "source": "io.confluent.connect.jdbc.JdbcSourceConnector",
    "sink": "io.confluent.connect.jdbc.JdbcSinkConnector",
}
JSON = "org.apache.kafka.connect.json.JsonConverter"
MOST_POLLS = 5000
MOST_TRIES = 3
BULK_MS = "1000000000"  # all rows once for each start
NAME = "shop"  # of the database, which offsets name


def load_jdbc_cases(place=ARCHIVE):
    """All cases of a folder or an archive, by name."""
    return sorted((json.loads(text) for text in case_texts(place)), key=lambda case: case["name"])


def save_jdbc_cases(cases, place=ARCHIVE):
    """Write cases to an archive, the same bytes for the same cases."""
    write_archive(
        place,
        (
            (f"{case['name']}.json", (json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n").encode())
            for case in sorted(cases, key=lambda each: each["name"])
        ),
    )


# Databases: a new one for each case


class SqliteFile:
    """A database of SQLite."""

    def __init__(self, _server):
        self._folder = tempfile.TemporaryDirectory(prefix="jdbc-case-")
        self.path = Path(self._folder.name) / "shop.db"
        self.url, self.jdbc_url = f"sqlite:///{self.path}", f"jdbc:sqlite:{self.path}"

    def connect(self):
        return sqlite3.connect(self.path, isolation_level=None, timeout=30)

    def columns(self, connection, table):
        rows = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
        return [[name, kind, bool(required), default, key] for _, name, kind, required, default, key in rows]

    def close(self):
        self._folder.cleanup()


class PostgresDatabase:
    """A database of PostgreSQL: the same one each time, emptied, as that is much faster than a new one."""

    def __init__(self, server):
        self._server, self._name = server, NAME
        if not server.execute(f"SELECT 1 FROM pg_database WHERE datname = '{NAME}'"):
            server.execute(f"CREATE DATABASE {NAME} TEMPLATE template0 ENCODING 'UTF8'")
        place = f"127.0.0.1:{server.port}/{self._name}"
        self.url, self.jdbc_url = f"postgresql://postgres@{place}", f"jdbc:postgresql://{place}?user=postgres"

    def connect(self):
        import psycopg  # here, as tests are skipped where it cannot be loaded

        return psycopg.connect(
            host="127.0.0.1", port=self._server.port, user="postgres", dbname=self._name, autocommit=True
        )

    def columns(self, connection, table):
        rows = connection.execute(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(d.adbin, d.adrelid), "
            "coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1 FROM pg_attribute a "
            "LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
            "LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [f'"{table}"'],
        )
        return [list(row) for row in rows]

    def close(self):
        self._server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._name}'")
        with self.connect() as connection:
            connection.execute("DROP SCHEMA IF EXISTS public, shop CASCADE")
            connection.execute("CREATE SCHEMA public")


class MariadbDatabase:
    """A database of MariaDB."""

    def __init__(self, server):
        self._server, self._name = server, NAME
        self._run(f"CREATE DATABASE {self._name}")
        self.url = f"{server.url}/{self._name}?charset=utf8mb4&ssl_disabled=true"
        self.jdbc_url = f"jdbc:mariadb://127.0.0.1:{server.port}/{self._name}?user=root"

    def _run(self, statement):
        connection = self._server.connect()
        try:
            connection.cursor().execute(statement)
        finally:
            connection.close()

    def connect(self):
        return MariadbConnection(self._server.connect(self._name))

    def columns(self, connection, table):
        rows = connection.execute(
            "SELECT column_name, column_type, is_nullable = 'NO', column_default, column_key = 'PRI' "
            "FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s "
            "ORDER BY ordinal_position",
            [table],
        )
        return [[name, kind, bool(required), default, int(key)] for name, kind, required, default, key in rows]

    def close(self):
        self._run(f"DROP DATABASE {self._name}")


class MariadbConnection:
    """A connection that is used like those of the other two."""

    def __init__(self, connection):
        self._connection = connection

    def execute(self, statement, parameters=None):
        cursor = self._connection.cursor()
        cursor.execute(statement, parameters)
        return cursor

    def close(self):
        self._connection.close()


KINDS = {"sqlite": SqliteFile, "postgres": PostgresDatabase, "mariadb": MariadbDatabase}


class JdbcRunner:
    """Runs cases; servers are started when the first case needs them.

    Args:
        servers: Servers that run already, by the kind of database.
    """

    def __init__(self, servers=None):
        self._servers = dict(servers or {})
        self._own = []

    def run(self, case):
        """The differences of a case."""
        database = self.database(case["database"])
        run = CaseRun(case, database, Ours(case, database))
        try:
            return run.differences()
        finally:
            run.close()

    def database(self, kind):
        """A new database of a kind."""
        if kind not in self._servers:
            starts = {"sqlite": lambda: None, "postgres": PostgresServer, "mariadb": MariadbServer}
            self._servers[kind] = starts[kind]()
            self._own.append(self._servers[kind])
        return KINDS[kind](self._servers[kind])

    def stop(self):
        """End the servers that were started here."""
        for server in self._own:
            if server is not None:
                server.stop()


class CaseRun:
    """One case over a database, with the connector that is judged.

    Args:
        case: The case.
        database: A new database.
        subject: The connector: has ``start``, ``poll``, ``put`` and ``stop``.
    """

    def __init__(self, case, database, subject):
        self._case, self._database, self._subject = case, database, subject
        self._connections = {}

    def close(self):
        """Stop the connector, close connections, and drop the database."""
        self._subject.stop()
        for connection in self._connections.values():
            connection.close()
        self._database.close()

    def outcomes(self):
        """Each step with its outcome; None: it has none."""
        self._is_started = False
        self._settings = dict(self._case["settings"])
        for step in self._case["steps"]:
            yield step, self._outcome(step)

    def _outcome(self, step):
        if "sql" in step:
            for statement in step["sql"]:
                name, text = ("2", statement[3:]) if statement.startswith("@2 ") else ("1", statement)
                self._connection(name).execute(text)
            return None
        if "rows" in step:
            rows = self._connection("1").execute(step["rows"]).fetchall()
            return {"rows": [[plain(value) for value in row] for row in rows]}
        if "columns" in step:
            found = self._database.columns(self._connection("1"), step["columns"])
            return {"columns": [[plain(value) for value in row] for row in found]}
        if "restart" in step:
            self._subject.stop()
            self._is_started = False
            self._settings |= step["restart"]
            return None
        if not self._is_started:
            self._is_started = True
            failure = self._subject.start(self._settings)
            if failure:
                return failure
        return self._subject.put(step["put"]) if "put" in step else self._subject.poll()

    def _connection(self, name):
        if name not in self._connections:
            self._connections[name] = self._database.connect()
        return self._connections[name]

    def differences(self):
        """The differences of the first step that has any."""
        for number, (step, out) in enumerate(self.outcomes()):
            found = compared(step.get("out"), out)
            if found:
                return [f"step {number}: {line}" for line in found]
        return []


def plain(value):
    """A value of a database as JSON has it."""
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


class Ours:
    """The connectors here, as a case uses them."""

    def __init__(self, case, database):
        self._case, self._url = case, database.url
        self._driver = self._log = None
        self._json = JsonConverter()
        self._json.configure({"schemas.enable": "true"}, "value")

    def start(self, settings):
        """Start the tasks; what they cannot start with."""
        kind = CLASSES[self._case["connector"]]
        config = {
            "name": "jdbc", "connector.class": kind, "connection.url": self._url, "poll.interval.ms": BULK_MS if settings.get("mode") == "bulk" else "0",
            "key.converter": JSON, "value.converter": JSON, **settings,
        }  # fmt: skip
        config = {name: value.replace("${url}", self._url) for name, value in config.items()}
        if self._case["connector"] == "sink":
            config.pop("poll.interval.ms")
            topics = {record.get("topic", "t") for step in self._case["steps"] for record in step.get("put", ())}
            config["topics"] = ",".join(sorted(topics))
            config |= {"exactly.once": "false", "max.retries": "1", "retry.backoff.ms": "1", **settings}
            if self._case.get("tolerate"):
                config["errors.tolerance"] = "all"
        try:
            self._driver = ReportingDriver(
                kind, config, log=self._log, plugins=known_plugins(), tasks=self._case.get("tasks", 1)
            )
        except PenstockError as error:
            return {"error": chain_of(error)}
        self._log = self._driver.log
        return None

    def stop(self):
        """Stop the tasks."""
        if self._driver is not None:
            with contextlib.suppress(PenstockError):
                self._driver.stop()
            self._driver = None

    def poll(self):
        """Read until nothing more comes: two looks at each table."""
        if self._driver is None:
            return {"ended": True}
        made, quiet, tries = [], 0, 0
        for _ in range(MOST_POLLS):
            try:
                records = self._driver.poll()
            except RetriableError:
                tries += 1
                if tries > MOST_TRIES:
                    break
                continue
            except PenstockError as error:
                self.stop()
                return {"records": made, "error": chain_of(error)}
            made += [self._form(record) for record in records]
            quiet = 0 if records else quiet + 1
            if quiet >= 2 * self._case.get("tables", 1) or (quiet and self._case["settings"].get("mode") == "bulk"):
                break
        return {"records": made}

    def _form(self, record):
        form = {"topic": record.topic, "partition": record.source_partition, "offset": record.source_offset}
        if record.key is not None:
            form["key"] = json.loads(self._json.from_connect("", record.key_schema, record.key))
        form["value"] = json.loads(self._json.from_connect("", record.value_schema, record.value))
        return form

    def put(self, records):
        """Write records to their topics, and put them."""
        if self._driver is None:
            return {"ended": True}
        places = [(record.get("topic", "t"), record.get("partition", 0)) for record in records]
        counts = {topic: 1 + max(number for name, number in places if name == topic) for topic, _ in places}
        for topic, count in counts.items():
            ensure_topic(self._driver.log, topic, count)
        self._driver.rebalance(1)
        encoded = [
            Encoded(topic, number, 0, encoded_part(record, "key"), encoded_part(record, "value"), ())
            for (topic, number), record in zip(places, records, strict=True)
        ]
        for tp, batch in batches_of(encoded, counts, 0):
            self._driver.log.append(tp.topic, tp.partition, batch)
        self._driver.reported.clear()
        try:
            for _ in range(MOST_TRIES):
                self._driver.put_all()
        except PenstockError as error:
            self.stop()
            return {"error": chain_of(error)}
        reported = [[each.shown.topic, each.shown.partition, each.shown.offset] for each in self._driver.reported]
        if any(task.behind() for task in self._driver.sinks):
            return {"error": "the records are put again and again"}
        return {"reported": reported} if reported else {}


class ReportingDriver(ConnectTestDriver):
    """A driver that notes the records that fail."""

    def __init__(self, *arguments, **more):
        self.reported = []
        super().__init__(*arguments, **more)

    def report(self, failed):
        self.reported.append(failed)

    def _pipeline(self, settings):
        pipeline = super()._pipeline(settings)
        if pipeline.errors.tolerance.all:
            pipeline.errors.reporter = self
        return pipeline


def encoded_part(record, part):
    return None if record.get(part) is None else json.dumps(record[part]).encode()


def chain_of(error):
    """The messages of an error and its causes."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return " | ".join(texts)


# Comparison


def compared(expected, actual):
    """The differences of a recorded outcome and another one."""
    expected, actual = expected or {}, actual or {}
    found = []
    if ("error" in expected) is not ("error" in actual):
        if "error" in actual:
            return [f"it fails with {actual['error']!r}"]
        return [f"it goes on, where the model fails: {said(expected['error'])[:400]}"]
    if "error" in expected and not fails_alike(expected["error"], actual["error"]):
        return [f"it fails with {actual['error']!r}, the model with {said(expected['error'])[:600]}"]
    if "records" in expected or "records" in actual:
        found = compared_records(expected.get("records", []), actual.get("records", []))
    for part in ("rows", "columns", "reported", "ended"):
        if not found and expected.get(part) != actual.get(part):
            found = [f"{part}: {json.dumps(expected.get(part))} expected, got {json.dumps(actual.get(part))}"]
    return found


def compared_records(expected, actual):
    """The differences of records, by topic."""
    topics = {record["topic"]: None for record in [*expected, *actual]}
    for topic in topics:
        wanted, made = ([each for each in side if each["topic"] == topic] for side in (expected, actual))
        for number, (want, have) in enumerate(zip_longest(wanted, made)):
            where = f"record {number} of {topic}"
            if have is None:
                return [f"{where} is missing: {json.dumps(want['value']['payload'])}"]
            if want is None:
                return [f"{where} is not expected: {json.dumps(have['value']['payload'])}"]
            for part in ("partition", "offset", "key"):
                if want.get(part) != have.get(part):
                    return [f"{where}: {part} {want.get(part)} expected, got {have.get(part)}"]
            found = first_difference(want["value"]["schema"], have["value"]["schema"], "schema") or first_difference(
                want["value"]["payload"], have["value"]["payload"], "payload"
            )
            if found:
                return [f"{where}: {found}"]
    return []


def first_difference(expected, actual, path):
    """The first difference of two forms, with its path."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            if key not in expected or key not in actual:
                return f"{path}/{key}: {expected.get(key)!r} expected, got {actual.get(key)!r}"
            found = first_difference(expected[key], actual[key], f"{path}/{key}")
            if found:
                return found
        return None
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return f"{path}: {expected} expected, got {actual}"
        for number, (want, have) in enumerate(zip(expected, actual, strict=True)):
            found = first_difference(want, have, f"{path}/{number}")
            if found:
                return found
        return None
    same = expected == actual and isinstance(expected, bool) is isinstance(actual, bool)
    return None if same else f"{path}: {expected!r} expected, got {actual!r}"


def said(error):
    """What the model says: of a chain of causes the whole, of settings each with its sentence."""
    if isinstance(error, dict):
        return "; ".join(f"{name}: {' '.join(sentences)}" for name, sentences in error.items())
    return " | ".join(error)


def fails_alike(expected, actual):
    """Whether our sentence has the model's own; the sentences of drivers and of Java are others by nature."""
    if isinstance(expected, dict):
        return "configuration" in actual or any(name in actual for name in expected)
    cause = expected[-1]
    if re.match(r"(?:java\.|org\.sqlite|org\.postgresql|org\.mariadb|com\.mysql)", cause):
        return True
    sentence = re.sub(r"^(?:[\w$]+\.)+[\w$]+: ", "", cause)
    sentence = re.sub(r'(?:["`]\w+["`]\.)*["`](\w+)["`]', r"\1", sentence)  # "shop"."public"."t" is t
    sentence = re.sub(r"\[?SinkRecordField\{.*?name='(\w+)'.*?\}\]?", r"\1", sentence)
    return sentence.rstrip(".")[:60] in actual
