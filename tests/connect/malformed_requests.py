"""Requests and configs that are wrong, each with the status and a part of the message that a worker answers.

Kafka Connect answers 500 to what Jackson cannot read and to offsets that a connector refuses; so do we, for its clients.
All else that is wrong is the client's fault: 4xx.
"""

import json
from typing import Any, NamedTuple

JSON = {"Content-Type": "application/json"}
DEEP = b"[" * 100_000
SOURCE, SINK = "FileStreamSource", "FileStreamSink"
CONNECTORS, CONFIG, OFFSETS, LOGGER = (
    "/connectors",
    "/connectors/f/config",
    "/connectors/st/offsets",
    "/admin/loggers/a.b",
)
VALIDATE = f"/connector-plugins/{SOURCE}/config/validate"


class Wrong(NamedTuple):
    """A wrong request.

    Attributes:
        method: The method.
        path: The path.
        body: The body: bytes as they are, anything else as JSON; None: none.
        status: The status of the answer.
        message: A part of its message.
        headers: The headers.
    """

    method: str
    path: str
    body: Any
    status: int
    message: str
    headers: dict[str, str] = JSON

    def __str__(self) -> str:
        shown = self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()
        return f"{self.method} {self.path[:40]} {shown[:60].decode(errors='replace')!r} {self.message[:40]}"


def of_bodies():
    """What is not JSON, or JSON of another form."""
    no_json = [
        (b"{", "line 1 column 2"), (b"[", "line 1 column 2"), (b'"', "Unterminated"), (b"nul", "line 1 column 1"),
        (b"{'a':1}", "line 1 column 2"), (b'{"a":}', "line 1 column 6"), (b'{"a":1,}', "line 1 column 8"),
        (b"\xff\xfe", "Cannot deserialize"), (b"\x00", "Cannot deserialize"), (b"{} {}", "Extra data"),
        (DEEP, "200 levels"), (b'{"a":' * 5000, "200 levels"), (b"NaN", "NaN is not a JSON number"),
        (b'{"a":-Infinity}', "-Infinity is not a JSON number"), (b'{"a":1e999}', "too large"), (b"1" * 5000, "5000 digits"),
    ]  # fmt: skip
    for body, message in no_json:
        for method, path in (("POST", CONNECTORS), ("PUT", CONFIG), ("PATCH", CONFIG), ("PATCH", OFFSETS)):
            yield Wrong(method, path, body, 500, message)
    yield Wrong("PUT", VALIDATE, b"{", 500, "line 1")
    yield Wrong("PUT", LOGGER, b"{", 500, "line 1")
    yield Wrong("PUT", LOGGER, DEEP, 500, "200 levels")
    for body in (b"[]", b"5", b'"x"', b"true"):
        for method, path in (("PUT", CONFIG), ("PATCH", CONFIG), ("PUT", VALIDATE), ("POST", CONNECTORS)):
            yield Wrong(method, path, body, 500, "Cannot deserialize a")
    for body in (b"", b"null"):
        for method, path in (("PUT", CONFIG), ("PATCH", CONFIG)):
            yield Wrong(method, path, body, 500, "from nothing")
        for method, path in (("POST", CONNECTORS), ("PUT", VALIDATE), ("PATCH", OFFSETS)):
            yield Wrong(method, path, body, 500, "no body")
    forms = [
        ({"name": "x"}, "no config"), ({"name": ["x"], "config": {}}, "a text of name from an array"),
        ({"name": {"a": 1}, "config": {}}, "a text of name from an object"), ({"name": "x", "config": 5}, "a config"),
        ({"name": "x", "config": {"a": []}}, "a text of a from an array"),
        ({"name": "x", "config": {"a": {"b": 1}}}, "a text of a from an object"),
        ({"name": "x", "config": {}, "initial_state": 5}, "RUNNING, PAUSED, STOPPED"),
        ({"name": "x", "config": {}, "initial_state": ["STOPPED"]}, "a text of initial_state"),
        ({"name": "x", "config": {}, "extra": 1}, '"extra"'),
    ]  # fmt: skip
    for body, message in forms:
        yield Wrong("POST", CONNECTORS, body, 500, message)
    half = rb'{"name":"x","config":{"connector.class":"FileStreamSource","topic":"\ud800"}}'
    yield Wrong("POST", CONNECTORS, half, 400, "half a character")
    yield Wrong("POST", CONNECTORS, {"config": {"connector.class": SOURCE, "topic": "t"}}, 400, "configuration name")
    yield Wrong("POST", CONNECTORS, {"name": "x", "config": {}}, 400, "no connector type")
    yield Wrong("PUT", CONFIG, {"name": "g", "connector.class": SOURCE, "topic": "t"}, 400, "(g) doesn't match")
    yield Wrong("PUT", CONFIG, {"connector.class": None}, 400, "contains no connector type")
    yield Wrong("PATCH", CONFIG, {"topic": None}, 400, '"topic"')
    yield Wrong("PUT", VALIDATE, {"connector.class": SINK}, 400, "does not match request type")
    for body, status, message in (
        ({"level": 5}, 404, "'5'"), ({"level": "LOUD"}, 404, "'LOUD'"), ({"level": None}, 400, "'level'"),
        ({}, 400, "'level'"), ({"x": 1}, 400, "'level'"), ({"level": " "}, 404, "' '"), ({"level": ""}, 500, "empty"), ([], 500, "a level from an array"), (b"5", 500, "a level from a number"),
    ):  # fmt: skip
        yield Wrong("PUT", LOGGER, body, status, message)


def of_configs():
    """Settings of all connectors, on top of a config that is right."""
    transforms = "org.apache.kafka.connect.transforms."
    changes = [
        ({"tasks.max": "x"}, "tasks.max: Not a number"), ({"tasks.max": "0"}, "tasks.max: Value must be at least 1"),
        ({"tasks.max": "99999999999"}, "tasks.max"), ({"tasks.max": "1e3"}, "tasks.max"), ({"tasks.max": ""}, "tasks.max"),
        ({"tasks.max": "1_000"}, "tasks.max"), ({"batch.size": "many"}, "batch.size"), ({"topic": ""}, "topic"),
        ({"errors.tolerance": "some"}, "errors.tolerance: String must be one of: none, all"),
        ({"errors.retry.timeout": "x"}, "errors.retry.timeout"), ({"errors.log.enable": "maybe"}, "errors.log.enable"),
        ({"key.converter": "Nope"}, "Nope"), ({"value.converter": SOURCE}, SOURCE), ({"header.converter": "5"}, "5"),
        ({"transforms": "a"}, "transforms.a.type"), ({"transforms": "a", "transforms.a.type": "Nope"}, "transforms.a.type"),
        ({"transforms": "a", "transforms.a.type": f"{transforms}Cast$Value"}, "transforms.a.spec"),
        ({"transforms": "a", "transforms.a.type": f"{transforms}Cast$Value", "transforms.a.spec": "x:y"}, "x"),
        ({"transforms": "a", "transforms.a.type": f"{transforms}RegexRouter", "transforms.a.regex": "(",
          "transforms.a.replacement": "x"}, "configuration regex"),
        ({"transforms": "a", "transforms.a.type": f"{transforms}TimestampConverter$Value",
          "transforms.a.target.type": "x"}, "configuration target.type"),
        ({"transforms": "a", "transforms.a.type": f"{transforms}MaskField$Value"}, "transforms.a.fields"),
        ({"predicates": "p"}, "predicates.p.type"), ({"predicates": "p", "predicates.p.type": "Nope"}, "predicates.p.type"),
        ({"predicates": "p", "predicates.p.type": f"{transforms}predicates.TopicNameMatches",
          "predicates.p.pattern": "["}, "configuration pattern"),
        ({"transaction.boundary": "x"}, "transaction.boundary"),
        ({"transaction.boundary": "connector"}, "does not support connector-defined transaction boundaries"),
        ({"exactly.once.support": "never"}, "exactly.once.support"), ({"config.action.reload": "x"}, "config.action.reload"),
        ({"restart.policy": "x"}, "restart.policy"),
        ({"restart.policy": "on-failure", "restart.delay.ms": "-1"}, "restart.delay.ms"),
        ({"connector.plugin.version": "99"}, "version"), ({"connector.class": ""}, "matches"),
        ({"connector.class": "Nope"}, "Nope"), ({"connector.class": "java.lang.String"}, "java.lang.String"),
        ({"connector.class": "nope.py:f"}, "there is no file nope.py"), ({"connector.class": "../x.py:f"}, "../x.py"),
        ({"name": "other"}, "(other) doesn't match"), ({"name": "new\nline"}, "doesn't match"),
    ]  # fmt: skip
    for change, message in changes:
        config = {"connector.class": SOURCE, "topic": "t", "file": "/nowhere/x", **change}
        yield Wrong("POST", CONNECTORS, {"name": "wrong", "config": config}, 400, message)
    sinks = [
        ({}, "Must configure one of topics"), ({"topics": ","}, "topics"), ({"topics": "a", "topics.regex": "b"}, "exclusive"),
        ({"topics.regex": "("}, "topics.regex: Invalid regex"), ({"topics.regex": "*"}, "topics.regex"),
        ({"topics": "a", "errors.deadletterqueue.topic.name": "a"}, "The DLQ topic 'a'"),
        ({"topics.regex": "a.*", "errors.deadletterqueue.topic.name": "ab"}, "The DLQ topic 'ab'"),
        ({"topics": "a", "errors.deadletterqueue.topic.replication.factor": "x"}, "replication.factor"),
    ]  # fmt: skip
    for config, message in sinks:
        body = {"name": "wrong", "config": {"connector.class": SINK, "file": "/nowhere/x", **config}}
        yield Wrong("POST", CONNECTORS, body, 400, message)


def of_connectors():
    """Settings of single connectors."""
    database = {"connection.url": "sqlite:///x.db"}
    tables = {**database, "topic.prefix": "p", "table.whitelist": "t"}
    rows, objects = {**database, "topics": "t"}, {"topics": "t", "store.url": "file:///nowhere/o"}
    changes = {"topic.prefix": "p", "database.hostname": "h", "database.dbname": "d"}
    found = {
        "JdbcSource": [
            ({}, '"connection.url"'), ({**tables, "connection.url": "x", "mode": "bulk"}, "not a URL of a database"),
            ({**tables, "mode": "x"}, "mode: String must be one of"), (tables, '"mode"'),
            ({**tables, "mode": "timestamp+incrementing"}, "timestamp.column.name"),
            ({**tables, "mode": "timestamp"}, "timestamp.column.name"),
            ({**tables, "mode": "bulk", "query": "select 1"}, "table.whitelist or query"),
            ({**database, "topic.prefix": "p", "mode": "bulk"}, "table.whitelist or query"),
            ({**tables, "mode": "bulk", "batch.max.rows": "0"}, "batch.max.rows"),
        ],
        "JdbcSink": [
            ({"topics": "t"}, '"connection.url"'), ({**rows, "insert.mode": "x"}, "insert.mode"),
            ({**rows, "insert.mode": "upsert"}, "pk.mode: insert.mode=upsert finds rows by a key"),
            ({**rows, "insert.mode": "update"}, "pk.mode"), ({**rows, "pk.mode": "x"}, "pk.mode"),
            ({**rows, "pk.mode": "kafka", "pk.fields": "a"}, "pk.fields"), ({**rows, "max.retries": "-1"}, "max.retries"),
            ({**rows, "auto.create": "perhaps"}, "auto.create"), ({**rows, "delete.enabled": "true"}, "delete.enabled"),
        ],
        "ObjectSink": [
            ({"topics": "t"}, '"store.url"'), ({**objects, "store.url": "nope://x"}, "store.url"),
            ({**objects, "format": "x"}, "format"), ({**objects, "format": "csv", "compression": "zstd"}, "compression"),
            ({**objects, "path.format": "${nope}"}, "${nope}"), ({**objects, "path.format": "../x"}, "below store.url"),
            ({**objects, "flush.size": "0"}, "flush.size"), ({**objects, "rotate.bytes": "-1"}, "rotate.bytes"),
            ({**objects, "store.options": "secret"}, "element 1 is not written as name:value"),
        ],
        "PostgresConnector": [
            ({}, '"database.hostname"'), ({**changes, "database.port": "70000"}, "database.port"),
            ({**changes, "table.include.list": "("}, "table.include.list"), ({**changes, "snapshot.mode": "x"}, "snapshot.mode"),
            ({**changes, "plugin.name": "x"}, "plugin.name"),
        ],
        "ElasticsearchSink": [
            ({"topics": "t"}, '"connection.url"'), ({"topics": "t", "connection.url": "localhost:9200"}, "not an HTTP URL"),
            ({"topics": "t", "connection.url": ""}, "connection.url"),
            ({"topics": "t", "connection.url": "http://h", "batch.size": "0"}, "batch.size"),
        ],
        "SparkSource": [
            ({"topic": "t"}, '"spark.format"'), ({"topic": "t", "spark.format": "csv", "spark.mode": "x"}, "spark.mode"),
            ({"topic": "t", "spark.format": "csv", "spark.interval.ms": "-1"}, "spark.interval.ms"),
        ],
        "SparkSink": [({"topics": "t"}, '"spark.format"')],
        "HttpSource": [
            ({"topic": "t"}, '"url"'), ({"url": "ftp://x", "topic": "t"}, "not an HTTP URL"),
            ({"url": "http://h:99999", "topic": "t"}, "not an HTTP URL"), ({"url": "http://h", "topic": "t", "headers": "x"}, "headers"),
            ({"url": "http://h", "topic": "t", "interval.ms": "0"}, "interval.ms"),
            ({"url": "http://h", "topic": "t", "pagination": "x"}, "pagination"),
        ],
        "WebhookSink": [
            ({"topics": "t"}, '"url"'), ({"topics": "t", "url": "x"}, "not an HTTP URL"),
            ({"topics": "t", "url": "http://h", "method": "GET"}, "method"),
            ({"topics": "t", "url": "http://h", "batch.size": "0"}, "batch.size"),
        ],
        "DatagenConnector": [
            ({"quickstart": "x"}, "quickstart"), ({"rate": "0"}, "rate"), ({"rate": "NaN"}, "rate"),
            ({"iterations": "-2"}, "iterations"),
        ],
        "MirrorSource": [({}, '"source.cluster.alias"')],
        "MirrorCheckpoint": [({}, '"source.cluster.alias"')],
        "MirrorHeartbeat": [({}, '"source.cluster.alias"')],
    }  # fmt: skip
    for name, configs in found.items():
        for config, message in configs:
            body = {"name": "wrong", "config": {"connector.class": name, **config}}
            yield Wrong("POST", CONNECTORS, body, 400, message)


def of_paths():
    """Names that are not there, methods that a path does not have, escapes that a server refuses."""
    for tail in ("", "/status", "/config", "/tasks", "/offsets", "/tasks/0/status"):
        yield Wrong("GET", f"/connectors/nope{tail}", None, 404, "nope")
    for number in ("x", "0x0", "1_0", "%200", "%D9%A1", "99999999999", "9" * 5000):
        yield Wrong("GET", f"/connectors/f/tasks/{number}/status", None, 404, "HTTP 404")
    for number in ("-1", "7"):
        yield Wrong("GET", f"/connectors/f/tasks/{number}/status", None, 404, f"f-{number}")
    for path in ("/nope", "/CONNECTORS", "/penstock/nope", "/connectors/f/nope", "/connectors/a/b/c/d"):
        yield Wrong("GET", path, None, 404, "HTTP 404")
    for path in ("/connectors/a%2Fb", "/connectors/%", "/connectors/%zz", "/connectors/%00", "//", "/connectors//status",
                 "/connectors/%2e%2e/x", "/\\connectors", "*", "connectors", "/connectors/%ff", "/connectors/%C3%28", "/connectors/f%0Ax",
                 "/connector-plugins/%ff/config", "/connectors/;/x"):  # fmt: skip
        yield Wrong("GET", path, None, 400, "")
    for path in ("/connectors/%F0%9F%98%80",
                 "/connectors/" + "x" * 20_000):  # fmt: skip
        yield Wrong("GET", path, None, 404, "not found")
    for name in ("Nope", "no.such.Class"):
        yield Wrong("GET", f"/connector-plugins/{name}/config", None, 404, "Unknown plugin")
    yield Wrong("GET", f"/connector-plugins/{SOURCE}/config?version=9", None, 400, "version range")
    yield Wrong("GET", "/admin/loggers/no.such.logger", None, 404, "no.such.logger")
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "FOO"):
        yield Wrong(method, CONNECTORS, None, 405, "HTTP 405")
    for method, path in (("GET", "/connectors/f/restart"), ("POST", CONFIG), ("DELETE", "/health"), ("PUT", "/"),
                         ("POST", "/connectors/f/pause"), ("PATCH", "/connectors/f/tasks")):  # fmt: skip
        yield Wrong(method, path, None, 405, "HTTP 405")
    for verb in ("pause", "resume", "stop"):
        yield Wrong("PUT", f"/connectors/nope/{verb}", None, 404, "Unknown connector nope")
    for path in ("nope/restart", "nope/restart?includeTasks=true", "nope/tasks/0/restart"):
        yield Wrong("POST", f"/connectors/{path}", None, 404, "Unknown connector: nope")
    yield Wrong("POST", "/connectors/f/tasks/9/restart", None, 404, "f-9")
    yield Wrong("DELETE", "/connectors/nope", None, 404, "nope")
    yield Wrong("DELETE", "/connectors/nope/offsets", None, 404, "nope")


def of_offsets():
    """Offsets of a source (`st`) and of a sink (`ss`) that are stopped, and of connectors that run."""
    for method, body in (("DELETE", None), ("PATCH", {"offsets": [{"partition": {}, "offset": {}}]})):
        yield Wrong(method, "/connectors/f/offsets", body, 400, "STOPPED state")
    here = {"filename": "in.txt"}
    for body, status, message in (
        ({}, 400, "need to be provided"), ({"offsets": []}, 400, "need to be provided"), ({"x": 1}, 500, '"x"'),
        ({"offsets": {}}, 500, "Cannot deserialize offsets"), ({"offsets": [5]}, 500, "an offset from a number"),
        ({"offsets": [{"partition": 5}]}, 500, "each is an object"), ([], 500, "offsets from an array"),
        ({"offsets": [{"partition": here, "offset": {"position": "x"}}]}, 500, "Long value"),
        ({"offsets": [{"partition": here, "offset": {"position": -1}}]}, 500, "non-negative"),
        ({"offsets": [{"partition": here, "offset": {"position": 1 << 70}}]}, 500, "class java.math.BigInteger"),
        ({"offsets": [{"partition": {}, "offset": {"position": 1}}]}, 500, "'filename'"),
        ({"offsets": [{"partition": here, "offset": {"position": 1}, "x": 1}]}, 500, '"x"'),
    ):  # fmt: skip
        yield Wrong("PATCH", OFFSETS, body, status, message)
    place = {"kafka_topic": "lines", "kafka_partition": 0}
    for changed, offset, message in (
        ({}, {}, "'kafka_offset'"), ({}, {"kafka_offset": "x"}, "'x'"), ({}, {"kafka_offset": -5}, "-5"),
        ({}, {"kafka_offset": 1.5}, "'1.5'"), ({}, {"kafka_offset": 1 << 80}, "integers"), ({}, {"kafka_offset": None}, "'null'"),
        ({}, {"kafka_offset": "1_0"}, "'1_0'"), ({}, {"kafka_offset": [1]}, "'[1]'"), ({}, {"kafka_offset": True}, "'true'"),
        ({"kafka_partition": "x"}, {"kafka_offset": 1}, "'x'"), ({"kafka_partition": -1}, {"kafka_offset": 1}, "-1"),
        ({"kafka_partition": 99}, {"kafka_offset": 1}, "no partition 99"),
        ({"kafka_partition": 1 << 40}, {"kafka_offset": 1}, "integers"), ({"kafka_topic": None}, {"kafka_offset": 1}, "null"),
        ({"kafka_topic": "nope"}, {"kafka_offset": 1}, "no topic 'nope'"), ({"kafka_topic": ""}, {"kafka_offset": 1}, "no topic"),
    ):  # fmt: skip
        body = {"offsets": [{"partition": {**place, **changed}, "offset": offset}]}
        yield Wrong("PATCH", "/connectors/ss/offsets", body, 400, message)
    body = {"offsets": [{"partition": None, "offset": {"kafka_offset": 1}}]}
    yield Wrong("PATCH", "/connectors/ss/offsets", body, 400, "cannot be null or missing")


def of_headers():
    """Content types, hosts, sizes and signatures."""
    for headers, status, message in (
        ({"Content-Type": "text/plain"}, 415, "HTTP 415"), ({}, 415, "HTTP 415"), ({"Content-Type": "x"}, 400, ""),
        ({**JSON, "Accept": "text/html"}, 406, "HTTP 406"), ({**JSON, "Origin": "http://evil.example"}, 403, "other sites"),
        ({**JSON, "X-Long": "x" * 40_000}, 431, ""),
    ):  # fmt: skip
        yield Wrong("POST", CONNECTORS, b'{"name":"q","config":{}}', status, message, headers)
    yield Wrong("POST", CONNECTORS, b"x" * (17 << 20), 413, "16,777,216 bytes")
    yield Wrong("POST", "/connectors/f/tasks", [{}], 400, "signature")
    signed = {**JSON, "X-Connect-Request-Signature-Algorithm": "HmacSHA256"}
    for text, status, message in (
        ("AAAA", 403, "invalid signature"), ("no base64", 400, "base64"), ("\xe9", 400, "base64"),
    ):  # fmt: skip
        yield Wrong("POST", "/connectors/f/tasks", [{}], status, message, {**signed, "X-Connect-Authorization": text})
    other = {"X-Connect-Request-Signature-Algorithm": "Foo", "X-Connect-Authorization": "AAAA"}
    yield Wrong("POST", "/connectors/f/tasks", [{}], 400, "Algorithm Foo not available", {**JSON, **other})
    yield Wrong("POST", "/connectors/f/tasks", b"5", 500, "they are an array")
    yield Wrong("PUT", "/connectors/f/fence", None, 400, "signature")


ALL = [*of_bodies(), *of_configs(), *of_connectors(), *of_paths(), *of_offsets(), *of_headers()]
