"""Signals, and the incremental snapshots that they ask for: rows that are read while the stream goes on.

A chunk of rows is read between two rows that are written to the table of signals, ``snapshot-window-open`` and
``snapshot-window-close``. Rows whose changes come between the two are left out: the change is newer.

Keys as Java serializes them: an array of values, in hexadecimal digits, which Debezium's offsets have.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.base.log_lines import own_logger
from penstock.connect.connectors.postgres.captured_tables import Capture
from penstock.connect.connectors.postgres.server import Server
from penstock.connect.connectors.postgres.tables import Event, TableForm, TableRow
from penstock.connect.data import DataError, Struct
from penstock.errors import ConnectError
from penstock.serde.data.logical import scaled_decimal, unscaled

__all__ = ["IncrementalSnapshots", "Progress", "row_offset"]

_HEAD = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _ARRAY = b"p", b"q", b"r", b"s", b"t", b"u"
_BLOCK, _END = b"w", b"x"
_PLAIN, _WRITES = 2, 3  # a class whose fields are written alone, and one that writes more itself
_FIRST_HANDLE = 0x7E0000
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class _Class:
    """A class of Java, as its streams describe it.

    Attributes:
        name: Its name.
        version: Its ``serialVersionUID``.
        fields: Its fields, each a letter of its type and a name; ``L`` and ``[`` with the type behind a space.
        parent: The class above it that is serialized too.
        flags: How it is written.
    """

    name: str
    version: int
    fields: tuple[str, ...] = ()
    parent: _Class | None = None
    flags: int = _PLAIN


_OBJECTS = _Class("[Ljava.lang.Object;", 0x90CE589F1073296C)
_BYTES = _Class("[B", 0xACF317F8060854E0)
_NUMBER = _Class("java.lang.Number", 0x86AC951D0B94E08B)
_DATE = _Class(
    "java.sql.Date",
    0x14FA46683F356697,
    parent=_Class("java.util.Date", 0x686A81014B597419, flags=_WRITES),
)
_INTEGER = _Class(
    "java.math.BigInteger",
    0x8CFC9F1FA93BFB1D,
    ("I bitCount", "I bitLength", "I firstNonzeroByteNum", "I lowestSetBit", "I signum", "[ magnitude [B"),
    _NUMBER,
    _WRITES,
)
_DECIMAL = _Class(
    "java.math.BigDecimal", 0x54C71557F981284F, ("I scale", "L intVal Ljava/math/BigInteger;"), _NUMBER, _WRITES
)


@dataclass(frozen=True, slots=True)
class _Form:
    """How the values of some types are written: an object of numbers alone.

    Attributes:
        java: Its class.
        form: The numbers, as in `struct`.
        write: The numbers of a text.
        read: The text of the numbers.
    """

    java: _Class
    form: str
    write: Callable[[str], tuple[float | int | bool, ...]]
    read: Callable[..., str]


def _uuid_parts(text: str) -> tuple[int, int]:
    number = uuid.UUID(text).int
    return number & (1 << 64) - 1, number >> 64


def _boxed(name: str, version: int, letter: str) -> _Class:
    return _Class(f"java.lang.{name}", version, (f"{letter} value",), _NUMBER)


def _one_int(text: str) -> tuple[int]:
    return (int(text),)


def _one_float(text: str) -> tuple[float]:
    return (float(text),)


_FORMS = {
    "int4": _Form(_boxed("Integer", 0x12E2A0A4F7818738, "I"), ">i", _one_int, str),
    "int8": _Form(_boxed("Long", 0x3B8BE490CC8F23DF, "J"), ">q", _one_int, str),
    "float4": _Form(_boxed("Float", 0xDAEDC9A2DB3CF0EC, "F"), ">f", _one_float, repr),
    "float8": _Form(_boxed("Double", 0x80B3C24A296BFB04, "D"), ">d", _one_float, repr),
    "bool": _Form(
        _Class("java.lang.Boolean", 0xCD207280D59CFAEE, ("Z value",)),
        ">?",
        lambda text: (text == "t",),
        lambda value: "t" if value else "f",
    ),
    "uuid": _Form(
        _Class("java.util.UUID", 0xBC9903F7986D852F, ("J leastSigBits", "J mostSigBits")),
        ">QQ",
        _uuid_parts,
        lambda low, high: str(uuid.UUID(int=high << 64 | low)),
    ),
}
_FORMS |= {"int2": _FORMS["int4"], "oid": _FORMS["int8"]}


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


class _Writer:
    """Writes one array."""

    def __init__(self) -> None:
        self._handles: dict[str, int] = {}
        self._next = _FIRST_HANDLE

    def _handle(self, name: str | None = None) -> None:
        if name is not None:
            self._handles[name] = self._next
        self._next += 1

    def _reference(self, name: str) -> bytes:
        return _REFERENCE + self._handles[name].to_bytes(4, "big")

    def _class(self, java: _Class | None) -> bytes:
        if java is None:
            return _NULL
        if java.name in self._handles:
            return self._reference(java.name)
        data = _CLASS + _text(java.name) + java.version.to_bytes(8, "big") + bytes([java.flags])
        self._handle(java.name)
        data += len(java.fields).to_bytes(2, "big")
        for each_field in java.fields:
            letter, name, *kind = each_field.split(" ")
            data += letter.encode() + _text(name)
            for each in kind:
                data += self._string(each, f"type {each}")
        return data + _END + self._class(java.parent)

    def _string(self, text: str, name: str) -> bytes:
        if name in self._handles:
            return self._reference(name)
        self._handle(name)
        return _STRING + _text(text)

    def array(self, types: Sequence[str], values: Sequence[str]) -> bytes:
        data = _HEAD + _ARRAY + self._class(_OBJECTS)
        self._handle()
        data += len(values).to_bytes(4, "big")
        for kind, value in zip(types, values, strict=True):
            data += self._value(kind, value)
        return data

    def _value(self, kind: str, value: str) -> bytes:
        form = _FORMS.get(kind)
        if form is not None:
            return self._object(form.java) + struct.pack(form.form, *form.write(value))
        match kind:
            case "bytea":
                return self._bytes(bytes.fromhex(value.removeprefix("\\x")))
            case "date":
                days = (date.fromisoformat(value) - _EPOCH).days
                return self._object(_DATE) + _BLOCK + b"\x08" + struct.pack(">q", days * _DAY_MS) + _END
            case "numeric":
                number, scale = unscaled(Decimal(value))
                data = self._object(_DECIMAL) + struct.pack(">i", scale) + self._object(_INTEGER)
                sign = (number > 0) - (number < 0)
                size = (abs(number).bit_length() + 7) // 8
                data += struct.pack(">iiiii", -1, -1, -2, -2, sign)
                return data + self._bytes(abs(number).to_bytes(size, "big")) + _END + _END
        return self._string(value, f"text {value}")

    def _object(self, java: _Class) -> bytes:
        data = _OBJECT + self._class(java)
        self._handle()
        return data

    def _bytes(self, content: bytes) -> bytes:
        data = _ARRAY + self._class(_BYTES)
        self._handle()
        return data + len(content).to_bytes(4, "big") + content


def key_to_hex(types: Sequence[str], values: Sequence[str] | None) -> str:
    """Return a key of columns of these types, given as texts; None: there is no key yet.

    >>> key_to_hex((), None)
    'aced000570'
    >>> key_to_hex(["int4"], ["2"])[-8:]
    '00000002'
    """
    if values is None:
        return (_HEAD + _NULL).hex()
    try:
        return _Writer().array(types, values).hex()
    except (ValueError, struct.error, DataError):  # such as a date before the year 1 or behind 9999, or NaN
        return _Writer().array(["text"] * len(values), values).hex()


def key_of_hex(text: str) -> list[str] | None:
    r"""Return the texts of a key.

    Raises:
        DataError: It is no key that `key_to_hex` writes.

    >>> key_of_hex(key_to_hex(["int4", "text", "int8", "int4", "int8"], ["-2", "é", "5", "7", "9"]))
    ['-2', 'é', '5', '7', '9']
    >>> key_of_hex(key_to_hex(["numeric", "bytea", "numeric", "bool"], ["-1.50", r"\x00ff", "0", "t"]))
    ['-1.50', '\\x00ff', '0', 't']
    >>> key_of_hex(key_to_hex(["numeric", "date"], ["NaN", "infinity"]))
    ['NaN', 'infinity']
    """
    try:
        return _Reader(bytes.fromhex(text)).array()
    except (ValueError, IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise DataError(
            f"the key {text[:100]} of an incremental snapshot cannot be read: {error}",
            hint="Reset the connector's offsets, and ask for the snapshot again.",
        ) from error


class _Reader:
    """Reads one array."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        self._handles: list[str] = []

    def _take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise ValueError("it is cut short")
        self._at += count
        return self._data[self._at - count : self._at]

    def _expect(self, part: bytes, sentence: str) -> None:
        if self._take(len(part)) != part:
            raise ValueError(sentence)

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "big")

    def _text(self) -> str:
        return self._take(int.from_bytes(self._take(2), "big")).decode()

    def array(self) -> list[str] | None:
        self._expect(_HEAD, "it is not serialized by Java")
        letter = self._take(1)
        if letter == _NULL:
            return None
        if letter != _ARRAY:
            raise ValueError("it is no array")
        self._class()
        self._handles.append("")
        count = self._number()
        return [self._value() for _ in range(min(count, len(self._data)))]

    def _class(self) -> str:
        letter = self._take(1)
        if letter == _NULL:
            return ""
        if letter == _REFERENCE:
            return self._referenced()
        if letter != _CLASS:
            raise ValueError("it has no class where one is expected")
        name = self._text()
        self._take(8)
        self._take(1)
        self._handles.append(name)
        for _ in range(int.from_bytes(self._take(2), "big")):
            kind = self._take(1)
            self._text()
            if kind in b"L[":
                self._string(self._take(1))
        self._expect(_END, "a class has no end")
        self._class()
        return name

    def _referenced(self) -> str:
        return self._handles[self._number() - _FIRST_HANDLE]

    def _string(self, letter: bytes) -> str:
        if letter == _REFERENCE:
            return self._referenced()
        if letter != _STRING:
            raise ValueError("it has no text where one is expected")
        text = self._text()
        self._handles.append(text)
        return text

    def _value(self) -> str:
        letter = self._take(1)
        if letter == _ARRAY:
            return "\\x" + self._bytes().hex()
        if letter != _OBJECT:
            return self._string(letter)
        name = self._class()
        self._handles.append("")
        form = next((form for form in _FORMS.values() if form.java.name == name), None)
        if form is not None:
            return form.read(*struct.unpack(form.form, self._take(struct.calcsize(form.form))))
        if name == _DATE.name:
            self._expect(_BLOCK + b"\x08", "a date has no number")
            (millis,) = struct.unpack(">q", self._take(8))
            self._expect(_END, "a date has no end")
            return (_EPOCH + timedelta(days=millis // _DAY_MS)).isoformat()
        if name == _DECIMAL.name:
            return self._decimal()
        raise ValueError(f"it has an element of the class {name}")

    def _decimal(self) -> str:
        (scale,) = struct.unpack(">i", self._take(4))
        self._expect(_OBJECT, "a number has no digits")
        self._class()
        self._handles.append("")
        sign = struct.unpack(">iiiii", self._take(20))[-1]
        self._expect(_ARRAY, "a number has no digits")
        number = int.from_bytes(self._bytes(), "big")
        self._expect(_END + _END, "a number has no end")
        return f"{scaled_decimal(sign * number, scale):f}"

    def _bytes(self) -> bytes:
        self._class()
        self._handles.append("")
        return self._take(self._number())


_LOG = own_logger(__name__)
_PREFIX = "incremental_snapshot"


def row_offset(*, has_snapshot: bool) -> Mapping[str, Any]:
    """Return what the offset of a row has, with whether this run of the connector began with a whole snapshot."""
    return {"snapshot": "INCREMENTAL", "snapshot_completed": has_snapshot, "last_snapshot_record": has_snapshot}


@dataclass(frozen=True, slots=True)
class _Collection:
    """A table that is to be read.

    Attributes:
        name: Its schema and name.
        condition: Which of its rows.
        surrogate: The column by which chunks are cut, in place of the key.
    """

    name: tuple[str, str]
    condition: str | None = None
    surrogate: str | None = None

    def stored(self) -> dict[str, Any]:
        """Return the form in offsets."""
        return {
            f"{_PREFIX}_collections_id": ".".join(self.name),
            f"{_PREFIX}_collections_additional_condition": self.condition,
            f"{_PREFIX}_collections_surrogate_key": self.surrogate,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> _Collection:
        """Return the table of a stored form."""
        schema, _, table = str(stored[f"{_PREFIX}_collections_id"]).rpartition(".")
        return cls(
            (schema, table),
            stored.get(f"{_PREFIX}_collections_additional_condition"),
            stored.get(f"{_PREFIX}_collections_surrogate_key"),
        )


@dataclass(frozen=True, slots=True)
class _Reading:
    """The table that is being read: its form, the columns of its chunks, and their types."""

    form: TableForm
    columns: tuple[str, ...]
    types: tuple[str, ...]
    maximum: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Progress:
    """What there is to notify of: ``STARTED``, ``PAUSED``, ``ABORTED``, ``TABLE_SCAN_COMPLETED`` and so on."""

    kind: str
    facts: Mapping[str, str] = field(default_factory=dict)


class IncrementalSnapshots:
    """The signals of a connector, and its incremental snapshots.

    Args:
        capture: What is captured.
        server: The server.
        on_unreadable: Called with the error of a row that cannot be read, which is left out unless it is raised.
    """

    def __init__(self, capture: Capture, server: Server, on_unreadable: Callable[[DataError], None]) -> None:
        self._capture, self._server, self._on_unreadable = capture, server, on_unreadable
        self._collections: list[_Collection] = []
        self._correlation: str | None = None
        self._reading: _Reading | None = None
        self._last: tuple[str, ...] | None = None
        self._chunk = ""
        self._rows: dict[str, tuple[tuple[str, ...], TableRow]] = {}
        self._is_open = self._is_paused = False
        self._to_stop: set[tuple[str, str]] | None = None  # the tables to leave out from the next chunk on
        self._needs_chunk = False
        self._signals: tuple[str, str] | None = None
        self._restored: dict[str, Any] = {}  # what is stored until the next chunk is read

    # What is stored

    def stored(self) -> dict[str, Any]:
        """Return what offsets have of a snapshot that goes on."""
        if not self._collections:
            return {}
        reading = self._reading
        if self._restored and reading is None:
            return self._restored
        types: tuple[str, ...] = () if reading is None else reading.types
        collections = [each.stored() for each in self._collections]
        return {
            f"{_PREFIX}_collections": json.dumps(collections, separators=(",", ":"), ensure_ascii=False),
            f"{_PREFIX}_correlation_id": self._correlation,
            f"{_PREFIX}_maximum_key": key_to_hex(types, None if reading is None else reading.maximum),
            f"{_PREFIX}_primary_key": key_to_hex(types, self._last),
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on with the snapshot of a stored offset."""
        text = stored.get(f"{_PREFIX}_collections")
        if not text:
            return
        self._collections = [_Collection.of(each) for each in json.loads(text)]
        self._correlation = stored.get(f"{_PREFIX}_correlation_id")
        last = key_of_hex(str(stored.get(f"{_PREFIX}_primary_key") or key_to_hex((), None)))
        self._last = None if last is None else tuple(last)
        self._needs_chunk = True
        self._restored = {name: value for name, value in stored.items() if name.startswith(_PREFIX)}

    # Signals

    def is_signal_table(self, name: tuple[str, str]) -> bool:
        """Return whether a table is one of signals."""
        return self._capture.is_signal_table(name)

    def signalled(self, form: TableForm, row: TableRow) -> Iterator[tuple[TableForm, Event] | Progress]:
        """Take a row of the table of signals; yield the rows of a snapshot that come out before it, and progress."""
        values = [None if each is None else str(each) for each in row.values.all_raw()[:3]]
        if len(values) < 3 or values[0] is None or values[1] is None:
            _LOG.warning("a signal in %s has not the columns id, type and data", ".".join(form.name))
            return
        self._signals = form.name
        identity, kind, text = values[0], values[1], values[2] or ""
        if kind == "snapshot-window-open":
            if self._chunk and identity == f"{self._chunk}-open":
                self._is_open = True
        elif kind == "snapshot-window-close":
            if self._chunk and identity == f"{self._chunk}-close":
                yield from self._closed()
        else:
            yield from self._obey(identity, kind, text)

    def _obey(self, identity: str, kind: str, text: str) -> Iterator[Progress]:
        try:
            data = _signal_data(text)
        except (ValueError, re.error) as error:
            _LOG.warning("the signal %s cannot be read: %s: %s", identity, error, text[:200])
            return
        match kind:
            case "log":
                message = str(data.get("message", ""))
                _LOG.warning("%s", message.replace("{}", json.dumps(self.stored(), ensure_ascii=False)))
            case "execute-snapshot":
                yield from self._execute(identity, data)
            case "stop-snapshot":
                self._stop(data)
            case "pause-snapshot":
                if self._collections and not self._is_paused:
                    self._is_paused = True
                    yield self._progress("PAUSED")
            case "resume-snapshot":
                if self._collections and self._is_paused:
                    self._is_paused = False
                    yield self._progress("RESUMED")
                    yield from self._next_chunk()
            case _:
                _LOG.warning("there is no signal %s (signal %s)", kind, identity)

    def _execute(self, identity: str, data: Mapping[str, Any]) -> Iterator[Progress]:
        if str(data.get("type", "incremental")).lower() != "incremental":
            _LOG.warning(
                "the signal %s asks for a snapshot of the type %s: only incremental ones", identity, data["type"]
            )
            return
        conditions = {
            str(each.get("data-collection", "")): str(each.get("filter", ""))
            for each in data.get("additional-conditions") or ()
        }
        surrogate = data.get("surrogate-key")
        names = sorted(name for name in self._server.tables() if self._capture.takes(*name))
        was_running = bool(self._collections)
        for pattern in data.get("data-collections") or ():
            matching = [name for name in names if re.fullmatch(str(pattern), ".".join(name), re.IGNORECASE)]
            schema, _, table = str(pattern).rpartition(".")
            for name in matching or [(schema, table)]:  # one that is not there has a window without rows
                full = ".".join(name)
                if not self._is_waiting(name):
                    condition = next((filt for table, filt in conditions.items() if _is_table(table, full)), None)
                    shown = f"({condition})" if condition else None
                    self._collections.append(_Collection(name, shown, surrogate))
        if not was_running and self._collections:
            self._correlation = identity
            yield self._progress("STARTED")
            yield from self._next_chunk()

    def _is_waiting(self, name: tuple[str, str]) -> bool:
        return any(each.name == name for each in self._collections)

    def _stop(self, data: Mapping[str, Any]) -> None:
        """Note which tables are to be left out; rows of the open window still come."""
        patterns = [str(each) for each in data.get("data-collections") or ()]
        names = {each.name for each in self._collections}
        if patterns:
            names = {
                name for name in names if any(re.fullmatch(each, ".".join(name), re.IGNORECASE) for each in patterns)
            }
        if self._collections:
            self._to_stop = names | (self._to_stop or set())

    def _stopped(self, names: Collection[tuple[str, str]]) -> Iterator[Progress]:
        """Leave tables out, that which is being read last."""
        current, *waiting = self._collections
        gone = [each for each in waiting if each.name in names]
        self._collections = [current, *(each for each in waiting if each not in gone)]
        if current.name in names:
            gone.append(current)
            self._end_table()
            if not self._collections:
                self._is_paused = False
                yield self._completed()
        yield Progress("ABORTED", {"data_collections": ",".join(".".join(each.name) for each in gone)})

    # Chunks

    def go_on(self) -> Iterator[Progress]:
        """Read the next chunk after a restart in the middle of a snapshot; yield progress."""
        if self._needs_chunk:
            yield from self._next_chunk()
            self._needs_chunk, self._restored = False, {}

    def seen(self, name: tuple[str, str], event: Event) -> None:
        """Leave out a row of the open window that a change of the stream has made old."""
        if self._is_open and self._reading is not None and self._reading.form.name == name and event.key is not None:
            self._rows.pop(_identity(event.key), None)

    def _closed(self) -> Iterator[tuple[TableForm, Event] | Progress]:
        reading = self._reading
        self._is_open = False
        if reading is not None:
            for key, row in list(self._rows.values()):
                self._last = key
                (event,) = reading.form.changed("r", None, row)
                yield reading.form, event
        if self._pending is not None:
            self._last = self._pending
        self._rows.clear()
        yield from self._next_chunk()

    _pending: tuple[str, ...] | None = None
    _count = 0  # the rows of the table that are read

    def _progress(self, kind: str, **more: str) -> Progress:
        tables = ",".join(".".join(each.name) for each in self._collections)
        return Progress(kind, {"data_collections": tables, **more})

    def _end_table(self) -> None:
        self._collections.pop(0)
        self._reading, self._last, self._count = None, None, 0

    def _completed(self) -> Progress:
        self._correlation = None
        return Progress("COMPLETED")

    def _next_chunk(self) -> Iterator[Progress]:
        """Read the next rows between the two rows of a window; of the next table, where one ends."""
        to_stop, self._to_stop = self._to_stop, None
        if to_stop is not None and self._collections:
            yield from self._stopped(to_stop)
        if self._is_paused or not self._collections:
            self._chunk = ""
            return
        self._chunk = str(uuid.uuid4())
        opened = _now()
        self._write("open", {"openWindowTimestamp": opened})
        self._rows, self._pending = {}, None
        while self._collections and not self._read():
            table = ".".join(self._collections[0].name)
            status = "UNKNOWN_SCHEMA" if self._reading is None else "SUCCEEDED" if self._count else "EMPTY"
            more = {"scanned_collection": table, "total_rows_scanned": str(self._count), "status": status}
            yield self._progress("TABLE_SCAN_COMPLETED", **more)
            self._end_table()
        if self._reading is not None and self._pending is not None:
            table = ".".join(self._collections[0].name)
            ends = {"last_processed_key": ",".join(self._pending), "maximum_key": ",".join(self._reading.maximum or ())}
            yield self._progress("IN_PROGRESS", current_collection_in_progress=table, **ends)
        if not self._collections:
            yield self._completed()
        self._write("close", {"openWindowTimestamp": opened, "closeWindowTimestamp": _now()})

    def _read(self) -> bool:
        """Return whether the first table has more rows, which are read."""
        collection = self._collections[0]
        if self._reading is None:
            self._reading = self._opened(collection)
        reading = self._reading
        if reading is None or reading.maximum is None:
            return False
        from psycopg import sql

        conditions: list[sql.Composable] = [_compared(reading, "<=", reading.maximum)]
        if self._last is not None:
            conditions.insert(0, _compared(reading, ">", self._last))
        if collection.condition:
            conditions.append(sql.SQL(collection.condition))
        relation = reading.form.relation
        names = [column.name for column in relation.columns]
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
            sql.SQL(", ").join(map(sql.Identifier, names)),
            sql.Identifier(*reading.form.name),
            sql.SQL(" AND ").join(conditions),
            sql.SQL(", ").join(map(sql.Identifier, reading.columns)),
            sql.Literal(self._capture.chunk_size),
        )
        places = [names.index(column) for column in reading.columns]
        for cells in self._server.copied(query):
            self._pending = key = tuple(str(cells[index]) for index in places)
            self._count += 1
            try:
                row = reading.form.row(cells)
            except DataError as error:
                self._on_unreadable(error)
                continue
            self._rows[_identity(row.key) if row.key is not None else repr(key)] = key, row
        return self._pending is not None

    def _opened(self, collection: _Collection) -> _Reading | None:
        table = self._server.relation(*collection.name) if self._capture.takes(*collection.name) else None
        if table is None:
            _LOG.warning("an incremental snapshot leaves out %s: no such table is captured", ".".join(collection.name))
            return None
        relation, facts = table
        form = TableForm(self._capture.tables, relation, self._capture.keyed(*collection.name, facts), is_snapshot=True)
        columns = (collection.surrogate,) if collection.surrogate else tuple(facts.key)
        if not columns or any(column not in facts.columns for column in columns):
            _LOG.warning(
                "the table %s has no key to cut chunks by: an incremental snapshot leaves it out; give surrogate-key",
                ".".join(collection.name),
            )
            return None
        types = tuple(facts.columns[column].type.name for column in columns)
        return _Reading(form, columns, types, self._maximum(collection, columns))

    def _maximum(self, collection: _Collection, columns: Sequence[str]) -> tuple[str, ...] | None:
        from psycopg import sql

        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        order = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(each)) for each in columns)
        condition = sql.SQL(f" WHERE {collection.condition}") if collection.condition else sql.SQL("")
        query = sql.SQL("SELECT {} FROM {}{} ORDER BY {} LIMIT 1").format(
            names, sql.Identifier(*collection.name), condition, order
        )
        for cells in self._server.copied(query):
            return tuple(str(each) for each in cells)
        return None

    def _write(self, what: str, data: Mapping[str, str]) -> None:
        """Write a row to the table of signals."""
        from psycopg import sql

        table = self._signals or self._capture.first_signal_table()
        if table is None:
            raise ConnectError("an incremental snapshot needs a table of signals", hint="Set signal.data.collection.")
        row = (f"{self._chunk}-{what}", f"snapshot-window-{what}", json.dumps(dict(data)))
        values = sql.SQL(", ").join(map(sql.Literal, row))  # not parameters: the name of the table may have a %
        self._server.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(*table), values))


def _signal_data(text: str) -> dict[str, Any]:
    """Return the data of a signal; raise ValueError or re.error if they do not say which tables it is about."""
    data = json.loads(text) if text.strip() else {}
    if not isinstance(data, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - of the text
    patterns, conditions = data.get("data-collections") or (), data.get("additional-conditions") or ()
    if not isinstance(patterns, (list, tuple)):
        raise ValueError("data-collections is no list")  # noqa: TRY004 - of the text
    if not isinstance(conditions, (list, tuple)) or not all(isinstance(each, dict) for each in conditions):
        raise ValueError("additional-conditions is no list of objects")
    for each in (*patterns, *(each.get("data-collection", "") for each in conditions)):
        re.compile(str(each))
    return data


def _is_table(pattern: str, name: str) -> bool:
    return bool(re.fullmatch(pattern, name, re.IGNORECASE)) or pattern == name


def _identity(key: Struct) -> str:
    return repr(key.all_raw())


def _compared(reading: _Reading, operator: str, key: Sequence[str]) -> Any:
    from psycopg import sql

    left = sql.SQL(", ").join(map(sql.Identifier, reading.columns))
    right = sql.SQL(", ").join(map(sql.Literal, key))  # without a type they have that of their column
    return sql.SQL(f"({{}}) {operator} ({{}})").format(left, right)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
