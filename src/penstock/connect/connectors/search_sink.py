"""The sink to OpenSearch and Elasticsearch: records as documents, by the bulk interface."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.connect.api import SinkTask
from penstock.connect.config import Check, ConfigDef, Importance, Kind, Model, OneOf, Password, Range, Setting, WebUrl
from penstock.connect.connectors.http import AGAIN, json_bytes, may_pass, plain
from penstock.connect.connectors.same_config_tasks import AlikeTasksSink
from penstock.connect.connectors.search_model import SEARCH_MODEL
from penstock.connect.data import DataError, RetriableError, SettingError, SinkRecord, Struct
from penstock.errors import ConnectError

__all__ = ["SearchSinkConnector", "SearchSinkTask"]

CONFLICT, NOT_FOUND, TOO_LARGE = 409, 404, 413
MOST_ID_BYTES = 512
MOST_INDEX_BYTES = 255
_NOT_IN_INDEX = re.compile(r"""[\\/*?"<>|\s,#:\x00-\x1f]""")


def index_name(text: str) -> str:
    """The name of an index for a topic, as Confluent's sink makes it: small letters, without a first - or _.

    >>> index_name("_Audit"), index_name("a" * 300) == "a" * 255
    ('audit', True)
    """
    return text.lower()[:MOST_INDEX_BYTES].lstrip("-_+")


def _problem_of_index(index: str) -> str | None:
    """Why the cluster would not take a name; None: it would."""
    if index in ("", ".", ".."):
        return "is not a name"
    found = _NOT_IN_INDEX.search(index)
    if found is not None:
        return f"has {found[0]!r}, which indices cannot have"
    size = len(index.encode("utf-8", "replace"))
    return f"has {size} bytes, more than {MOST_INDEX_BYTES}" if size > MOST_INDEX_BYTES else None


def _check_index(name: str, value: Any) -> None:
    problem = _problem_of_index(index_name(str(value).replace("${topic}", "t")))
    if problem is not None:
        raise SettingError.invalid(name, value, f"an index with this name {problem}")


CONFIG = ConfigDef(
    [
        Setting(
            name="connection.url",
            kind=Kind.LIST,
            rule=WebUrl(),
            importance=Importance.HIGH,
            doc="Nodes of the cluster, such as https://localhost:9200; the next one is used if one does not answer.",
        ),
        Setting(name="connection.username", kind=Kind.STRING, default="", doc="The user."),
        Setting(name="connection.password", kind=Kind.PASSWORD, default=Password(""), doc="The user's password."),
        Setting(
            name="authorization",
            kind=Kind.PASSWORD,
            default=Password(""),
            doc="The header Authorization, such as ApiKey.",
        ),
        Setting(
            name="index",
            kind=Kind.STRING,
            default="${topic}",
            rule=Check(_check_index, "name of an index"),
            doc="The index of a topic, in small letters and without a first - or _.",
        ),
        Setting(
            name="key.ignore",
            kind=Kind.BOOLEAN,
            default=False,
            importance=Importance.HIGH,
            doc="The id of a document is its record's place (topic+partition+offset), not its key.",
        ),
        Setting(
            name="write.method",
            kind=Kind.STRING,
            default="insert",
            rule=OneOf(("insert", "upsert")),
            doc="insert: a document replaces that of its id; upsert: its fields are merged into it.",
        ),
        Setting(
            name="behavior.on.null.values",
            kind=Kind.STRING,
            default="ignore",
            rule=OneOf(("ignore", "delete", "fail")),
            doc="What happens to records without value; delete removes the document of the key.",
        ),
        Setting(
            name="batch.size",
            kind=Kind.INT,
            default=2000,
            rule=Range(1),
            doc="The largest number of records in a request.",
        ),
        Setting(
            name="bulk.size.bytes",
            kind=Kind.LONG,
            default=5 << 20,
            rule=Range(1),
            doc="The largest size of a request in bytes.",
        ),
        Setting(
            name="connection.timeout.ms",
            kind=Kind.INT,
            default=30_000,
            rule=Range(1),
            doc="The longest time of a request.",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class _Action:
    record: SinkRecord
    lines: bytes
    versioned: bool


class SearchSinkTask(SinkTask):
    """A task: each batch is written when `put` returns."""

    java_class: ClassVar[str] = "io.confluent.connect.elasticsearch.ElasticsearchSinkTask"
    _client: Any = None

    def start(self, settings: Mapping[str, str]) -> None:
        import httpx

        self._parsed = parsed = CONFIG.parse(settings)
        headers = {"Content-Type": "application/x-ndjson"}
        if parsed["authorization"]:
            headers["Authorization"] = parsed["authorization"].secret
        user = parsed["connection.username"]
        auth = (user, parsed["connection.password"].secret) if user else None
        self._client = httpx.Client(headers=headers, auth=auth, timeout=parsed["connection.timeout.ms"] / 1000)
        self._urls = itertools.cycle([url.rstrip("/") for url in parsed["connection.url"]])
        self._url = next(self._urls)

    def put(self, records: Sequence[SinkRecord]) -> None:
        actions = [action for record in records if (action := self._action(record)) is not None]
        for batch in self._batches(actions):
            self._send(batch)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    def _action(self, record: SinkRecord) -> _Action | None:
        parsed = self._parsed
        index = self._index(record)
        by_key = not parsed["key.ignore"]
        meta: dict[str, Any] = {"_index": index, "_id": self._id(record)}
        if by_key and parsed["write.method"] == "insert":  # what comes again, or late, does not replace what is newer
            meta |= {"version": record.original_offset, "version_type": "external"}
        if record.value is None:
            match parsed["behavior.on.null.values"]:
                case "fail":
                    raise DataError(f"the record at {_place(record)} has no value")
                case "delete" if by_key:
                    return _Action(record, _line({"delete": meta}), "version" in meta)
            return None
        try:
            document = json.loads(json_bytes(record.value)) if record.value is not None else None
        except DataError as error:
            raise DataError(f"the value at {_place(record)}: {error.message}") from error
        if not isinstance(document, dict):
            raise DataError(
                f"the value at {_place(record)} is not a document, but {type(record.value).__name__}",
                hint="Put it into a field, for example by the transformation HoistField.",
            )
        if parsed["write.method"] == "upsert":
            return _Action(record, _line({"update": meta}) + _line({"doc": document, "doc_as_upsert": True}), False)  # noqa: FBT003
        return _Action(record, _line({"index": meta}) + _line(document), "version" in meta)

    def _index(self, record: SinkRecord) -> str:
        index = index_name(self._parsed["index"].replace("${topic}", str(record.topic)))
        problem = _problem_of_index(index)
        if problem is not None:
            raise DataError(
                f"the record at {_place(record)} has no index: {index!r} {problem}",
                hint="Set index, or give the topic another name by the transformation RegexRouter.",
            )
        return index

    def _id(self, record: SinkRecord) -> str:
        found = self._id_of(record)
        if not 0 < len(found.encode("utf-8", "replace")) <= MOST_ID_BYTES:
            raise DataError(
                f"the key at {_place(record)} cannot be the id of a document: it has {len(found):,} characters",
                hint=f"Ids have 1 to {MOST_ID_BYTES} bytes: set key.ignore=true, or take another field as key.",
            )
        return found

    def _id_of(self, record: SinkRecord) -> str:
        if self._parsed["key.ignore"]:
            return f"{record.original_topic}+{record.original_partition}+{record.original_offset}"
        key = record.key
        if isinstance(key, str | int | float):
            return str(key)
        if key is None or isinstance(key, Struct | dict | list):
            raise DataError(
                f"the key at {_place(record)} cannot be the id of a document: {type(key).__name__}",
                hint="Set key.ignore=true, or take a field as key by the transformations ValueToKey and ExtractField.",
            )
        return str(plain(key))

    def _batches(self, actions: Sequence[_Action]) -> Iterator[list[_Action]]:
        batch: list[_Action] = []
        size = 0
        for action in actions:
            full = (
                len(batch) >= self._parsed["batch.size"] or size + len(action.lines) > self._parsed["bulk.size.bytes"]
            )
            if batch and full:
                yield batch
                batch, size = [], 0
            batch.append(action)
            size += len(action.lines)
        if batch:
            yield batch

    def _send(self, batch: Sequence[_Action]) -> None:
        """Send a batch; what the cluster is too busy for comes again, what it refuses is reported."""
        answer = self._ask(b"".join(action.lines for action in batch))
        if answer.get("too large"):
            self._send_less(batch)
            return
        items = answer.get("items")
        if not isinstance(items, list) or len(items) != len(batch):
            raise ConnectError(
                f"{self._url} does not answer as a bulk interface does", hint="Is connection.url a search cluster's?"
            )
        busy = 0
        for action, item in zip(batch, items, strict=True):
            result: Mapping[str, Any] = next(iter(item.values()))
            status = int(result.get("status", 500))
            if status in AGAIN or status >= 500:
                busy += 1
            elif not self._is_done(action, status):
                self._refused(action.record, result)
        if busy:
            raise RetriableError(f"{self._url} is too busy for {busy} of {len(batch)} documents")

    def _send_less(self, batch: Sequence[_Action]) -> None:
        """Send a batch that is too large for the cluster by halves; one record that is too large is refused."""
        if len(batch) == 1:
            self._refused(batch[0].record, {"status": TOO_LARGE, "error": "it is larger than the cluster's limit"})
            return
        middle = len(batch) // 2
        self._send(batch[:middle])
        self._send(batch[middle:])

    @staticmethod
    def _is_done(action: _Action, status: int) -> bool:
        if status < 300:
            return True
        if status == CONFLICT:
            return action.versioned  # the same record or a newer one was there first
        return status == NOT_FOUND and action.record.value is None

    def _refused(self, record: SinkRecord, result: Mapping[str, Any]) -> None:
        found = result.get("error") or {}
        cause = found.get("caused_by") or {} if isinstance(found, dict) else {}
        reason = cause.get("reason") or found.get("reason") if isinstance(found, dict) else found
        error = DataError(
            f"the document of {_place(record)} is refused: {reason} ({result.get('status')})",
            hint="Correct the record or the mapping of the index, or send such records to a dead letter queue.",
        )
        reporter = self.context.errant_record_reporter
        if reporter is None:
            raise error
        reporter.report(record, error)

    def _ask(self, body: bytes) -> dict[str, Any]:
        import httpx

        try:
            answer = self._client.post(f"{self._url}/_bulk", content=body)
        except httpx.TransportError as error:
            away, self._url = self._url, next(self._urls)
            raise RetriableError(f"{away} cannot be reached: {error}") from error
        if may_pass(answer):
            away, self._url = self._url, next(self._urls)
            raise RetriableError(f"{away} answers {answer.status_code}")
        if answer.status_code == TOO_LARGE:
            return {"too large": True}
        if not answer.is_success:
            raise ConnectError(
                f"{self._url} answers {answer.status_code}: {answer.text[:200]}",
                hint="Check connection.username, connection.password and the user's rights to the index.",
            )
        try:
            found = answer.json()
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}


class SearchSinkConnector(AlikeTasksSink):
    """Records as documents of OpenSearch or Elasticsearch, under the names of Confluent's sink to the latter.

    Documents have the record's key as id and its offset as external version, so what is written again, or late, does
    not replace what is newer: the index ends with the last record of each key. With ``key.ignore=true`` each record is
    a document. Documents that the cluster refuses go to the dead letter queue, or fail the task; what it is too busy
    for comes again. A topic that was deleted and made again begins with small offsets: then write to another index.
    """

    java_class: ClassVar[str] = "io.confluent.connect.elasticsearch.ElasticsearchSinkConnector"
    config: ClassVar[ConfigDef] = CONFIG
    model: ClassVar[Model] = SEARCH_MODEL
    experimental: ClassVar[bool] = True
    task_class: ClassVar[type[SinkTask]] = SearchSinkTask


def _line(value: Any) -> bytes:
    return json_bytes(value) + b"\n"


def _place(record: SinkRecord) -> str:
    return f"{record.original_topic}-{record.original_partition}, offset {record.original_offset}"
