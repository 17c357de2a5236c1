"""Columns that are left out, masked or cut: Debezium's ``column.*`` settings.

What is withheld is withheld everywhere: in values, in keys, and in the text of errors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.connect.connectors.postgres.columns import ColumnForm
from penstock.connect.connectors.postgres.types import PgType
from penstock.connect.data import SettingError, Type
from penstock.errors import ConnectError

__all__ = ["ColumnMasks", "Patterns", "column_rules"]

_MASK = re.compile(r"column\.mask\.with\.(\d+)\.chars")
_HASH = re.compile(r"column\.mask\.hash\.(v2\.)?([^.]+)\.with\.salt\.(.+)")
_CUT = re.compile(r"column\.truncate\.to\.(\d+)\.chars")
_FAMILIES = ("column.mask.", "column.truncate.to.")
_LENGTH_OFFSET = 4  # of the modifiers of char(n) and varchar(n)
_LONG_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class Patterns:
    """A list of regular expressions of names, of which one matches as a whole, in letters of any case."""

    expressions: tuple[re.Pattern[str], ...] = ()

    @classmethod
    def of(cls, texts: Sequence[str], setting: str) -> Patterns:
        """Compile them; a comma with a backslash before it is part of an expression.

        Raises:
            SettingError: One is not a regular expression.
        """
        patterns = []
        for text in re.split(r"(?<!\\)\s*,\s*", ",".join(texts)) if texts else ():
            try:
                patterns.append(re.compile(text.strip().replace("\\,", ","), re.IGNORECASE))
            except re.error as error:
                raise SettingError.invalid(setting, text, f"Invalid regex: {error}") from error
        return cls(tuple(patterns))

    def __bool__(self) -> bool:
        return bool(self.expressions)

    def match(self, name: str) -> bool:
        """Return whether one of them matches."""
        return any(each.fullmatch(name) for each in self.expressions)


@dataclass(frozen=True, slots=True)
class _ColumnChange:
    """What is done to the texts of some columns.

    Attributes:
        setting: The setting that asks for it.
        columns: The columns.
        text: Makes the text that comes out; of None as well if `nulls`.
        parameters: What the field's schema says about it.
    """

    setting: str
    columns: Patterns
    text: Callable[[str], str]
    parameters: Mapping[str, str]
    nulls: bool = False


@dataclass(frozen=True, slots=True)
class ColumnMasks:
    """Which columns come out, and how."""

    included: Patterns = Patterns()
    excluded: Patterns = Patterns()
    changes: tuple[_ColumnChange, ...] = ()

    def takes(self, column: str) -> bool:
        """Return whether a column comes out, by its name ``schema.table.column``."""
        if self.included:
            return self.included.match(column)
        return not self.excluded.match(column)

    def form(self, column: str, kind: PgType, form: ColumnForm) -> ColumnForm:
        """Return the form of a column after all that is to be done to it.

        Raises:
            ConnectError: It cannot be done to a column of this type.
        """
        for change in self.changes:
            if change.columns.match(column):
                form = _changed(column, kind, form, change)
        return form


def _changed(column: str, kind: PgType, form: ColumnForm, change: _ColumnChange) -> ColumnForm:
    if form.schema.type is not Type.STRING:
        raise ConnectError(
            f"{change.setting.partition('.with.salt.')[0]} names the column {column}, "
            f"whose type {kind.domain or kind.name} is not text",
            hint="Leave the column out with column.exclude.list, or match only columns of texts.",
        )
    read, text = form.read, change.text
    most = kind.modifier - _LENGTH_OFFSET if kind.name in ("bpchar", "varchar") and kind.modifier > 0 else None
    is_hash = change.setting.startswith("column.mask.hash.")

    def changed(cell: str) -> str:
        masked = text(cell)
        return masked[:most] if is_hash else masked

    parameters = {**(form.schema.parameters or {}), **change.parameters}
    return replace(
        form,
        schema=replace(form.schema, parameters=parameters),
        read=lambda cell: changed(str(read(cell))),
        unavailable=changed(str(form.unavailable)),
        null=changed("") if change.nulls else form.null,
        shows=False,
    )


def column_rules(settings: Mapping[str, str], included: Sequence[str], excluded: Sequence[str]) -> ColumnMasks:
    """Return what a connector's settings say about columns.

    Raises:
        SettingError: They are wrong.
    """
    changes: list[_ColumnChange] = []
    for name, value in settings.items():
        if not name.startswith(_FAMILIES):
            continue
        patterns = Patterns.of(re.split(r"\s*,\s*", value.strip()), name)
        mask, hashed, cut = _MASK.fullmatch(name), _HASH.fullmatch(name), _CUT.fullmatch(name)
        if mask is not None:
            changes.append(_ColumnChange(name, patterns, _stars(int(mask[1])), {"masked": "true"}, nulls=True))
        elif hashed is not None:
            hashed_text = _hash(name, hashed[2], hashed[3], is_plain=hashed[1] is not None)
            changes.append(_ColumnChange(name, patterns, hashed_text, {"masked": "true"}))
        elif cut is not None:
            most = int(cut[1])
            changes.append(_ColumnChange(name, patterns, _shortened(most), {"truncateLength": cut[1]}))
        else:
            raise SettingError(
                f"{name.partition('.with.salt.')[0]} is not a setting of this connector",
                hint="There are column.mask.with.LENGTH.chars, column.mask.hash.ALGORITHM.with.salt.SALT, "
                "column.mask.hash.v2.ALGORITHM.with.salt.SALT and column.truncate.to.LENGTH.chars.",
            )
    return ColumnMasks(
        Patterns.of(included, "column.include.list"), Patterns.of(excluded, "column.exclude.list"), tuple(changes)
    )


def _stars(count: int) -> Callable[[str], str]:
    return lambda _text: "*" * count


def _shortened(most: int) -> Callable[[str], str]:
    return lambda text: _cut(text, most)


def _hash(setting: str, algorithm: str, salt: str, *, is_plain: bool) -> Callable[[str], str]:
    name = algorithm.replace("-", "", 1) if algorithm.upper().startswith("SHA-") else algorithm
    name = name.lower().replace("/", "_").replace("-", "_")
    try:
        hashlib.new(name)
    except ValueError as error:
        raise SettingError(
            f"{setting.partition('.with.salt.')[0]}: there is no hash {algorithm}", hint="For example SHA-256."
        ) from error

    def read(text: str) -> str:
        data = text.encode() if is_plain else _java_text(text)
        return hashlib.new(name, salt.encode() + data).hexdigest()

    return read


def _java_text(text: str) -> bytes:
    """Return a text as Java's serialization writes it, which is what the first form of Debezium's hashes is made of."""
    data = b"".join(_java_character(unit) for unit in _utf16(text))
    head = b"\xac\xed\x00\x05"
    if len(data) < _LONG_TEXT:
        return head + b"t" + len(data).to_bytes(2, "big") + data
    return head + b"|" + len(data).to_bytes(8, "big") + data


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def _java_character(unit: int) -> bytes:
    if 0 < unit < 0x80:
        return bytes([unit])
    if unit < 0x800:
        return bytes([0xC0 | unit >> 6, 0x80 | unit & 0x3F])
    return bytes([0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F])


def _cut(text: str, most: int) -> str:
    """Return the first characters, counted as Java counts them: those beyond the basic plane are two."""
    data = text.encode("utf-16-be", "surrogatepass")[: most * 2]
    return data.decode("utf-16-be", "replace").replace("\ufffd", "?")  # half a character, as Java writes it
