"""Random scenarios of a worker's REST interface, without their answers.

A scenario has the form of the recorded ones (`connect_rest.py`), and one more step: ``settle`` names connectors with the
tasks that each has once it runs; whoever records waits until nothing changes any more, and notes their states.
"""

import json
import random

__all__ = ["SCENARIOS", "random_scenario"]

FILE, TOOLS = "org.apache.kafka.connect.file.FileStream", "org.apache.kafka.connect.tools."
JSON = "org.apache.kafka.connect.json.JsonConverter"
SHORT = {"offset.flush.interval.ms": "500"}
CONVERTERS = {
    "key.converter": JSON, "value.converter": JSON, "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}  # fmt: skip
STANDALONE = {"bootstrap.servers": "%BROKER%", **CONVERTERS, **SHORT, "offset.storage.file.filename": "%DIR%/offsets"}
DISTRIBUTED = {
    "bootstrap.servers": "%BROKER%", **CONVERTERS, **SHORT, "group.id": "connect-cluster",
    **{f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")},
    **{f"{name}.storage.replication.factor": "1" for name in ("config", "offset", "status")},
    "offset.storage.partitions": "5", "status.storage.partitions": "3", "scheduled.rebalance.max.delay.ms": "0",
    "heartbeat.interval.ms": "300", "session.timeout.ms": "6000",
}  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
KINDS = (
    "application/json", "application/json;charset=UTF-8", "APPLICATION/JSON", "application/json ; charset=latin1", "text/plain",
    "application/xml", "application/*", "*/*", "application/x-www-form-urlencoded", "application/vnd.api+json", "text/json", "json", "",
)  # fmt: skip
ACCEPTED = (
    "application/json", "text/html", "*/*", "application/*", "text/*", "application/json;q=0", "text/html, */*;q=0.1",
    "application/xml, text/plain", "APPLICATION/JSON", "application/json;charset=utf-16", "*/json", "json", "",
)  # fmt: skip
RAW = (
    "", " ", "{", "[", "[]", "{}", "null", "5", '"x"', "true", "nul", "{'a':1}", '{"a":1,}', "{} {}", '{"a":[1]}', '{"a":{}}', '{"a":null}',
    '{"a":1,"a":2}', '{"a":1.50}', '{"a":1e3}', '{"a":true}', "[{}]", "[null]", '[{"a":"b"}]', '{"":""}', "// x\n{}", '{"a":NaN}',
    '{"a":"\t"}', '{"a":"\\u00e9"}', '{"a":01}', '{"a":+1}', '{"a":.5}', "\ufeff{}", '{"config":{}}', '{"name":"x"}', '{"offsets":[]}',
    '{"offsets":null}', '{"offsets":{}}', '{"offsets":[null]}', '{"offsets":[[]]}', '{"offsets":[{}]}', '{"offsets":[],"x":1}', '{"level":"INFO"}',
    '{"level":"info","x":"y"}', '{"Level":"INFO"}',
)  # fmt: skip
QUERIES = (
    "", "", "", "?", "?forward=true", "?forward=false", "?forward=x", "?x=y", "?expand=status", "?expand=info&expand=status", "?expand=info,status",
    "?expand", "?connectorsOnly=false", "?connectorsOnly=FALSE", "?connectorsOnly=", "?connectorsOnly=0", "?includeTasks=true",
    "?onlyFailed=true", "?includeTasks=true&onlyFailed=true", "?includeTasks=yes", "?includeTasks", "?scope=cluster", "?scope=worker", "?scope=x",
    "?version=4.3.1", "?version=1", "?version=[1,5)", "?version=", "?a=%zz", "?a=%00", "?%", "?a=b;c=d", "?=", "?&&",
)  # fmt: skip
MISSING = (
    "nope", "a%20b", "%C3%BC", "a%2Fb", "a+b", "a%25b", "%2e%2e", "..", ".", "a;b=c", ";", "%", "%4", "%00", "a%0Ab", "%ff", "a%3Fb", "a%23b", "x" * 300,
    "%F0%9F%98%80", "a%5Cb", "A", "0", "-", "a:b", "a@b", "(a)", "a'b", "%22", "%7B%7D", "a,b", "*", "null",
)  # fmt: skip
NUMBERS = (
    "0",
    "1",
    "7",
    "-1",
    "00",
    "+0",
    "x",
    "1e0",
    "2147483647",
    "2147483648",
    "0x0",
    "%30",
    " 0".replace(" ", "%20"),
    "0;a=b",
    "",
)
ROUTES = (
    "/", "/health", "/connectors", "/connectors/NAME", "/connectors/NAME/config", "/connectors/NAME/status", "/connectors/NAME/restart",
    "/connectors/NAME/pause", "/connectors/NAME/resume", "/connectors/NAME/stop", "/connectors/NAME/topics", "/connectors/NAME/topics/reset",
    "/connectors/NAME/offsets", "/connectors/NAME/fence", "/connectors/NAME/tasks", "/connectors/NAME/tasks/NUMBER",
    "/connectors/NAME/tasks/NUMBER/status", "/connectors/NAME/tasks/NUMBER/restart", "/connectors/NAME/tasks/NUMBER/config",
    "/connectors/NAME/tasks-config", "/connector-plugins", "/connector-plugins/PLUGIN", "/connector-plugins/PLUGIN/config",
    "/connector-plugins/PLUGIN/config/validate", "/admin", "/admin/loggers/LOGGER", "/nope", "/connectors/NAME/nope", "//connectors",
    "/connectors/", "/connectors//NAME", "/connectors/NAME/", "/connectors/./NAME", "/Connectors", "/favicon.ico", "/health/x", "/connectors/NAME/config/x",
)  # fmt: skip
PLUGINS = (
    f"{FILE}SourceConnector", "FileStreamSource", "FileStreamSinkConnector", "FileStreamSink", f"{TOOLS}MockSourceConnector", "MockSink",
    "VerifiableSource", JSON, "JsonConverter", "Json", "StringConverter", "org.apache.kafka.connect.transforms.Cast$Value", "Cast$Key", "Cast",
    "HoistField%24Value", "TopicNameMatches", "Filter", "SimpleHeaderConverter", "Nope", "FileStream", "filestreamsource", "java.lang.String",
    "org.apache.kafka.connect.source.SourceConnector", "Mirror", "MirrorSource", "FileConfigProvider", "x" * 200, "%20", "a%20b",
    "org.apache.kafka.connect.transforms.RegexRouter", "RecordIsTombstone", "HasHeaderKey", "BooleanConverter", "IntegerConverter",
)  # fmt: skip
LOGGERS = (
    "org.example.SEED.a",
    "org.example.SEED.a.b",
    "org.example.SEED",
    "org.example.SEEDx",
    "org.example.SEED.a.b.c",
)
LEVELS = (
    "INFO",
    "debug",
    "Warn",
    " ERROR ",
    "TRACE",
    "OFF",
    "FATAL",
    "ALL",
    "LOUD",
    "",
    " ",
    "1",
    "null",
    "DEBUG2",
    "infö",
)
CONVERTER_NAMES = (
    JSON, "JsonConverter", "org.apache.kafka.connect.storage.StringConverter", "StringConverter", "Nope", "", "org.apache.kafka.connect.storage.Converter",
    "org.apache.kafka.connect.converters.ByteArrayConverter", "SimpleHeaderConverter", "org.apache.kafka.connect.storage.SimpleHeaderConverter",
    f"{FILE}SourceConnector", "java.lang.String", " StringConverter ",
)  # fmt: skip
SMT = "org.apache.kafka.connect.transforms."
SETTINGS = {
    "name": ("c", "", " ", "a/b", "ä", None, "x" * 300, "new\nline"),
    "tasks.max": ("1", "0", "-1", "x", "", "2147483648", "1.0", " 2 ", None, "007"),
    "topic": ("t", "", None, "a b", "x" * 300), "file": ("%DIR%/in.txt", "", None), "topics": ("t", "", "a,b", "a,,b", "a,a", " a , b ", ",", None),
    "topics.regex": ("a.*", "(", "", ".*", None), "batch.size": ("1", "0", "x", "2147483648", "", None), "unknown.setting": ("x", None),
    "key.converter": CONVERTER_NAMES, "value.converter": CONVERTER_NAMES, "header.converter": CONVERTER_NAMES,
    "value.converter.schemas.enable": ("true", "x", ""), "config.action.reload": ("none", "RESTART", "x", ""),
    "errors.tolerance": ("none", "ALL", "x", ""), "errors.retry.timeout": ("0", "-1", "x", "9223372036854775808"),
    "errors.retry.delay.max.ms": ("1", "-1", "x"), "errors.log.enable": ("true", "TRUE", "x", ""), "errors.log.include.messages": ("false", "1"),
    "errors.deadletterqueue.topic.name": ("dlq", "", "t"), "errors.deadletterqueue.topic.replication.factor": ("1", "x", "-1", "40000"),
    "errors.deadletterqueue.context.headers.enable": ("true", "y"), "predicates": ("p", "", "p,p", "p,q"),
    "predicates.p.type": (f"{SMT}predicates.TopicNameMatches", "RecordIsTombstone", "Nope", "", f"{SMT}predicates.HasHeaderKey"),
    "predicates.p.pattern": ("a", "[", ""), "predicates.p.name": ("h", ""), "transforms": ("a", "a,b", "", "a,a", " a ", "ä"),
    "transforms.a.type": (f"{SMT}Cast$Value", f"{SMT}RegexRouter", f"{SMT}HoistField$Value", f"{SMT}Filter", "Nope", "", f"{SMT}Cast", "ValueToKey",
                          f"{SMT}InsertField$Value", f"{SMT}TimestampConverter$Value", f"{SMT}MaskField$Value", f"{SMT}ReplaceField$Key"),
    "transforms.a.spec": ("x:int32", "x:y", "", "int8"), "transforms.a.regex": ("(.*)", "(", ""), "transforms.a.replacement": ("$1", ""),
    "transforms.a.field": ("f", ""), "transforms.a.predicate": ("p", "q", ""), "transforms.a.negate": ("true", "x", ""),
    "transforms.a.fields": ("a,b", ""), "transforms.a.target.type": ("string", "x"), "transforms.a.renames": ("a:b", "a", "a:b:c"),
    "exactly.once.support": ("requested", "REQUIRED", "never", ""), "transaction.boundary": ("poll", "INTERVAL", "connector", "x", ""),
    "transaction.boundary.interval.ms": ("1", "0", "-1", "x"), "offsets.storage.topic": ("o", "", " "), "topic.creation.groups": ("", "g", "g,g", "default", "g,h"),
    "topic.creation.default.partitions": ("1", "0", "-1", "x"), "topic.creation.default.replication.factor": ("1", "0", "-2", "x", "-1"),
    "topic.creation.g.include": ("a.*", "(", ""), "topic.creation.g.partitions": ("2", "0"), "topic.creation.g.replication.factor": ("1", "x"),
    "topic.creation.g.exclude": ("b", "["), "mock_mode": ("task-failure", "x"), "delay_ms": ("1", "x"), "connector.plugin.version": ("4.3.1", "[4,5)"),
    "key.converter.plugin.version": ("4.3.1", "9"), "tasks.max.enforce": ("true", "x", ""),
}  # fmt: skip
HALF = 0.5


class Requests:
    """The requests of one scenario.

    Args:
        rng: The source of choices.
        mark: What its names have that no other scenario's have.
        distributed: Whether the worker is; a standalone one of Java's keeps the state of a task that is not there.
    """

    def __init__(self, rng, mark, *, distributed):
        self.rng, self.mark, self.distributed = rng, mark, distributed
        self.existing = []

    def chance(self, part):
        return self.rng.random() < part

    def one(self, options):
        return self.rng.choice(options)

    def request(self, method, path, **more):
        return {"request": {"method": method, "path": path, **more}}

    def route(self, names):
        path = self.one(ROUTES).replace("NAME", self.one(names)).replace("NUMBER", self.one(NUMBERS))
        path = path.replace("PLUGIN", self.one(PLUGINS)).replace("LOGGER", self.logger())
        return path + self.one(QUERIES)

    def logger(self):
        return self.one(LOGGERS).replace("SEED", self.mark)

    def any(self):
        """A request of any method to any path; it changes nothing that is there."""
        method = self.one(METHODS)
        names = (*MISSING, *self.existing) if method in ("GET", "HEAD", "OPTIONS", "TRACE") else MISSING
        more = {}
        if method in ("POST", "PUT", "PATCH") and self.chance(0.7):
            more["raw"] = self.one(RAW)
        if self.chance(0.3):
            more["headers"] = {"Accept": self.one(ACCEPTED)} if self.chance(HALF) else {"Content-Type": self.one(KINDS)}
        return self.request(method, self.route(names), **more)

    def body(self):
        """A body that is wrong, or right and of an odd form, to an endpoint that reads one."""
        name = self.one([*self.existing, "nope"])
        method, path = self.one(
            [
                ("POST", "/connectors"), ("PUT", f"/connectors/{name}/config"), ("PATCH", f"/connectors/{name}/config"),
                ("PUT", f"/connector-plugins/{self.one(PLUGINS)}/config/validate"), ("PATCH", f"/connectors/{name}/offsets"),
                ("PUT", f"/admin/loggers/{self.logger()}"), ("POST", f"/connectors/{name}/tasks"),
            ]
        )  # fmt: skip
        more = {"headers": {"Content-Type": self.one(KINDS)}} if self.chance(0.2) else {}
        raw = self.one(RAW)
        while method == "PATCH" and "/config" in path and raw.startswith('{"'):  # a change of what is there
            raw = self.one(RAW)
        return self.request(method, path, raw=raw, **more)

    def config(self):
        """A config, right or wrong."""
        plugin = (
            self.one((f"{FILE}Source", f"{FILE}Sink", f"{TOOLS}MockSource", f"{TOOLS}VerifiableSink")) + "Connector"
        )
        config = {"connector.class": plugin, "name": "c"}
        config |= {"topics": "t"} if "Sink" in plugin else {"topic": "t"}
        for setting in self.rng.sample(sorted(SETTINGS), self.rng.randint(1, 5)):
            config[setting] = self.one(SETTINGS[setting])
        for part in ("transforms", "predicates"):
            if any(setting.startswith(f"{part}.") for setting in config) and self.chance(0.8):
                config[part] = part[0] if part == "predicates" else "a"
        if self.chance(0.05):
            config["connector.class"] = self.one(("", "Nope", None, "FileStreamSource", f"{FILE}Source", JSON))
        return config

    def validate(self):
        config = self.config()
        plugin = str(config.get("connector.class")).rpartition(".")[2] or "x"
        if self.chance(0.05):
            plugin = self.one(PLUGINS)
        return {
            **self.request("PUT", f"/connector-plugins/{plugin}/config/validate", body=config),
            "ignore": ["documentation"],
        }

    def refused(self):
        """A creation that is refused: its name is taken, or its config is wrong."""
        config = self.config()
        config["tasks.max"] = self.one(("0", "x", "-1"))
        if self.chance(0.3):
            return self.request(
                "PUT", f"/connectors/{self.one([*self.existing, 'nope'])}/config", body={**config, "name": None}
            )
        name = config.pop("name")
        body = {"name": self.one([name, *self.existing]), "config": config}
        if self.chance(0.2):
            body["initial_state"] = self.one(("STOPPED", "stopped", "x", "", None, 5))
        if self.chance(0.1):
            body["extra"] = 1
        return self.request("POST", "/connectors", body=body)

    def plugins(self):
        if self.chance(0.2):
            return self.request("GET", f"/connector-plugins?connectorsOnly={self.one(('true', 'false', 'x', ''))}")
        name = self.one(PLUGINS)
        versions = ("", "?version=4.3.1", "?version=[4,5)") if name.startswith((FILE, JSON)) else ("",)
        return {
            **self.request("GET", f"/connector-plugins/{name}/config{self.one(versions)}"),
            "ignore": ["documentation"],
        }

    def logging(self):
        name = self.logger()
        if self.chance(0.4):
            return self.request("GET", f"/admin/loggers/{name}")
        scope = self.one(("", "", "?scope=worker", "?scope=WORKER", "?scope=x", "?scope="))
        return self.request("PUT", f"/admin/loggers/{name}{scope}", body={"level": self.one(LEVELS)})

    def offsets(self, name, *, is_sink):
        """A change of the offsets of a connector, right or wrong."""
        pairs = [self.sink_pair() if is_sink else self.source_pair() for _ in range(self.rng.randint(0, 3))]
        return self.request("PATCH", f"/connectors/{name}/offsets", body={"offsets": pairs})

    def source_pair(self):
        partition = self.one(
            [{"filename": "/none/in.txt"}] * 6
            + [{"filename": "/none/other.txt"}, {}, None, {"filename": None}, {"filename": 5}, {"x": "y"}, {"filename": "/none/in.txt", "x": 1},
               {"filename": ["a"]}, {"filename": ""}]
        )  # fmt: skip
        offset = self.one(
            [{"position": 2}] * 5
            + [None, {"position": "2"}, {"position": -1}, {"position": 1.5}, {"position": None}, {}, {"x": 1}, {"position": 1 << 40},
               {"position": True}, {"position": {"a": 1}}, {"position": [1]}, {"position": 10**30}, {"position": 2, "x": "y"}]
        )  # fmt: skip
        return {"partition": partition, "offset": offset}

    def sink_pair(self):
        place = {"kafka_topic": f"t{self.mark}", "kafka_partition": 0}
        partition = self.one(
            [place] * 6
            + [{**place, "kafka_partition": "0"}, {**place, "kafka_partition": "x"}, {**place, "kafka_partition": None}, {**place, "kafka_topic": None},
               {"kafka_topic": "x"}, {"kafka_partition": 0}, {}, None, {**place, "x": 1}, {**place, "kafka_partition": 0.0},
               {**place, "kafka_partition": True}, {**place, "kafka_partition": [0]}]
        )  # fmt: skip
        offset = self.one(
            [{"kafka_offset": 1}] * 5
            + [None, {"kafka_offset": "1"}, {"kafka_offset": "x"}, {"kafka_offset": None}, {}, {"x": 1}, {"kafka_offset": 1.5}, {"kafka_offset": 1, "x": 2},
               {"kafka_offset": False}, {"kafka_offset": {"a": 1}}, {"kafka_offset": 10**20}]
        )  # fmt: skip
        return {"partition": partition, "offset": offset}


def looks(requests):
    """Connectors of all states, and requests that change nothing."""
    mark = requests.mark
    made = [
        (f"s{mark}", {"connector.class": f"{FILE}SourceConnector", "file": "%DIR%/in.txt", "topic": f"t{mark}"}, "STOPPED"),
        (f"k{mark}", {"connector.class": f"{FILE}SinkConnector", "file": "%DIR%/out.txt", "topics": f"t{mark}"}, "STOPPED"),
        (f"m{mark}", {"connector.class": f"{TOOLS}MockSourceConnector"}, "RUNNING"),
    ]  # fmt: skip
    for name, config, state in made:
        requests.existing.append(name)
        yield requests.request("POST", "/connectors", body={"name": name, "config": config, "initial_state": state})
    yield {"settle": {f"s{mark}": 0, f"k{mark}": 0, f"m{mark}": 1}}
    makers = (
        [requests.any] * 8 + [requests.body] * 4 + [requests.validate] * 6 + [requests.refused] * 3 + [requests.plugins] * 2 + [requests.logging] * 3
    )  # fmt: skip
    for _ in range(30):
        yield requests.one(makers)()


KINDS_OF_CONNECTORS = {
    "file-source": ({"connector.class": f"{FILE}SourceConnector", "file": "%DIR%/in.txt"}, "topic", lambda _max: 1),
    "file-sink": ({"connector.class": "FileStreamSink", "file": "%DIR%/out.txt"}, "topics", lambda most: most),
    "mock-source": ({"connector.class": f"{TOOLS}MockSourceConnector"}, "topic", lambda _max: 1),
    "mock-sink": ({"connector.class": "MockSink"}, "topics", lambda _max: 1),
    "failing-task": ({"connector.class": "MockSource", "mock_mode": "task-failure", "delay_ms": "0"}, "topic", lambda _max: 1),
    "verifiable-source": ({"connector.class": "VerifiableSource", "throughput": "5"}, "topic", lambda most: most),
    "verifiable-sink": ({"connector.class": f"{TOOLS}VerifiableSinkConnector"}, "topics", lambda most: most),
    "wrong-task": ({"connector.class": "VerifiableSource"}, "topic", lambda most: most),
}  # fmt: skip
ODD_NAMES = (
    "ä-MARK",
    "with space MARK",
    "MARK%",
    "MARK?x=y",
    "MARK#",
    "  trim-MARK ",
    "MARK+1",
    "MARK;v=1",
    "😀MARK",
    'MARK"q"',
    "MARK" + "x" * 150,
    "MARK:8",
    "-MARK",
)


class Life:
    """What a scenario knows of the connectors that it has made."""

    def __init__(self, requests):
        self.requests, self.known = requests, {}
        self.made = 0

    def encoded(self, name):
        return "".join(
            c if (c.isalnum() and c.isascii()) or c in "-._" else "".join(f"%{b:02X}" for b in c.encode()) for c in name
        )

    def fresh(self):
        requests = self.requests
        self.made += 1
        if requests.chance(0.25):
            return requests.one(ODD_NAMES).replace("MARK", f"{requests.mark}n{self.made}")
        return f"c{requests.mark}n{self.made}"

    def settle(self):
        return {
            "settle": {name: each["tasks"]() if each["state"] == "RUNNING" else 0 for name, each in self.known.items()}
        }

    def create(self):
        requests = self.requests
        kind = requests.one(sorted(KINDS_OF_CONNECTORS))
        config, topic, tasks = KINDS_OF_CONNECTORS[kind]
        sent = self.fresh()
        most = requests.one(("1", "1", "2", "3"))
        config = {**config, "tasks.max": most, topic: f"t{requests.mark}"}
        name = sent.strip()
        self.known[name] = {"config": config, "state": "RUNNING", "kind": kind}
        self.known[name]["tasks"] = lambda known=self.known[name]: tasks(int(known["config"]["tasks.max"]))
        if requests.chance(0.3) and sent == name:
            more = {"name": name} if requests.chance(HALF) else {}
            yield requests.request("PUT", f"/connectors/{self.encoded(name)}/config", body={**config, **more})
        else:
            body = {"name": sent, "config": config}
            if requests.chance(0.4):
                state = requests.one(("RUNNING", "PAUSED", "STOPPED"))
                body["initial_state"] = state if requests.chance(0.7) else state.lower()
                self.known[name]["state"] = state
            yield requests.request("POST", "/connectors", body=body)
        yield self.settle()

    def change(self):
        """One change of one of the connectors."""
        requests = self.requests
        name = requests.one(sorted(self.known))
        known, path = self.known[name], f"/connectors/{self.encoded(name)}"
        what = requests.one(
            (
                "put",
                "patch",
                "pause",
                "stop",
                "resume",
                "restart",
                "restart-task",
                "delete",
                "recreate",
                "forget-topics",
            )
        )
        settle = True
        if what == "put":
            known["config"] = {
                **known["config"],
                "tasks.max": requests.one(("1", "2", "3")),
                "unknown.setting": requests.one(("x", "y")),
            }
            yield requests.request("PUT", f"{path}/config", body=known["config"])
        elif what == "patch":
            patch = requests.one(
                (
                    {"tasks.max": "2"},
                    {"tasks.max": "1", "unknown.setting": None},
                    {"x": 1},
                    {"x": None},
                    {},
                    {"errors.log.enable": True},
                )
            )
            known["config"] = {key: value for key, value in {**known["config"], **patch}.items() if value is not None}
            yield requests.request("PATCH", f"{path}/config", body=patch)
        elif what in ("pause", "stop", "resume"):
            known["state"] = {"pause": "PAUSED", "stop": "STOPPED", "resume": "RUNNING"}[what]
            yield requests.request("PUT", f"{path}/{what}")
        elif what == "restart":
            query = requests.one(
                (
                    "",
                    "?includeTasks=true",
                    "?includeTasks=true&onlyFailed=true",
                    "?onlyFailed=true",
                    "?includeTasks=x",
                    "?includeTasks=TRUE",
                )
            )
            moving = {"unordered": ["/tasks"], "ignore": ["state", "trace"]}  # what goes on there meanwhile
            yield {**requests.request("POST", f"{path}/restart{query}"), **moving}
        elif what == "restart-task":
            yield requests.request(
                "POST",
                f"{path}/tasks/{requests.one(('0', '0', '1', '2', '9') if requests.distributed else ('0',))}/restart",
            )
        elif what == "delete":
            if len(self.known) > 1:
                del self.known[name]
                yield requests.request("DELETE", path)
                yield requests.request("GET", "/connectors")
                yield requests.request("GET", path)
        elif what == "recreate":
            settle = False
            yield requests.request("POST", "/connectors", body={"name": name, "config": known["config"]})
        else:
            settle = False
            yield requests.request("PUT", f"{path}/topics/reset")
        if settle:
            yield self.settle()

    def look(self):
        requests = self.requests
        name = requests.one(sorted(self.known))
        path = f"/connectors/{self.encoded(name)}"
        wanted = requests.one(
            [path, f"{path}/config", f"{path}/tasks", f"{path}/tasks/0/status", f"{path}/tasks/1/status", "/connectors?expand=info",
             "/connectors?expand=status", "/connectors?expand=info&expand=status", "/connectors", f"{path}/offsets" if "verifiable" not in self.known[name]["kind"] else path]
        )  # fmt: skip
        return {**requests.request("GET", wanted), "await": True}


def life(requests):
    """Connectors that are made, changed, stopped, started and deleted."""
    scenario = Life(requests)
    yield from scenario.create()
    for _ in range(9):
        if requests.chance(0.2) and len(scenario.known) < 3:
            yield from scenario.create()
        else:
            yield from scenario.change()
        for _ in range(requests.rng.randint(0, 2)):
            yield scenario.look()


def offsets(requests):
    """The offsets of a source and a sink that are stopped.

    The name of the file is the same in every folder: which of several wrong partitions Java names depends on its hash.
    """
    mark = requests.mark
    source, sink = f"s{mark}", f"k{mark}"
    yield {"create_topic": {"name": f"t{mark}", "partitions": 1, "config": {}}}
    for name, config in (
        (source, {"connector.class": f"{FILE}SourceConnector", "file": "/none/in.txt", "topic": f"t{mark}"}),
        (sink, {"connector.class": f"{FILE}SinkConnector", "file": "%DIR%/out.txt", "topics": f"t{mark}"}),
    ):
        yield requests.request("POST", "/connectors", body={"name": name, "config": config, "initial_state": "STOPPED"})
    yield {"settle": {source: 0, sink: 0}}
    for _ in range(12):
        name = requests.one((source, source, sink))
        action = requests.rng.random()
        if action < 0.75:
            yield requests.offsets(name, is_sink=name == sink)
        elif action < 0.9:
            yield requests.request("DELETE", f"/connectors/{name}/offsets")
        else:
            yield requests.request("PATCH", f"/connectors/{name}/offsets", raw=requests.one(RAW))
        yield {**requests.request("GET", f"/connectors/{name}/offsets"), "await": True, "unordered": ["/offsets"]}


def pair(requests):
    """The same life with two workers, of which each gets some of the requests, and one of which leaves and comes back."""
    running = ["a"]
    for step in life(requests):
        if len(running) == 1 and (running := ["a", "b"]) and "request" in step:
            yield {"start_worker": {"id": "b", "props": {}}}
        if "request" in step:
            step["request"]["worker"] = requests.one(running)
            step["ignore"] = [*step.get("ignore", ()), "worker_id"]
            if step["request"]["method"] == "GET":
                step["await"] = True
        yield step
        if "settle" in step and requests.chance(0.15):
            yield {"stop_worker": "b"}
            running = ["a"]
            yield step


def together(requests):
    """Requests that come at the same time: looks, deletions, and what a distributed worker is to store.

    How Java's workers answer several creations of one connector depends on milliseconds: all may get 201; and a
    standalone one fails at changes that come together.
    """
    scenario = Life(requests)
    yield from scenario.create()
    for _ in range(4):
        name = requests.one(sorted(scenario.known))
        path, known = f"/connectors/{scenario.encoded(name)}", scenario.known[name]
        what = requests.one(("put", "delete", "looks"))
        if what == "put" and requests.distributed:
            known["config"] = {**known["config"], "unknown.setting": str(requests.rng.randrange(100))}
            yield {"together": [requests.request("PUT", f"{path}/config", body=known["config"])["request"]] * 3}
        elif what == "delete" and len(scenario.known) > 1:
            del scenario.known[name]
            yield {"together": [requests.request("DELETE", path)["request"]] * 3}
        else:
            yield {
                "together": [
                    requests.request("GET", f"{path}{part}")["request"]
                    for part in ("", "/status", "/config", "/tasks", "/topics")
                ]
            }
        yield scenario.settle()
        yield requests.request("GET", "/connectors?expand=info")


SCENARIOS = {"looks": looks, "life": life, "offsets": offsets, "pair": pair, "together": together}


def random_scenario(family, seed):
    """A scenario of a family by its seed; odd seeds are those of standalone workers, except of pairs."""
    rng = random.Random(f"{family}-{seed}")
    mode = "standalone" if seed % 2 and family != "pair" else "distributed"
    steps = list(SCENARIOS[family](Requests(rng, f"{family[0]}{seed}", distributed=mode == "distributed")))
    return {
        "kind": "rest", "name": f"{family}-{seed}", "about": "", "family": family, "mode": mode, "plugins": "tool",
        "worker": STANDALONE if mode == "standalone" else DISTRIBUTED, "kafka_connect": "4.3.1", "steps": json.loads(json.dumps(steps)),
    }  # fmt: skip
