"""Keys as Java serializes them: an array of numbers and texts, in hexadecimal digits, which Debezium's offsets have."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from penstock.connect.data import DataError

__all__ = ["key_of_hex", "key_to_hex"]

_HEAD = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _ARRAY, _END = b"p", b"q", b"r", b"s", b"t", b"u", b"x"
_FIRST_HANDLE = 0x7E0000
_NUMBER = ("java.lang.Number", 0x86AC951D0B94E08B)
_CLASSES = {
    "i": ("java.lang.Integer", 0x12E2A0A4F7818738, "I", ">i"),
    "q": ("java.lang.Long", 0x3B8BE490CC8F23DF, "J", ">q"),
}
_OBJECTS = ("[Ljava.lang.Object;", 0x90CE589F1073296C)
_INT_TYPES, _LONG_TYPES = ("int2", "int4"), ("int8", "oid")


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

    def _class(self, name: str, version: int, field: str, parent: bytes | None) -> bytes:
        data = _CLASS + _text(name) + version.to_bytes(8, "big") + b"\x02"
        self._handle(name)
        data += b"\x00\x01" + field.encode() + _text("value") if field else b"\x00\x00"
        return data + _END + (self._number() if parent is None else parent)

    def _number(self) -> bytes:
        if _NUMBER[0] in self._handles:
            return self._reference(_NUMBER[0])
        return self._class(*_NUMBER, "", _NULL)

    def array(self, types: Sequence[str], values: Sequence[str]) -> bytes:
        data = _HEAD + _ARRAY + self._class(*_OBJECTS, "", _NULL)
        self._handle()
        data += len(values).to_bytes(4, "big")
        for kind, value in zip(types, values, strict=True):
            data += self._value(kind, value)
        return data

    def _value(self, kind: str, value: str) -> bytes:
        letter = "i" if kind in _INT_TYPES else "q" if kind in _LONG_TYPES else None
        if letter is None:
            if f"text {value}" in self._handles:
                return self._reference(f"text {value}")
            self._handle(f"text {value}")
            return _STRING + _text(value)
        name, version, field, form = _CLASSES[letter]
        head = self._reference(name) if name in self._handles else self._class(name, version, field, None)
        self._handle()
        return _OBJECT + head + struct.pack(form, int(value))


def key_to_hex(types: Sequence[str], values: Sequence[str] | None) -> str:
    """Return a key of columns of these types, given as texts; None: there is no key yet.

    >>> key_to_hex((), None)
    'aced000570'
    >>> key_to_hex(["int4"], ["2"])[-8:]
    '00000002'
    """
    if values is None:
        return (_HEAD + _NULL).hex()
    return _Writer().array(types, values).hex()


def key_of_hex(text: str) -> list[str] | None:
    """Return the texts of a key.

    Raises:
        DataError: It is no key that `key_to_hex` writes.

    >>> key_of_hex(key_to_hex(["int4", "text", "int8", "int4", "int8"], ["-2", "é", "5", "7", "9"]))
    ['-2', 'é', '5', '7', '9']
    """
    try:
        return _Reader(bytes.fromhex(text)).array()
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
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

    def _text(self) -> str:
        return self._take(int.from_bytes(self._take(2), "big")).decode()

    def array(self) -> list[str] | None:
        if self._take(4) != _HEAD:
            raise ValueError("it is not serialized by Java")
        letter = self._take(1)
        if letter == _NULL:
            return None
        if letter != _ARRAY:
            raise ValueError("it is no array")
        self._class()
        self._handles.append("")
        count = int.from_bytes(self._take(4), "big")
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
            self._take(1)
            self._text()
        if self._take(1) != _END:
            raise ValueError("a class has no end")
        self._class()
        return name

    def _referenced(self) -> str:
        return self._handles[int.from_bytes(self._take(4), "big") - _FIRST_HANDLE]

    def _value(self) -> str:
        letter = self._take(1)
        if letter == _STRING:
            text = self._text()
            self._handles.append(text)
            return text
        if letter == _REFERENCE:
            return self._referenced()
        if letter != _OBJECT:
            raise ValueError("it has an element that is neither a number nor a text")
        name = self._class()
        self._handles.append("")
        form = next((form for known, _, _, form in _CLASSES.values() if known == name), None)
        if form is None:
            raise ValueError(f"it has an element of the class {name}")
        return str(struct.unpack(form, self._take(struct.calcsize(form)))[0])
