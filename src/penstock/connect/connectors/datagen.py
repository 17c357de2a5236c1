"""The datagen source: lines of access logs, shop events or page views, the same ones for the same seed."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from penstock.connect.api import ExactlyOnce, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Importance, Kind, Model, OneOf, Range, Setting
from penstock.connect.data import INT64, STRING, Schema, SourceRecord, Struct, struct
from penstock.connect.record_generators import Generated, GeneratorSettings, access_log, clicks, shop

__all__ = ["DatagenSource", "DatagenTask"]

GENERATORS: dict[str, Callable[[GeneratorSettings], Iterator[Generated]]] = {
    "access-log": access_log,
    "clicks": clicks,
    "shop": shop,
}
MOST, IDLE_S = 1000, 0.5
CONFIG = ConfigDef(
    [
        Setting(
            name="quickstart",
            kind=Kind.STRING,
            default="access-log",
            rule=OneOf(tuple(GENERATORS)),
            importance=Importance.HIGH,
            doc="The generator: access-log, clicks, or shop (users, items and orders).",
        ),
        Setting(
            name="kafka.topic",
            kind=Kind.STRING,
            default="",
            importance=Importance.HIGH,
            doc="The topic of all records; by default each generator's own.",
        ),
        Setting(name="iterations", kind=Kind.LONG, default=-1, rule=Range(-1), doc="The records; -1 is endless."),
        Setting(
            name="rate",
            kind=Kind.DOUBLE,
            default=100.0,
            rule=Range(0.001, 100_000),
            doc="Records a second, in event and in real time. clicks holds the visits of about a minute in memory.",
        ),
        Setting(name="seed", kind=Kind.LONG, default=0, doc="The same seed generates the same records."),
        Setting(
            name="start.ms",
            kind=Kind.LONG,
            default=1_700_000_000_000,
            doc="The first event's time in ms.",
        ),
    ]
)
_SCHEMAS = "Records are those of the generators: access-log, clicks or shop, by quickstart."
MODEL = Model(
    "Confluent's datagen connector",
    refused={
        "max.interval": "Set rate, the records a second.",
        "random.seed": "Set seed.",
        "schema.string": _SCHEMAS,
        "schema.filename": _SCHEMAS,
        "schema.keyfield": _SCHEMAS,
        "generate.timeout": "Set iterations, the number of records.",
    },
)


class DatagenTask(SourceTask):
    """The task: it goes on behind the last record that was written."""

    java_class: ClassVar[str] = "io.confluent.kafka.connect.datagen.DatagenTask"

    def start(self, settings: Mapping[str, str]) -> None:
        self._stopped = threading.Event()
        parsed: dict[str, Any] = CONFIG.parse(settings)
        self._partition = {"quickstart": parsed["quickstart"], "seed": parsed["seed"]}
        stored = self.context.offset_reader.offset(self._partition) or {}
        self._next, self._topic = int(stored.get("next", 0)), parsed["kafka.topic"]
        count = None if parsed["iterations"] < 0 else parsed["iterations"]
        generator_settings = GeneratorSettings(
            seed=parsed["seed"], count=count, rate=parsed["rate"], start_ms=parsed["start.ms"]
        )
        self._records = itertools.islice(GENERATORS[parsed["quickstart"]](generator_settings), self._next, None)
        self._rate, self._began, self._sent = parsed["rate"], time.monotonic(), 0
        self._schemas: dict[str, Schema] = {}  # by the generator's topic

    def poll(self) -> Sequence[SourceRecord] | None:
        due = int((time.monotonic() - self._began) * self._rate) + 1 - self._sent
        if due <= 0:
            self._stopped.wait(min(1 / self._rate, IDLE_S))
            return None
        batch = list(itertools.islice(self._records, min(due, MOST)))
        if not batch:
            self._stopped.wait(IDLE_S)
            return None
        self._sent += len(batch)
        return [self._record(generated) for generated in batch]

    def stop(self) -> None:
        self._stopped.set()

    def _record(self, generated: Generated) -> SourceRecord:
        self._next += 1
        value, schema = self._value(generated)
        return SourceRecord(
            topic=self._topic or generated.topic,
            key=generated.key,
            key_schema=None if generated.key is None else STRING,
            value=value,
            value_schema=schema,
            timestamp=generated.timestamp_ms,
            source_partition=self._partition,
            source_offset={"next": self._next},
        )

    def _value(self, generated: Generated) -> tuple[Any, Schema]:
        """Return a line of text, or the fields of an event, which are the same in all events of a topic."""
        if generated.key is None:
            return generated.value, STRING
        fields = json.loads(generated.value)
        schema = self._schemas.get(generated.topic)
        if schema is None:
            kinds = {name: INT64 if isinstance(value, int) else STRING for name, value in fields.items()}
            schema = self._schemas[generated.topic] = struct(kinds, name=generated.topic)
        return Struct(schema, fields), schema


class DatagenSource(SourceConnector):
    """Generated records at a rate: for trials, demonstrations and load tests. Each record is written once.

    It has the name of Confluent's connector and generators of its own: ``access-log`` are lines of text, ``clicks`` and
    ``shop`` have values of fields with a schema. The same seed and rate generate the same records, also after a crash:
    the offset is the number of the next one. A start generates those before it again.
    """

    java_class: ClassVar[str] = "io.confluent.kafka.connect.datagen.DatagenConnector"
    config: ClassVar[ConfigDef] = CONFIG
    model: ClassVar[Model] = MODEL
    task_class: ClassVar[type[SourceTask]] = DatagenTask

    def start(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)
        self.parse(settings)

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:  # noqa: ARG002 - one order of records
        return [self._settings]

    def exactly_once_support(self, settings: Mapping[str, str]) -> ExactlyOnce | None:  # noqa: ARG002
        return ExactlyOnce.SUPPORTED
