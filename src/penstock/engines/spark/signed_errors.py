"""Transport of whole errors from a worker to the driver, as signed JSON in the text that Spark passes on.

The text of an exception quotes what a user's function or a serde complained about, so it may contain the bytes of any
record. What the driver reads from it is therefore signed with a random key of the application's start, which only its
processes have; and it is JSON, with a fixed set of classes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import reprlib

from penstock import errors
from penstock.errors import PenstockError

__all__ = ["seal_error", "unseal_error"]

_MARK = re.compile(r"penstock-error:([A-Za-z0-9+/=]+):([0-9a-f]{64}):end")
_KINDS: dict[str, type[PenstockError]] = {name: getattr(errors, name) for name in errors.__all__}
_DEPTH = 4  # of lists and dicts in an error's facts
_ITEMS = 100  # of each of them
_INTEGER_BITS = 4096  # Python refuses to write longer ones in decimal
_TEXT = 100_000  # characters of a text; a traceback has a few thousand


def seal_error(error: PenstockError, key: bytes) -> str:
    """Make a signed text of an error, which `unseal_error` finds with the same key in any larger text."""
    kind = next(each.__name__ for each in type(error).__mro__ if _KINDS.get(each.__name__) is each)
    facts = {name: _plain(value, _DEPTH) for name, value in error.facts.items()}
    document = {"kind": kind, "message": _cut(error.message), "hint": _cut(error.hint), "facts": facts}
    data = base64.b64encode(json.dumps(document).encode())
    return f"penstock-error:{data.decode()}:{_signature(data, key)}:end"


def unseal_error(text: str, key: bytes) -> PenstockError | None:
    """Return the first error in a text that was sealed with this key; None if there is none."""
    for match in _MARK.finditer(text):
        data = match.group(1).encode()
        if hmac.compare_digest(_signature(data, key), match.group(2)):
            document = json.loads(base64.b64decode(data))
            kind = _KINDS[document["kind"]]
            return kind(document["message"], hint=document["hint"], **document["facts"])
    return None


def _signature(data: bytes, key: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def _plain(value: object, depth: int) -> object:
    """Convert a fact to JSON types; what JSON lacks, or what is too deep or long, becomes text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _INTEGER_BITS else _cut(hex(value))
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list | tuple | set | frozenset) and depth and len(value) <= _ITEMS:
        return [_plain(each, depth - 1) for each in value]
    if isinstance(value, dict) and depth and len(value) <= _ITEMS:
        return {_cut(str(name)): _plain(each, depth - 1) for name, each in value.items()}
    return reprlib.repr(value)


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate is not JSON
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}... ({len(text):,} characters)"
