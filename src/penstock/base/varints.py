"""Integers of variable length, as Kafka, Avro and Protocol Buffers write them: seven bits a byte, the lowest first."""

from __future__ import annotations

__all__ = ["INT_BYTES", "read_signed", "read_unsigned", "signed", "unsigned"]

INT_BYTES = 5  # the most of 32 bits

_SEVEN = 0x7F
_MORE = 0x80
_MOST_BYTES = 10  # of 64 bits


def read_unsigned(data: bytes | memoryview, at: int, most_bytes: int = _MOST_BYTES) -> tuple[int, int]:
    """Decode one unsigned integer (zigzag is not undone), and return the position after it.

    Raises:
        IndexError: The data ends before the integer does.
        ValueError: The integer does not end within ``most_bytes``.

    Example:
        >>> read_unsigned(bytes([0x80, 0x01]), 0)
        (128, 2)
    """
    value = 0
    for shift in range(0, 7 * most_bytes, 7):
        byte = data[at]
        at += 1
        value |= (byte & _SEVEN) << shift
        if byte < _MORE:
            return value, at
    raise ValueError(f"a number of more than {most_bytes} bytes")


def read_signed(data: bytes | memoryview, at: int, most_bytes: int = _MOST_BYTES) -> tuple[int, int]:
    """Decode one integer of either sign (zigzag), and return the position after it.

    Raises:
        IndexError: The data ends before the integer does.
        ValueError: The integer does not end within ``most_bytes``.

    Example:
        >>> read_signed(bytes([1]), 0)
        (-1, 1)
    """
    value, at = read_unsigned(data, at, most_bytes)
    return (value >> 1) ^ -(value & 1), at


def unsigned(value: int) -> bytes:
    """Encode one unsigned integer.

    Example:
        >>> unsigned(128) == bytes([0x80, 0x01])
        True
    """
    encoded = bytearray()
    while value >= _MORE:
        encoded.append(value & _SEVEN | _MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def signed(value: int) -> bytes:
    """Encode one integer of up to 64 bits, small ones of either sign in few bytes (zigzag).

    Example:
        >>> signed(-1) + signed(64) == bytes([1, 0x80, 0x01])
        True
    """
    return unsigned((value << 1) ^ (value >> 63))
