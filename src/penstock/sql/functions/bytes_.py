"""Functions between bytes, text in an encoding, and numbers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct

from penstock.sql.functions.registry import Family
from penstock.sql.types import SqlValueError

__all__ = ["BYTES_FUNCTIONS"]

BYTES_FUNCTIONS = Family("bytes")
ORDERS = {"BIG_ENDIAN": "big", "LITTLE_ENDIAN": "little"}
ENCODINGS = ("hex", "utf8", "ascii", "base64")
BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")


def _decoded(text: str, encoding: str) -> bytes:
    match encoding.lower():
        case "hex":
            return _of_hex(text)
        case "utf8":
            return text.encode("utf-8", "surrogatepass")
        case "ascii":
            return text.encode("ascii", "replace")
        case "base64":
            return _of_base64(text)
    raise SqlValueError(f"{encoding!r} is not an encoding: use hex, utf8, ascii or base64")


def _of_hex(text: str) -> bytes:
    """Return bytes of pairs of hexadecimal digits, with nothing between them."""
    try:
        return binascii.unhexlify(text)
    except ValueError as error:
        raise SqlValueError(f"{text[:100]!r} is not hexadecimal") from error


def _plain_hex(text: str) -> str:
    """Return the digits of ``0x4a`` (a zero goes before an odd number of them) and of ``x'4a'``.

    Other texts as they are.
    """
    if re.fullmatch("0x.*", text):
        return text[2:] if len(text) % 2 == 0 else f"0{text[2:]}"
    return text[2:-1] if re.fullmatch("[xX]'.*'", text) else text


def _of_base64(text: str) -> bytes:
    """Return bytes of base64, whose padding may be missing but must be whole."""
    length = len(text) % 4
    if not BASE64.fullmatch(text) or length == 1 or (length and text.endswith("=")):
        raise SqlValueError(f"{text[:100]!r} is not base64")
    return base64.b64decode(text + "=" * (-length % 4), validate=True)


def _of_any_base64(text: str) -> bytes:
    """Return bytes of base64 as ENCODE reads it: up to the first ``=``, in both alphabets, without other characters."""
    plain = re.sub("[^A-Za-z0-9+/]", "", text.partition("=")[0].replace("-", "+").replace("_", "/"))
    plain = plain[: len(plain) - (len(plain) % 4 == 1)]
    return base64.b64decode(plain + "=" * (-len(plain) % 4))


def _encoded(data: bytes, encoding: str) -> str:
    match encoding.lower():
        case "hex":
            return data.hex().upper()
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
    "FROM_BYTES(data BYTES, encoding STRING) STRING", examples=[("FROM_BYTES(TO_BYTES('é', 'utf8'), 'hex')", "'C3A9'")]
)
def from_bytes(data: bytes, encoding: str) -> str:
    """Bytes as text in an encoding: hex, utf8, ascii or base64."""
    return _encoded(data, encoding)


@BYTES_FUNCTIONS.scalar(
    "ENCODE(text STRING, input STRING, output STRING) STRING", examples=[("ENCODE('JK', 'utf8', 'hex')", "'4a4b'")]
)
def encode(text: str, input_: str, output: str) -> str:
    """A text in another encoding: hex, utf8, ascii or base64. Hexadecimal digits may stand in ``0x..`` or ``x'..'``."""
    before, after = input_.lower(), output.lower()
    if before not in ENCODINGS or after not in ENCODINGS or before == after:
        raise SqlValueError(f"ENCODE goes from one of {', '.join(ENCODINGS)} to another, not from {input_} to {output}")
    if before == "hex":
        data = _of_hex(_plain_hex(text))
    else:
        data = _of_any_base64(text) if before == "base64" else _decoded(text, before)
    return data.hex() if after == "hex" else _encoded(data, after)


@BYTES_FUNCTIONS.scalar("MD5(text STRING) STRING", examples=[("MD5('abc')", "'900150983cd24fb0d6963f7d28e17f72'")])
def md5(text: str) -> str:
    """The MD5 digest of a text in UTF-8, as 32 hexadecimal digits in lower case."""
    return hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def _ordered(data: bytes, order: str, size: int) -> bytes:
    byte_order = ORDERS.get(order.upper())
    if byte_order is None:
        raise SqlValueError(f"{order!r} is not a byte order: use BIG_ENDIAN or LITTLE_ENDIAN")
    if len(data) != size:
        raise SqlValueError(f"a number of {size} bytes is needed, not of {len(data)}")
    return data if byte_order == "big" else data[::-1]


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
    number: float = struct.unpack(">d", _ordered(data, order, 8))[0]
    return number
