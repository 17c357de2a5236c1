"""Functions between bytes, text in an encoding, and numbers."""

from __future__ import annotations

import base64
import struct

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["BYTES_FUNCTIONS"]

BYTES_FUNCTIONS = Family("bytes")
ORDERS = {"BIG_ENDIAN": "big", "LITTLE_ENDIAN": "little"}


def _decoded(text: str, encoding: str) -> bytes:
    match encoding.lower():
        case "hex":
            return bytes.fromhex(_plain_hex(text))
        case "utf8":
            return text.encode("utf-8", "surrogatepass")
        case "ascii":
            return text.encode("ascii", "replace")
        case "base64":
            return base64.b64decode(text, validate=True)
    raise SqlValueError(f"{encoding!r} is not an encoding: use hex, utf8, ascii or base64")


def _plain_hex(text: str) -> str:
    """Hexadecimal digits out of ``0x4a``, ``x'4a'`` or ``4a``; an odd number gets a leading zero."""
    lowered = text.lower()
    if lowered.startswith("0x"):
        text = text[2:]
    elif lowered.startswith("x'") and lowered.endswith("'"):
        text = text[2:-1]
    if " " in text:
        raise SqlValueError(f"{text!r} is not hexadecimal")
    return text if len(text) % 2 == 0 else f"0{text}"


def _encoded(data: bytes, encoding: str) -> str:
    match encoding.lower():
        case "hex":
            return data.hex()
        case "utf8":
            return data.decode("utf-8", "replace")
        case "ascii":
            return "".join(chr(byte) if byte < 128 else "\ufffd" for byte in data)
        case "base64":
            return base64.b64encode(data).decode()
    raise SqlValueError(f"{encoding!r} is not an encoding: use hex, utf8, ascii or base64")


@BYTES_FUNCTIONS.scalar(
    "TO_BYTES(text STRING, encoding STRING) BYTES", examples=[("FROM_BYTES(TO_BYTES('4a4B', 'hex'), 'utf8')", "'JK'")]
)
def to_bytes(text: str, encoding: str) -> bytes:
    """Bytes out of text in an encoding: hex, utf8, ascii or base64."""
    return _decoded(text, encoding)


@BYTES_FUNCTIONS.scalar(
    "FROM_BYTES(data BYTES, encoding STRING) STRING", examples=[("FROM_BYTES(TO_BYTES('é', 'utf8'), 'hex')", "'c3a9'")]
)
def from_bytes(data: bytes, encoding: str) -> str:
    """Bytes as text in an encoding: hex, utf8, ascii or base64."""
    return _encoded(data, encoding)


@BYTES_FUNCTIONS.scalar(
    "ENCODE(text STRING, input STRING, output STRING) STRING", examples=[("ENCODE('JK', 'utf8', 'hex')", "'4a4b'")]
)
def encode(text: str, input_: str, output: str) -> str:
    """A text in another encoding: hex, utf8, ascii or base64."""
    return _encoded(_decoded(text, input_), output)


def _ordered(data: bytes, order: str, size: int) -> bytes:
    found = ORDERS.get(order.upper())
    if found is None:
        raise SqlValueError(f"{order!r} is not a byte order: use BIG_ENDIAN or LITTLE_ENDIAN")
    if len(data) != size:
        raise SqlValueError(f"a number of {size} bytes is needed, not of {len(data)}")
    return data if found == "big" else data[::-1]


@BYTES_FUNCTIONS.scalar(
    "INT_FROM_BYTES(data BYTES) INTEGER",
    "INT_FROM_BYTES(data BYTES, order STRING) INTEGER",
    examples=[("INT_FROM_BYTES(TO_BYTES('00000102', 'hex'))", "258")],
)
def int_from_bytes(data: bytes, order: str = "BIG_ENDIAN") -> int:
    """The whole number in four bytes, ``BIG_ENDIAN`` unless the order is given."""
    return int.from_bytes(_ordered(data, order, 4), "big", signed=True)


@BYTES_FUNCTIONS.scalar(
    "BIGINT_FROM_BYTES(data BYTES) BIGINT",
    "BIGINT_FROM_BYTES(data BYTES, order STRING) BIGINT",
    examples=[("BIGINT_FROM_BYTES(TO_BYTES('0201000000000000', 'hex'), 'LITTLE_ENDIAN')", "258")],
)
def bigint_from_bytes(data: bytes, order: str = "BIG_ENDIAN") -> int:
    """The whole number in eight bytes, ``BIG_ENDIAN`` unless the order is given."""
    return int.from_bytes(_ordered(data, order, 8), "big", signed=True)


@BYTES_FUNCTIONS.scalar(
    "DOUBLE_FROM_BYTES(data BYTES) DOUBLE",
    "DOUBLE_FROM_BYTES(data BYTES, order STRING) DOUBLE",
    examples=[("DOUBLE_FROM_BYTES(TO_BYTES('3ff8000000000000', 'hex'))", "1.5E0")],
)
def double_from_bytes(data: bytes, order: str = "BIG_ENDIAN") -> float:
    """The double in eight bytes, ``BIG_ENDIAN`` unless the order is given."""
    found: float = struct.unpack(">d", _ordered(data, order, 8))[0]
    return found
