"""Recognised columns, checked by reading the sample with the serde of the statement; what it cannot read is widened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.base.json_depth import depth_of
from penstock.errors import PenstockError
from penstock.serde.binding import bound, configured
from penstock.sql.catalog import DataFormat
from penstock.sql.compile.serdes import format_serde
from penstock.sql.formats import format_info
from penstock.sql.infer.recognise import Recognised
from penstock.sql.types import BYTES, STRING, SqlType

__all__ = ["read_whole"]

MOST_LEVELS = 200  # of JSON


def read_whole(
    part: Recognised, items: Sequence[bytes | None], topic: str, side: str, registry: Mapping[str, str]
) -> Recognised:
    """The columns of keys or values, wide enough for all of them.

    Args:
        part: What the sample says.
        items: Keys or values; nulls are left out.
        topic: The topic.
        side: ``key`` or ``value``.
        registry: The settings of a schema registry.
    """
    given = [item for item in items if item is not None]
    if not given or not part.columns:
        return part
    check = _Check(given, topic, side, registry)
    unread = check.unread(part)
    while unread:
        wider = check.wider(part, len(unread))
        if wider is None:
            return check.whole(part)
        part, unread = wider, check.unread(wider)
    return part


class _Check:
    """Reads a sample with one choice of columns after the other."""

    def __init__(self, items: Sequence[bytes], topic: str, side: str, registry: Mapping[str, str]) -> None:
        self._items = items
        self._topic, self._side, self._registry = topic, side, dict(registry)

    def unread(self, part: Recognised) -> list[bytes]:
        """The items that the columns cannot read, or read with nulls in the place of values."""
        try:
            form = DataFormat(part.form, tuple(part.properties.items()), False if part.single else None)
            serde = configured(format_serde(form, part.columns, self._side), self._registry)
            serde = bound(serde, self._topic, self._side)
        except (PenstockError, ValueError):
            return list(self._items)
        return [item for item in self._items if not _reads(serde, item, part)]

    def wider(self, part: Recognised, unread: int) -> Recognised | None:
        """The columns with a text in the place of one that spoils records, or of all; None if all are texts already."""
        narrow = [place for place, (_, kind) in enumerate(part.columns) if kind != STRING]
        if not narrow or format_info(part.form).infers or part.form == "KAFKA":
            return None
        for place in narrow:
            tried = _with_texts(part, [place])
            if len(self.unread(tried)) < unread:
                return tried
        return _with_texts(part, narrow)

    def whole(self, part: Recognised) -> Recognised:
        """One column for the whole key or value: a text, or bytes."""
        name = "ID" if self._side == "key" else "VALUE"
        note = f"Not all {self._side}s can be read as {part.form}: they are one column."
        kinds: tuple[SqlType, ...] = (STRING, BYTES)
        for kind in kinds:
            found = Recognised("KAFKA", ((name, kind),), single=True, notes=(note,))
            if not self.unread(found):
                return found
        return replace(part, notes=(*part.notes, f"Not all {self._side}s of the sample can be read."))


def _with_texts(part: Recognised, places: Sequence[int]) -> Recognised:
    columns = tuple((name, STRING if at in places else kind) for at, (name, kind) in enumerate(part.columns))
    names = ", ".join(part.columns[at][0] for at in places)
    note = f"{names} is a text: not all records have {part.columns[places[0]][1]} there."
    return replace(part, columns=columns, notes=(*part.notes, note))


def _reads(serde: Any, item: bytes, part: Recognised) -> bool:
    try:
        row = serde.deserialize(item)
    except Exception:  # noqa: BLE001 - whatever it is, the record would be dropped
        return False
    if row is None or part.form != "JSON" or part.single:
        return row is not None or part.form == "JSON"
    return not _lost(item, part, row)


def _lost(item: bytes, part: Recognised, row: Sequence[Any]) -> bool:
    """Whether a field that has a value is null in the row."""
    if depth_of(item) > MOST_LEVELS:
        return False
    given = json.loads(item, parse_constant=float)
    if not isinstance(given, dict):
        return False
    upper = {name.upper(): value for name, value in given.items()}
    pairs = zip(part.columns, row, strict=True)
    return any(value is None and given.get(name, upper.get(name)) is not None for (name, _), value in pairs)
