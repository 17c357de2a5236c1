"""The language of the control channel: lines of JSON over TCP, after both sides have proved that they know a secret.

The server begins with a random text. The thread answers with one of its own, its name, and a MAC of all that; the
server answers with a MAC too. Neither sends the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any

from penstock.errors import AppFailedError

__all__ = ["FIRST_LINE_BYTES", "LINE_BYTES", "ControlLines", "decode_line", "encode_line", "mac_of", "new_nonce"]

LINE_BYTES = 8 << 20  # a report names each partition and store of a thread; an error may quote a record
FIRST_LINE_BYTES = 4096  # of those that have proved nothing yet


def encode_line(message: Mapping[str, Any]) -> bytes:
    """Make the line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode_line(line: bytes) -> dict[str, Any]:
    """Read the message of a line.

    Raises:
        ValueError: It is not a JSON object.
    """
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("the message is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("the message is not a JSON object")  # noqa: TRY004 - the contents are wrong
    return message


def new_nonce() -> str:
    """Make a random text, to be used once."""
    return secrets.token_hex(32)


def mac_of(secret: bytes, *parts: str) -> str:
    """Compute the MAC of texts.

    Example:
        >>> mac_of(b"key", "ab", "c") == mac_of(b"key", "a", "bc")
        False
    """
    text = json.dumps(parts).encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


class ControlLines:
    """The lines in what arrives on a connection.

    Args:
        limit: The most bytes of a line.
    """

    def __init__(self, limit: int = FIRST_LINE_BYTES) -> None:
        self.limit = limit
        self._data = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add what has arrived, and return the complete lines.

        Raises:
            AppFailedError: A line is longer than the limit.
        """
        self._data += data
        *lines, rest = bytes(self._data).split(b"\n") if b"\n" in data else [bytes(self._data)]
        if max(map(len, (*lines, rest))) > self.limit:
            raise AppFailedError(f"a line of the control channel has more than {self.limit} bytes")
        self._data = bytearray(rest)
        return lines
