"""The object sink: the records of a partition in objects whose names hold their offsets, so that each is there once."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import unquote, urlsplit

from penstock.connect.api import SinkTask
from penstock.connect.config import (
    Check,
    ConfigDef,
    Importance,
    Kind,
    Model,
    NamedValues,
    OneOf,
    Range,
    Refused,
    Setting,
    named_values,
)
from penstock.connect.connectors.objects.formats import FORMATS, encode, json_line, suffix_of
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.data import DataError, RetriableError, Schema, SettingError, SinkRecord
from penstock.errors import ConnectError
from penstock.log.base import TopicPartition

__all__ = [
    "OBJECT_MODEL",
    "ObjectName",
    "ObjectSinkConnector",
    "ObjectSinkTask",
    "check_folders",
    "check_store_url",
    "fixed_part",
    "folder_of",
]

NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)\+(?P<partition>\d+)\+(?P<first>\d{20})-(?P<last>\d{20})\.[a-z.]+")
VARIABLE = re.compile(r"\$?\{[^}]*\}")
STORES = ("s3://", "s3a://", "gs://", "az://", "abfs://", "abfss://", "file:///", "memory://")
TIME = re.compile(r"%[YmdHMSj]")
JODA = re.compile(r"\b[yY]{2,4}\b|\b(?:MM|dd|HH|mm)\b")


@dataclass(frozen=True, slots=True)
class ObjectName:
    """The name of an object, without folders: its partition, and the offsets of its first and last record.

    >>> print(ObjectName(TopicPartition("hits", 0), 5, 9).text(".parquet"))
    hits+0+00000000000000000005-00000000000000000009.parquet
    """

    tp: TopicPartition
    first: int
    last: int

    def text(self, suffix: str) -> str:
        """Return the name as text."""
        return f"{self.tp.topic}+{self.tp.partition}+{self.first:020}-{self.last:020}{suffix}"

    @classmethod
    def parse(cls, path: str) -> Self | None:
        """Return the name that a path ends with; None if the object is not one of a sink.

        >>> ObjectName.parse("a/hits+0+00000000000000000005-00000000000000000009.json.gz").last
        9
        """
        match = NAME.fullmatch(path.rpartition("/")[2])
        if match is None:
            return None
        tp = TopicPartition(match["topic"], int(match["partition"]))
        return cls(tp, int(match["first"]), int(match["last"]))


def check_store_url(name: str, value: object) -> None:
    """Refuse a URL of another kind of store.

    Raises:
        SettingError: It is one.
    """
    if value is not None and not str(value).startswith(STORES):
        raise SettingError.invalid(name, value, "begin with s3://, gs://, az:// or file:///")


def check_folders(name: str, value: object) -> None:
    """Refuse folders outside of the store, and variables that there are not.

    Raises:
        SettingError: There are some.
    """
    text = str(value)
    if any(step in (".", "..") for step in text.split("/")):
        raise SettingError.invalid(name, value, "folders are below store.url: no . and ..")
    if "'" in text or JODA.search(text):
        raise SettingError.invalid(
            name, value, "times are %Y, %m, %d, %H, %M, %S, as in date=%Y-%m-%d: YYYY and 'text' are Confluent's"
        )
    letters = [each for each in re.findall("%[A-Za-z]", text) if TIME.fullmatch(each) is None]
    if letters:
        raise SettingError.invalid(
            name, value, f"{letters[0]} does not stand for a part of a time; these do: %Y %m %d %H %M %S %j"
        )
    unknown = [variable for variable in VARIABLE.findall(text) if variable not in ("${topic}", "${partition}")]
    if unknown:
        raise SettingError.invalid(name, value, f"{unknown[0]} is neither ${{topic}} nor ${{partition}}")


def folder_of(pattern: str, tp: TopicPartition, timestamp_ms: int | None) -> str:
    """Return the folder of a record.

    ``${topic}`` and ``${partition}`` of its place, and its time in UTC by ``%Y`` and so on.

    >>> folder_of("${topic}/day=%Y-%m-%d", TopicPartition("hits", 0), 0)
    'hits/day=1970-01-01'
    """
    text = pattern.replace("${topic}", tp.topic).replace("${partition}", str(tp.partition)).strip("/")
    if TIME.search(text) is None:
        return text
    try:
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms or 0)
    except OverflowError as error:
        raise DataError(
            f"the time {timestamp_ms} of a record is in no year from 1 to 9999",
            hint="Times are milliseconds since 1970: correct the producer, or path.format without % parts.",
        ) from error
    return TIME.sub(lambda match: when.strftime(match[0]).zfill(4 if match[0] == "%Y" else 0), text)


def fixed_part(pattern: str, tp: TopicPartition) -> tuple[str, bool]:
    """Return the folder below which all objects of a partition are, and whether they are all in that one folder."""
    whole = pattern.replace("${topic}", tp.topic).replace("${partition}", str(tp.partition)).strip("/")
    steps = whole.split("/")
    fixed = next((at for at, step in enumerate(steps) if TIME.search(step)), len(steps))
    return "/".join(steps[:fixed]), fixed == len(steps)


_BUCKET = "Name the bucket in store.url, such as s3://bucket or gs://bucket."
_OPTIONS = "Give options of the store by store.options, such as region:eu-central-1."
_CREDENTIALS = "Credentials are those of the environment, such as AWS_ACCESS_KEY_ID or GOOGLE_APPLICATION_CREDENTIALS."
_PATH = "Write the folders into path.format: ${topic}, ${partition}, and %Y, %m, %d, %H of the record's time in UTC."
_FORMAT = "Set format to parquet, json or csv."
_COMPRESSION = "Set compression."
_NAMES = (
    "Names are topic+partition+first-last, with offsets of twenty digits: a restarted task finds its place by them."
)
_KEYS = "Only values are written: put keys and headers into them by the transformations of a connector."
_AVRO = "There is no Avro format: set format=parquet."
_PARTS = "an object is written by one request, or in parts as the store wants them."
_ENCRYPTION = "Set the encryption of the bucket, in the store."
_NULLS = "Set behavior.on.null.values to ignore or fail."

OBJECT_MODEL = Model(
    "Confluent's sinks to S3 and Google Cloud Storage",
    refused={
        "s3.bucket.name": _BUCKET,
        "gcs.bucket.name": _BUCKET,
        "s3.region": "Set store.options=region:NAME.",
        "s3.path.style.access.enabled": "Set store.options=virtual_hosted_style_request:false.",
        "aws.": _CREDENTIALS,
        "s3.credentials.provider.": _CREDENTIALS,
        "gcs.credentials.": _CREDENTIALS,
        "s3.proxy.": "Set the environment's variable HTTPS_PROXY for the worker.",
        "gcs.proxy.": "Set the environment's variable HTTPS_PROXY for the worker.",
        "s3.object.tagging": Refused("Tag objects by a rule of the bucket.", unless=("false",)),
        "s3.object.tagging.key.value.pairs": "Tag objects by a rule of the bucket.",
        "s3.object.behavior.on.tagging.error": "Objects have no tags.",
        "s3.acl.canned": "Set the access of the bucket, in the store.",
        "s3.ssea.name": _ENCRYPTION,
        "s3.sse.": _ENCRYPTION,
        "s3.wan.mode": Refused(_OPTIONS, unless=("false",)),
        "s3.compression.type": _COMPRESSION,
        "gcs.compression.type": _COMPRESSION,
        "s3.compression.level": _COMPRESSION,
        "parquet.codec": _COMPRESSION,
        "avro.codec": _AVRO,
        "enhanced.avro.schema.support": _AVRO,
        "connect.meta.data": _AVRO,
        "allow.optional.map.keys": _AVRO,
        "format.class": _FORMAT,
        "format.bytearray.": _FORMAT,
        "storage.class": "The scheme of store.url says which store it is.",
        "topics.dir": "Write it into store.url or path.format: the default of Confluent's sinks is topics/.",
        "directory.delim": Refused("Folders are separated by /.", unless=("/",)),
        "file.delim": Refused(_NAMES, unless=("+",)),
        "filename.offset.zero.pad.width": Refused(_NAMES, unless=("20",)),
        "partitioner.class": _PATH,
        "partitioner.max.open.files": _PATH,
        "partition.field.name": _PATH,
        "partition.duration.ms": _PATH,
        "locale": _PATH,
        "timezone": Refused(_PATH, unless=("utc",)),
        "timestamp.extractor": Refused(_PATH, unless=("record",)),
        "timestamp.field": _PATH,
        "rotate.file.on.partition.change": Refused("Another folder is another object.", unless=("true",)),
        "schema.compatibility": Refused("Another schema is another object.", unless=("none",)),
        "s3.schema.partition.affix.type": Refused(_PATH, unless=("none",)),
        "json.decimal.format": 'Decimals are text in JSON: 1.50 is "1.50".',
        "store.kafka.keys": Refused(_KEYS, unless=("false",)),
        "store.kafka.headers": Refused(_KEYS, unless=("false",)),
        "keys.format.class": _KEYS,
        "headers.format.class": _KEYS,
        "tombstone.encoded.partition": _NULLS,
        "report.null.values.to.dlq": Refused(_NULLS, unless=("false",)),
        "max.write.duration.ms": "A task writes what it has when put is called.",
        "hive.": Refused("Add the folders to Hive by its own command MSCK REPAIR TABLE.", unless=("false",)),
        "retry.backoff.ms": "What may succeed later is written again until it does, with the worker's waits.",
    },
    idle={
        "s3.part.size": _PARTS,
        "gcs.part.size": _PARTS,
        "s3.part.retries": "the client of the store repeats requests itself.",
        "gcs.part.retries": "the client of the store repeats requests itself.",
        "s3.retry.backoff.ms": "the client of the store repeats requests itself.",
        "s3.http.send.expect.continue": _PARTS,
        "s3.send.digest": _PARTS,
        "s3.elastic.buffer.": _PARTS,
        "enable.conditional.writes": "the names of objects say what is in them, and a task continues after the newest.",
        "max.files.scan.limit": "a task lists the objects of its partitions when it starts.",
        "shutdown.timeout.ms": "the worker's task.shutdown.graceful.timeout.ms counts.",
        "schemas.cache.config": "schemas are the converter's.",
        "confluent.": "no licence is needed.",
    },
)


CONFIG = ConfigDef(
    [
        Setting(
            name="store.url",
            kind=Kind.STRING,
            rule=Check(check_store_url, "URL of a store"),
            importance=Importance.HIGH,
            doc="Where objects are written: s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, or a folder "
            "as file:///path. Credentials are those of the environment, such as AWS_ACCESS_KEY_ID.",
        ),
        Setting(
            name="store.options",
            kind=Kind.LIST,
            default="",
            rule=NamedValues(),
            doc="Options of the store as name:value, such as region:eu-central-1 or endpoint:http://localhost:9000.",
        ),
        Setting(
            name="format",
            kind=Kind.STRING,
            default="parquet",
            rule=OneOf(FORMATS),
            importance=Importance.HIGH,
            doc="parquet, json (a line for each record) or csv; bytes are base64 in json and csv.",
        ),
        Setting(
            name="compression",
            kind=Kind.STRING,
            default="",
            rule=OneOf(("", "none", "gzip", "zstd", "snappy")),
            doc="For Parquet: none, gzip, zstd (the default) or snappy; for the others: none (the default) or gzip.",
        ),
        Setting(
            name="path.format",
            kind=Kind.STRING,
            default="${topic}/partition=${partition}",
            rule=Check(check_folders, "path below store.url"),
            doc="The folders of a record; %Y, %m, %d, %H, %M are parts of its time in UTC, and a new folder a new "
            "object: ${topic}/date=%Y-%m-%d.",
        ),
        Setting(
            name="flush.size",
            kind=Kind.INT,
            default=10_000,
            rule=Range(1),
            importance=Importance.HIGH,
            doc="The largest number of records in an object.",
        ),
        Setting(
            name="rotate.bytes",
            kind=Kind.LONG,
            default=64 << 20,
            rule=Range(0),
            doc="The size of its records as JSON after which an object is closed; 0: any.",
        ),
        Setting(
            name="rotate.interval.ms",
            kind=Kind.LONG,
            default=-1,
            rule=Range(-1),
            doc="The longest time between the first and the last record of an object, by their timestamps; -1: any.",
        ),
        Setting(
            name="rotate.schedule.interval.ms",
            kind=Kind.LONG,
            default=600_000,
            rule=Range(-1),
            doc="The time after which an object is written even if it is not full; -1: never.",
        ),
        Setting(
            name="behavior.on.null.values",
            kind=Kind.STRING,
            default="ignore",
            rule=OneOf(("ignore", "fail")),
            doc="What happens to records without value.",
        ),
    ]
)


@dataclass(slots=True)
class _Open:
    """The records of a partition that are not written yet: one object."""

    folder: str
    schema: Schema | None
    since: float
    records: list[SinkRecord] = field(default_factory=list)
    size: int = 0


class ObjectSinkTask(SinkTask):
    """A task: it keeps the records of an object until the object is full, and commits the offsets behind objects."""

    java_class: ClassVar[str] = "ObjectSinkTask"

    def start(self, settings: Mapping[str, str]) -> None:
        self._parsed = parsed = CONFIG.parse(settings)
        kind = parsed["format"]
        self._compression = parsed["compression"] or ("zstd" if kind == "parquet" else "none")
        self._suffix = suffix_of(kind, self._compression)
        self._url = str(parsed["store.url"]).rstrip("/")
        self._store = _open_store(self._url, parsed["store.options"])
        self._open: dict[TopicPartition, _Open] = {}
        self._next: dict[TopicPartition, int] = {}
        self._broken: ConnectError | None = None

    def open(self, places: Collection[TopicPartition]) -> None:
        for topic in {tp.topic for tp in places}:
            self._check_log(topic)
        for tp in places:
            written = self._written(tp)
            if written is not None:
                self._next[tp] = written + 1
        self.context.offset({tp: self._next[tp] for tp in places if tp in self._next})

    def put(self, records: Sequence[SinkRecord]) -> None:
        if self._broken is not None:
            raise self._broken
        for tp in [each for each, one in self._open.items() if self._is_full(one)]:  # the store was away
            self._write_full(tp)
        for record in records:
            self._add(record)
        limit = self._parsed["rotate.schedule.interval.ms"]
        if limit >= 0:
            now = time.monotonic()
            for tp in [each for each, one in self._open.items() if (now - one.since) * 1000 >= limit]:
                self._write(tp)
                self.context.request_commit()

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return the offsets behind what is in the store."""
        waiting = {tp: int(one.records[0].original_offset or 0) for tp, one in self._open.items()}
        return {tp: min(offset, waiting.get(tp, offset)) for tp, offset in offsets.items()}

    def close(self, places: Collection[TopicPartition]) -> None:
        for tp in places:  # they are read again by the next owner
            self._open.pop(tp, None)
            self._next.pop(tp, None)

    def _add(self, record: SinkRecord) -> None:
        tp = TopicPartition(str(record.original_topic), int(record.original_partition or 0))
        offset = int(record.original_offset or 0)
        one = self._open.get(tp)
        if offset < self._next.get(tp, 0) or (one and offset <= int(one.records[-1].original_offset or 0)):
            return  # a batch that came again after an error
        if record.value is None:
            if self._parsed["behavior.on.null.values"] == "fail":
                raise DataError(
                    f"the record at {tp.topic}-{tp.partition} offset {offset} has no value",
                    hint="Set behavior.on.null.values=ignore, or drop tombstones by a transformation.",
                )
            return
        try:
            folder = folder_of(self._parsed["path.format"], tp, record.timestamp)
            size = len(json_line(record)) if self._parsed["rotate.bytes"] or self._parsed["format"] == "json" else 0
        except DataError as error:
            shown = f"{tp.topic}-{tp.partition} offset {offset}: {error.message}"
            raise DataError(shown, hint=error.hint) from error
        if one is not None and self._ends_before(one, record, folder):
            self._write(tp)
            one = None
        if one is None:
            one = self._open[tp] = _Open(folder, record.value_schema, time.monotonic())
        one.records.append(record)
        one.size += size
        if self._is_full(one):
            self._write_full(tp)

    def _is_full(self, one: _Open) -> bool:
        return bool(len(one.records) >= self._parsed["flush.size"] or 0 < self._parsed["rotate.bytes"] <= one.size)

    def _write_full(self, tp: TopicPartition) -> None:
        self._write(tp)
        self.context.request_commit()

    def _ends_before(self, one: _Open, record: SinkRecord, folder: str) -> bool:
        if folder != one.folder or record.value_schema != one.schema:
            return True
        limit = self._parsed["rotate.interval.ms"]
        return bool(limit >= 0 and (record.timestamp or 0) - (one.records[0].timestamp or 0) >= limit)

    def _write(self, tp: TopicPartition) -> None:
        """Write the records of a partition: one object, or more if they do not make one table."""
        while tp in self._open:
            one = self._open[tp]
            data, count = self._encoded(tp, one.records)
            if data:
                self._put_object(tp, one, data, count)
            rest = one.records[count:]
            if rest:
                one.records = rest
                one.size = sum(len(json_line(record)) for record in rest) if self._parsed["rotate.bytes"] else 0
            else:
                del self._open[tp]

    def _encoded(self, tp: TopicPartition, records: Sequence[SinkRecord]) -> tuple[bytes, int]:
        """Return the bytes of the first records, and how many they are.

        None at all if the first one makes no table itself.

        Raises:
            ConnectError: It does not, and errors are not tolerated.
        """
        kind, compression = self._parsed["format"], self._compression
        try:
            return encode(kind, records, compression), len(records)
        except DataError as error:
            failed, problem = len(records), error
        good, encoded = 0, b""
        while failed - good > 1:  # the most that make a table, by halves: the same ones whenever they are written
            middle = (good + failed) // 2
            try:
                encoded, good = encode(kind, records[:middle], compression), middle
            except DataError as error:
                failed, problem = middle, error
        if not good:
            self._refuse(tp, records[0], problem)
        return encoded, max(good, 1)

    def _refuse(self, tp: TopicPartition, record: SinkRecord, error: DataError) -> None:
        reporter = self.context.errant_record_reporter
        shown = f"the record at {tp.topic}-{tp.partition} offset {record.original_offset} cannot be written"
        if reporter is None:
            self._broken = ConnectError(f"{shown}: {error.message}", hint=error.hint)
            raise self._broken from error
        reporter.report(record, DataError(f"{shown}: {error.message}", hint=error.hint))

    def _put_object(self, tp: TopicPartition, one: _Open, data: bytes, count: int) -> None:
        import obstore

        first, last = (int(one.records[at].original_offset or 0) for at in (0, count - 1))
        path = f"{one.folder}/{ObjectName(tp, first, last).text(self._suffix)}".lstrip("/")
        try:
            obstore.put(self._store, path, data)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise _store_error(f"{self._url}/{path} cannot be written", error) from error
        self._next[tp] = last + 1

    def _check_log(self, topic: str) -> None:
        """Note the log that a topic's objects come from; the offsets in their names mean nothing in another one.

        Raises:
            ConnectError: They come from another log.
        """
        import obstore

        path, own = f"_penstock/{topic}.log", self.context.log_identity.encode()
        try:
            try:
                obstore.put(self._store, path, own, mode="create", use_multipart=False)
            except (FileExistsError, obstore.exceptions.AlreadyExistsError):
                stored_log = bytes(obstore.get(self._store, path).bytes())
                if stored_log != own:
                    raise ConnectError(
                        f"{self._url} has objects of a topic {topic} of another log",
                        hint=f"Choose another store.url; or, to continue there, remove those objects and {path}.",
                    ) from None
        except (OSError, obstore.exceptions.BaseError) as error:
            raise _store_error(f"{self._url}/{path} cannot be written", error) from error

    def _written(self, tp: TopicPartition) -> int | None:
        """Return the last offset of a partition that is in the store."""
        import obstore

        folder, is_one = fixed_part(self._parsed["path.format"], tp)
        start = f"{tp.topic}+{tp.partition}+"
        last: int | None = None
        try:
            for page in obstore.list(self._store, prefix=folder or None):
                for entry in page:
                    inner = entry["path"].removeprefix(f"{folder}/")
                    if is_one and not inner.startswith(start):
                        continue
                    name = ObjectName.parse(entry["path"])
                    if name is not None and name.tp == tp:
                        last = name.last if last is None else max(last, name.last)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise _store_error(f"{self._url} cannot be listed", error) from error
        return last


class ObjectSinkConnector(AlikeTasksSink):
    """Records as Parquet, JSON lines or CSV in S3, Google Cloud Storage, Azure or a folder, each record once.

    An object holds records of one partition, of one schema, without gaps, and its name says which:
    ``hits/partition=0/hits+0+00000000000000000000-00000000000000009999.parquet``. A task that starts reads the names
    and continues after the newest object. Objects become visible as a whole. They are closed by the number, size, time
    and schema of records, so records that are read again make the same objects. Only ``rotate.schedule.interval.ms``
    follows the clock: with -1, objects never overlap, even if a worker that was cut off still writes.
    """

    java_class: ClassVar[str] = "ObjectSink"
    task_class: ClassVar[type[SinkTask]] = ObjectSinkTask
    config: ClassVar[ConfigDef] = CONFIG
    model: ClassVar[Model] = OBJECT_MODEL

    def contradictions(self, parsed: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        if parsed["format"] != "parquet" and parsed["compression"] not in ("", "none", "gzip"):
            yield "compression", f"format={parsed['format']} has none or gzip"


def _open_store(url: str, options: Sequence[str]) -> Any:
    import obstore.store

    from penstock.state.segments.object_storage import new_object_store, object_store

    scheme = urlsplit(url).scheme
    if scheme == "file":
        folder = Path(unquote(urlsplit(url).path))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConnectError(f"{folder} cannot be made: {error.strerror}", hint="Correct store.url.") from error
        return obstore.store.LocalStore(folder)
    if scheme == "memory":
        return object_store(url, ())
    store_options: dict[str, Any] = dict(named_values(options))
    if str(store_options.get("endpoint", "")).startswith("http://"):
        store_options["client_options"] = {"allow_http": True}
    try:
        return new_object_store(url, **store_options)
    except (ValueError, TypeError, obstore.exceptions.BaseError) as error:
        raise ConnectError(
            f"{url} cannot be opened: {str(error).splitlines()[0]}", hint="Correct store.url and store.options."
        ) from error


def _store_error(what: str, error: Exception) -> ConnectError:
    """Return the error of a store: one that no repetition heals, or one that may pass."""
    import obstore.exceptions as errors

    first = str(error).strip().splitlines()[0]
    final = (errors.PermissionDeniedError, errors.UnauthenticatedError, errors.NotSupportedError, PermissionError)
    if isinstance(error, final):
        return ConnectError(f"{what}: {first}", hint="Check the credentials and what they may do in this place.")
    if isinstance(error, FileNotFoundError | errors.NotFoundError):
        return ConnectError(f"{what}: {first}", hint="Create the bucket, or correct store.url.")
    return RetriableError(f"{what}: {first}")
