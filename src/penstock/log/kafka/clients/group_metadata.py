"""The membership of a consumer of librdkafka, which it packs for its own producers."""

from __future__ import annotations

import struct

from penstock.errors import LogError
from penstock.log.membership import GroupMembership

__all__ = ["group_of"]

_MAGIC = b"CGMDv2:"
_GENERATION = struct.Struct("=i")


def group_of(metadata: object) -> tuple[str, GroupMembership]:
    r"""Unpack the group of a consumer, and its membership.

    Args:
        metadata: What ``consumer_group_metadata`` of the client has returned.

    Raises:
        LogError: It has another form.

    >>> group_of(b"CGMDv2:" + _GENERATION.pack(7) + b"app\0member-1\0\x00mine\0")
    ('app', GroupMembership(member='member-1', instance='mine', generation=7))
    >>> group_of(b"CGMDv2:" + _GENERATION.pack(-1) + b"app\0\0\x01")
    ('app', GroupMembership(member='', instance='', generation=-1))
    """
    if not isinstance(metadata, bytes) or not metadata.startswith(_MAGIC):
        raise LogError(
            "the membership of the consumer has a form that is not known",
            hint="This version of confluent-kafka is newer than this version of Penstock.",
        )
    at = len(_MAGIC)
    (generation,) = _GENERATION.unpack_from(metadata, at)
    group, member, rest = metadata[at + _GENERATION.size :].split(b"\0", 2)
    instance = rest[1:].partition(b"\0")[0] if rest[:1] == b"\0" else b""
    return group.decode(), GroupMembership(member.decode(), instance.decode(), generation)
