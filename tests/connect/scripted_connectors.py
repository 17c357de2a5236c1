"""The two scripted connectors of the recorded scenarios, as a file of `plugin.path`: they fail where their config says."""

from pathlib import Path

from penstock.connect.api import (
    Boundaries,
    ExactlyOnce,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
)
from penstock.connect.config import (
    ConfigDef,
    Importance,
    Kind,
    NonEmptyText,
    Range,
    Recommender,
    Setting,
    Width,
    validate,
)
from penstock.connect.data import STRING, RetriableError, SourceRecord
from penstock.errors import ConnectError
from penstock.serde.data.values import java_text


def low(name, doc, default=None, kind=Kind.STRING, **more):
    return Setting(name=name, kind=kind, default=default, importance=Importance.LOW, doc=doc, **more)


def main(name, doc, order, **more):
    return Setting(name=name, doc=doc, group="Main", order=order, **more)


def extra(name, doc, order, kind, default=None):
    return low(name, doc, default, kind, group="Extras", order=order, width=Width.MEDIUM, label=name.capitalize())


TASKS = "How many task configs are made, at most tasks.max."
FAILURES = (
    low("fail.connector.start", "Message of start()'s exception."),
    low("fail.task.start", "Message of the task's start() exception."),
)
ALTER = low("alter.offsets", "What alterOffsets does.", "yes")

SOURCE = ConfigDef(
    [
        main("topic", "Where records go.", 1, kind=Kind.STRING, rule=NonEmptyText(), importance=Importance.HIGH,
             width=Width.MEDIUM, label="Topic"),
        main("tasks", TASKS, 2, kind=Kind.INT, default="1", rule=Range(0), importance=Importance.MEDIUM, width=Width.SHORT,
             label="Tasks"),
        main("tasks.beyond.max", "Do not mind tasks.max.", 3, kind=Kind.BOOLEAN, default="false",
             importance=Importance.LOW, width=Width.SHORT, label="Beyond"),
        main("records", "Records of each task.", 4, kind=Kind.INT, default="0", importance=Importance.MEDIUM,
             width=Width.SHORT, label="Records"),
        FAILURES[0],
        low("fail.task.configs", "Message of taskConfigs()'s exception."),
        FAILURES[1],
        low("fail.task.at", "The record before which poll() throws.", "-1", Kind.INT),
        low("fail.task.only", "The only task that fails; -1: all.", "-1", Kind.INT),
        low("fail.unless.file", "Failures of tasks end when this file is there."),
        ALTER,
        low("exactly.once", "What exactlyOnceSupport says.", "null"),
        low("boundaries", "What canDefineTransactionBoundaries says.", "unsupported"),
        low("validate.error", "An error that validate() adds to topic."),
        low("choice", "One of a few.", "a", group="Extras", order=1, width=Width.LONG, label="Choice", dependents=("ratio",),
            recommender=Recommender(lambda _name, _parsed: ["a", "b", "c"], lambda _name, _parsed: True)),
        low("ratio", "A part.", "0.5", Kind.DOUBLE, group="Extras", order=2, width=Width.SHORT, label="Ratio",
            rule=Range(0, 1), recommender=Recommender(lambda _name, _parsed: [], lambda _name, parsed: parsed.get("choice") == "b")),
        extra("secret", "A password.", 3, Kind.PASSWORD),
        extra("names", "A list.", 4, Kind.LIST, "x,y"),
        extra("big", "A long.", 5, Kind.LONG, "10000000000"),
        extra("small", "A short.", 6, Kind.SHORT, "7"),
        extra("class", "A class.", 7, Kind.CLASS),
    ]
)  # fmt: skip
SINK = ConfigDef(
    [
        Setting(name="file", kind=Kind.STRING, importance=Importance.HIGH, doc="Where lines go."),
        Setting(name="tasks", kind=Kind.INT, default="1", importance=Importance.MEDIUM, doc=TASKS),
        *FAILURES,
        low("fail.on.value", "put() throws at a record whose value has this text."),
        low("retry.on.value", "put() throws RetriableException at a record whose value has this text."),
        low("retry.times", "So many times; then the record is taken.", "0", Kind.INT),
        low("report.on.value", "A record whose value has this text goes to the errant record reporter."),
        low("fail.unless.file", "Failures end when this file is there."),
        ALTER,
    ]
)


def is_mended(settings):
    return bool(settings.get("fail.unless.file")) and Path(settings["fail.unless.file"]).exists()


def altered(settings):
    match settings.get("alter.offsets", "yes"):
        case "yes":
            return True
        case "no":
            return False
        case "refuse":
            raise ConnectError("these offsets are refused")
    raise NotImplementedError("not here")


class ScriptedSourceTask(SourceTask):
    java_class = "ScriptedSourceConnector$ScriptedTask"

    def start(self, settings):
        self.number = int(settings["task.number"])
        self.settings = settings
        self.records = int(settings.get("records", "0"))
        if settings.get("fail.task.start") and self.fails():
            raise ConnectError(settings["fail.task.start"])
        stored = self.context.offset_reader.offset({"task": self.number})
        self.next = int(stored["next"]) if stored else 0

    def fails(self):
        only = int(self.settings.get("fail.task.only", "-1"))
        return only in (-1, self.number) and not is_mended(self.settings)

    def poll(self):
        if self.next >= self.records:
            return None
        at = self.next
        if at == int(self.settings.get("fail.task.at", "-1")) and self.fails():
            raise ConnectError(f"scripted failure at record {at}")
        self.next += 1
        return [
            SourceRecord(
                topic=self.settings["topic"], key=f"key-{at}", key_schema=STRING, value=f"task-{self.number}-{at}",
                value_schema=STRING, source_partition={"task": self.number}, source_offset={"next": at + 1},
            )
        ]  # fmt: skip


class ScriptedSourceConnector(SourceConnector):
    java_class = "ScriptedSourceConnector"
    version = "1.0"
    config = SOURCE
    task_class = ScriptedSourceTask

    def start(self, settings):
        self.settings = dict(settings)
        if settings.get("fail.connector.start"):
            raise ConnectError(settings["fail.connector.start"])

    def task_configs(self, max_tasks):
        if self.settings.get("fail.task.configs"):
            raise ConnectError(self.settings["fail.task.configs"])
        count = int(self.settings.get("tasks", "1"))
        if self.settings.get("tasks.beyond.max") != "true":
            count = min(count, max_tasks)
        return [{**self.settings, "task.number": str(number)} for number in range(count)]

    def validate(self, settings):
        values = validate(self.config, settings)
        if settings.get("validate.error"):
            values["topic"].errors.append(settings["validate.error"])
        return values

    def exactly_once_support(self, settings):
        answer = settings.get("exactly.once", "null")
        return None if answer == "null" else ExactlyOnce[answer.upper()]

    def can_define_transaction_boundaries(self, settings):
        answer = settings.get("boundaries", "unsupported")
        return None if answer == "null" else Boundaries[answer.upper()]

    def alter_offsets(self, settings, offsets):
        return altered(settings)


class ScriptedSinkTask(SinkTask):
    java_class = "ScriptedSinkConnector$ScriptedTask"

    def start(self, settings):
        self.settings = settings
        self.retries = int(settings.get("retry.times", "0"))
        if settings.get("fail.task.start") and not is_mended(settings):
            raise ConnectError(settings["fail.task.start"])
        self.out = Path(settings["file"]).open("a", encoding="utf-8")  # noqa: SIM115 - closed by stop

    def has(self, name, value):
        return self.settings.get(name) is not None and value is not None and self.settings[name] in value

    def put(self, records):
        for record in records:
            value = java_text(record.value, record.value_schema)
            if self.has("fail.on.value", value) and not is_mended(self.settings):
                raise ConnectError(f"scripted failure at value {value}")
            if self.has("retry.on.value", value) and self.retries > 0:
                self.retries -= 1
                raise RetriableError("scripted retry")
            if self.has("report.on.value", value) and self.context.errant_record_reporter is not None:
                error = ConnectError(f"scripted report of value {value}")
                self.context.errant_record_reporter.report(record, error)
                continue
            key = java_text(record.key, record.key_schema)
            headers = "".join(f" {header.key}={java_text(header.value, header.schema)}" for header in record.headers)
            self.out.write(f"{record.topic}-{record.partition}@{record.offset} {key} {value}{headers}\n")
            self.out.flush()

    def stop(self):
        if hasattr(self, "out"):
            self.out.close()


class ScriptedSinkConnector(SinkConnector):
    java_class = "ScriptedSinkConnector"
    version = "1.0"
    config = SINK
    task_class = ScriptedSinkTask

    def start(self, settings):
        self.settings = dict(settings)
        if settings.get("fail.connector.start"):
            raise ConnectError(settings["fail.connector.start"])

    def task_configs(self, max_tasks):
        count = min(int(self.settings.get("tasks", "1")), max_tasks)
        return [dict(self.settings) for _ in range(count)]

    def alter_offsets(self, settings, offsets):
        return altered(settings)
