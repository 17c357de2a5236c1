"""The nesting depth of JSON text, checked before a recursive parser reads it."""

from __future__ import annotations

import numpy as np

__all__ = ["MOST_DEPTH", "depth_of"]

MOST_DEPTH = 500  # of lists and objects in each other: recursion beyond that is for no parser

_FEW = 100


def depth_of(data: bytes) -> int:
    """Return the nesting depth of lists and objects; for texts with few brackets, their number."""
    brackets = data.count(b"[") + data.count(b"{")
    if brackets <= _FEW:  # nearly all texts: the number is a sufficient bound
        return brackets
    bytes_ = np.frombuffer(data.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    is_outside = np.cumsum(bytes_ == ord('"')) & 1 == 0  # outside of strings
    kinds = bytes_ | 0x20  # brackets and braces differ in this bit
    steps = (kinds == ord("{")).astype(np.int8) - (kinds == ord("}")).astype(np.int8)
    return int(np.cumsum(np.where(is_outside, steps, 0), dtype=np.int64).max())
