"""Keys as Java serializes them: an array of values, in hexadecimal digits, which Debezium's offsets have."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from penstock.connect.data import DataError
from penstock.serde.data.logical import scaled_decimal, unscaled

__all__ = ["key_of_hex", "key_to_hex"]

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
        for field in java.fields:
            letter, name, *kind = field.split(" ")
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
