"""Names of topics, schemas and fields: as the database has them, or so that Kafka or Avro can have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

__all__ = ["ADJUSTMENTS", "adjusted_field", "adjusted_schema", "topic_name"]

_DIGITS = frozenset("0123456789")


def topic_name(name: str) -> str:
    """Return the name with an underscore for each character that topics do not have.

    >>> topic_name("shop.öffentlich.t#1")
    'shop._ffentlich.t_1'
    """
    return re.sub(r"[^a-zA-Z0-9._-]", lambda match: "_" * _java_length(match[0]), name)


def _java_length(character: str) -> int:
    return 1 + (ord(character) > 0xFFFF)


def _avro(name: str, allowed: str, is_first: Callable[[str], bool], write: Callable[[str], str]) -> str:
    valid = re.compile(rf"[{allowed}]")
    adjusted = "".join(each if valid.fullmatch(each) else write(each) for each in name)
    if name and valid.fullmatch(name[0]) and not is_first(name[0]):
        adjusted = ("_" + adjusted) if write is _underscores else write(name[0]) + adjusted[1:]
    return adjusted


def _underscores(character: str) -> str:
    return "_" * _java_length(character)


def _escaped(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"_u{int.from_bytes(data[at : at + 2], 'big'):04x}" for at in range(0, len(data), 2))


def adjusted_field(name: str, mode: str) -> str:
    """Return the name of a field by ``field.name.adjustment.mode``.

    >>> adjusted_field("1st-x", "none"), adjusted_field("1st-x", "avro"), adjusted_field("1st_x", "avro_unicode")
    ('1st-x', '_1st_x', '_u0031st_u005fx')
    """
    if mode == "none":
        return name
    if mode == "avro":
        return _avro(name, "A-Za-z0-9_", lambda first: first not in _DIGITS, _underscores)
    return _avro(name, "A-Za-z0-9", lambda first: first not in _DIGITS, _escaped)


def adjusted_schema(name: str, mode: str) -> str:
    """Return the name of a schema by ``schema.name.adjustment.mode``: dots stay.

    >>> adjusted_schema("shop.public.t-1.Key", "avro")
    'shop.public.t_1.Key'
    """
    if mode == "none":
        return name
    if mode == "avro":
        return _avro(name, "A-Za-z0-9_.", lambda first: first not in _DIGITS and first != ".", _underscores)
    return _avro(name, "A-Za-z0-9.", lambda first: first not in _DIGITS and first != ".", _escaped)


ADJUSTMENTS: Mapping[str, str] = {
    "none": "as they are",
    "avro": "characters that Avro does not have become underscores",
    "avro_unicode": "characters that Avro does not have, and underscores, become _uXXXX",
}
