"""The common base of Avro, Protobuf and JSON Schema: the frame, the subject, the registry.

The frame stands before a value: magic byte 0 and an id of 4 bytes, or magic byte 1 and a GUID of 16. Frames in headers
are the same bytes in another place: a source puts them before the value, a sink takes them away.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import UUID

import numpy as np
import polars as pl
import pyarrow as pa

from penstock.errors import ConfigError, SchemaRegistryError, SerializationError
from penstock.serde.base import BaseSerde, undecodable
from penstock.serde.column import Column, bytes_column, large_binary, parts
from penstock.serde.schemas.client import Registered, RegistryClient, client_for, no_registry
from penstock.serde.schemas.schema_settings import SchemaSettings
from penstock.serde.schemas.value_bytes import BY_GUID, BY_ID, frame, read_frame

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from numpy.typing import NDArray

__all__ = ["FRAMINGS", "EncodedColumn", "SchemaSerde"]


class Decoder(Protocol):
    """The decoder of bytes to Python values or a series."""

    @property
    def reads(self) -> Hashable:
        """A key that is equal for decoders with the same values of the same bytes."""
        ...

    def deserialize_rows(self, rows: Sequence[bytes | None]) -> list[Any]: ...

    def read_series(self, data: pa.Array) -> pl.Series | None:
        """Return the values as one series; None if they have no column type."""
        ...

    def series_of(self, items: list[Any]) -> pl.Series | None:
        """Return the series of decoded values; None: decode the bytes."""
        ...


class EncodedColumn(Column):
    """A column that still has its bytes: ``items()`` and ``series()`` each read them when first asked for.

    So a map, a UUID or a Protobuf message is the same Python object by the row and by the column, and a serde that
    writes with the schema that a value was read with can hand on the bytes.
    """

    __slots__ = ("decoder", "raw")

    def __init__(
        self, raw: pa.Array, decoder: Decoder, items: list[Any] | None = None, series: pl.Series | None = None
    ) -> None:
        super().__init__(items, series)
        self.raw = raw
        self.decoder = decoder

    def __len__(self) -> int:
        return len(self.raw)

    @property
    def has_items(self) -> bool:
        """Whether the Python values are there."""
        return self._items is not None

    def items(self) -> list[Any]:
        if self._items is None:
            self._items = self.decoder.deserialize_rows(self.raw.to_pylist())
        return self._items

    def series(self) -> pl.Series:
        if self._series is None:
            self._series = None if self._items is None else self.decoder.series_of(self._items)
            if self._series is None:
                self._series = self.decoder.read_series(self.raw)
        return super().series() if self._series is None else self._series

    def null_mask(self) -> NDArray[np.bool_]:
        return self.raw.is_null().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]

    def take(self, index: NDArray[np.int64]) -> EncodedColumn:
        items = None if self._items is None else [self._items[i] for i in index.tolist()]
        series = None if self._series is None else self._series[index]
        return EncodedColumn(self.raw.take(pa.array(index)), self.decoder, items, series)

    def concat_same(self, columns: Sequence[Column]) -> Column:
        encoded = [column for column in columns if isinstance(column, EncodedColumn)]
        if len({column.decoder.reads for column in encoded}) != 1:
            return super().concat_same(columns)
        items, series = None, None
        if all(column.has_items for column in encoded):
            items = [item for column in encoded for item in column.items()]
        if all(column.is_columnar for column in encoded) and len({column.series().dtype for column in encoded}) == 1:
            series = pl.concat([column.series() for column in encoded])
        raw = pa.concat_arrays([column.raw for column in encoded])
        return EncodedColumn(raw, self.decoder, items, series)


_SIZES = {BY_ID: 5, BY_GUID: 17}


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one schema; the value begins ``skip`` bytes after the row's start."""

    schema_id: int | str
    rows: NDArray[np.int64]
    skip: int


def groups(data: pa.Array) -> list[Group] | None:
    """Return the rows that are not null by their schemas; None if some row has no frame."""
    data = large_binary(data)
    body, offsets = parts(data)
    rows = np.flatnonzero(np.asarray(data.is_valid())) if data.null_count else np.arange(len(data))
    if not len(rows):
        return []
    starts, lengths = offsets[:-1][rows], np.diff(offsets)[rows]
    if int(lengths.min()) < _SIZES[BY_ID]:
        return None
    magic = body[starts]
    if not (magic == BY_ID).all():
        return _mixed(body, rows, starts, lengths, magic)
    ids = body[starts[:, None] + np.arange(1, 5)].copy().view(">u4").ravel()
    if (ids == ids[0]).all():
        return [Group(int(ids[0]), rows, _SIZES[BY_ID])]
    unique_ids, inverse = np.unique(ids, return_inverse=True)
    return [Group(int(one), rows[inverse == number], _SIZES[BY_ID]) for number, one in enumerate(unique_ids.tolist())]


def starts_with(data: pa.Array, prefix: bytes) -> bool:
    """Return whether every row that is not null begins with these bytes."""
    present = data.drop_null() if data.null_count else data
    body, offsets = parts(present)
    if len(present) and int(np.diff(offsets).min()) < len(prefix):
        return False
    return all((body[offsets[:-1] + at] == byte).all() for at, byte in enumerate(prefix))


def _mixed(
    body: NDArray[np.uint8],
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    magic: NDArray[np.uint8],
) -> list[Group] | None:
    """Return groups of rows of which some or all frames have GUIDs."""
    if (magic > BY_GUID).any() or (lengths[magic == BY_GUID] < _SIZES[BY_GUID]).any():
        return None
    row_groups: list[Group] = []
    for kind, size in _SIZES.items():
        mine = np.flatnonzero(magic == kind)
        if not len(mine):
            continue
        names = np.ascontiguousarray(body[starts[mine][:, None] + np.arange(1, size)])
        unique_names, inverse = np.unique(names, axis=0, return_inverse=True)
        for number, name in enumerate(unique_names):
            raw = name.tobytes()
            schema_id = int.from_bytes(raw, "big") if kind == BY_ID else str(UUID(bytes=raw))
            row_groups.append(Group(schema_id, rows[mine[inverse.ravel() == number]], size))
    return row_groups


FRAMINGS = ("prefix", "header", "none")


@dataclass(slots=True)
class _Live:
    """A process's client, and the schema that it writes with and its frame, once they are known.

    ``followed`` is the subject whose newest schema that is, if it may change.
    """

    pid: int
    client: RegistryClient
    written: tuple[Registered, bytes] | None = None
    followed: str | None = None


class SchemaSerde(BaseSerde):
    """A serde whose bytes begin with the id of their schema, or that has one fixed schema (framing "none").

    It holds settings and texts only, so it pickles; the registry's client is the process's.

    Attributes:
        framing: The place of the schema's id: "prefix", "header" or "none".

    Args:
        framing: One of these; None takes ``value.schema.id.serializer``, by default the prefix.
        registry: The registry's URL, or settings by Kafka's names; the application's config adds those that are
        missing.
    """

    few_by_row = False  # `encode` hands on bytes that a value was read from

    def __init__(self, framing: str | None, registry: str | Mapping[str, Any] | None) -> None:
        if framing is not None and framing not in FRAMINGS:
            raise ConfigError(f"{framing!r} is not a framing", hint=f"One of {', '.join(FRAMINGS)}.")
        self._framing = framing
        self.settings = SchemaSettings.of(registry)
        self.topic: str | None = None
        self.part: str | None = None
        self._live: _Live | None = None
        self._plans: dict[Any, Any] = {}  # parsed forms of a schema, by the kind of serde, once per process
        self.framing = framing or self.settings.framing("value")

    def for_topic(self, topic: str, part: str) -> Self:
        """Return this serde for the keys or values of a topic: subjects are named after it.

        Args:
            topic: The topic's name.
            part: "key" or "value".
        """
        return self._with(topic=topic, part=part)

    def configured(self, config: Mapping[str, Any]) -> Self:
        """Return this serde with the settings of an application where it has none of its own."""
        settings = self.settings.with_defaults(config)
        serde = self if settings is self.settings else self._with(settings=settings)
        if serde.framing != "none" and settings.url is None:
            raise no_registry(self.name)
        return serde

    def _with(self, **changes: Any) -> Self:
        changed = object.__new__(type(self))  # not copy(): that goes by the pickled state
        vars(changed).update({**vars(self), **changes, "_live": None, "_plans": {}})
        changed.framing = self._framing or changed.settings.framing(changed.part or "value")
        return changed

    def _process(self) -> _Live:
        """Return this process's use of the registry; not pickled, and not taken over by a forked process."""
        live = self._live
        if live is None or live.pid != os.getpid():
            live = self._live = _Live(os.getpid(), client_for(self.settings))
        return live

    def ask_again(self) -> None:
        """Forget which schemas the registry did not have."""
        if self._live is not None and self.framing != "none":
            self._process().client.ask_again()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_live": None, "_plans": {}}

    # The parts that each kind of schema implements -----------------------------------------------------------------

    @property
    @abstractmethod
    def record_name(self) -> str | None:
        """The full name of the record or message, for subjects that are named after it."""

    @abstractmethod
    def to_register(self, client: RegistryClient) -> Schema | None:
        """Return the schema to write with, its references registered; None if the serde has none of its own."""

    @abstractmethod
    def write(self, value: Any, registered: Registered | None) -> bytes:
        """Return the bytes of a value without the frame; ``registered`` is the registry's schema (None: no framing)."""

    @abstractmethod
    def read(self, data: bytes, start: int, registered: Registered | None) -> Any:
        """Return the value of the bytes from ``start`` on."""

    @abstractmethod
    def read_column(self, data: pa.Array, skip: int, registered: Registered | None) -> pl.Series | None:
        """Return the values of rows of one schema, none of them null; None if they have no column type."""

    # One at a time --------------------------------------------------------------------------------------------------

    def serialize(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if self.framing == "none":
            return self.write(value, None)
        registered, frame = self._written()
        return frame + self.write(value, registered)

    def deserialize(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if self.framing == "none":
            return self.read(data, 0, None)
        schema_id, start = read_frame(data, self.name)
        return self.read(data, start, self._process().client.schema(schema_id))

    def target(self) -> Registered:
        """Return the schema in the registry with which values are written.

        Raises:
            SchemaRegistryError: The registry refuses it, lacks it or cannot be reached.
            ConfigError: The subject cannot be named, or there is no schema.
        """
        return self._written()[0]

    def _written(self) -> tuple[Registered, bytes]:
        """Return the schema with which values are written, and its frame."""
        live = self._process()
        written = live.written
        if written is None or (live.followed is not None and live.client.has_newer(live.followed, written[0])):
            target = self._target(live.client)
            written = live.written = target, self.frame_of(target)
            live.followed = self.subject() if self._uses_latest else None
        return written

    @property
    def _uses_latest(self) -> bool:
        return self.settings.get("use.schema.id") is None and self.settings.flag("use.latest.version", default=False)

    def _target(self, client: RegistryClient) -> Registered:
        if (schema_id := self.settings.get("use.schema.id")) is not None:
            return client.schema(int(schema_id))
        subject = self.subject()
        if self._uses_latest:
            return client.latest(subject)
        schema = self.to_register(client)
        if schema is None:
            raise ConfigError(
                f"the {self.name} serde has no schema to write {subject} with",
                hint="Give it one, or set use.latest.version to write with the subject's newest.",
            )
        return client.register(
            subject,
            schema,
            auto_register=self.auto_register,
            normalize=self.settings.flag("normalize.schemas", default=False),
        )

    @property
    def write_frame(self) -> bytes:
        """The frame before every value that it writes."""
        return self._written()[1]

    @property
    def auto_register(self) -> bool:
        """Whether new schemas are registered; else they must exist."""
        return self.settings.flag("auto.register.schemas", default=True)

    def frame_of(self, registered: Registered) -> bytes:
        """Return the frame before a value that is written with this schema."""
        if self.framing != "header":
            return frame(registered.schema_id)
        if registered.guid is None:
            raise ConfigError(
                f"the registry {self.settings.url} returns no GUIDs, which headers need",
                hint='Use framing="prefix", or a registry of version 8.',
            )
        return frame(registered.guid)

    def subject(self) -> str:
        """Return the subject under which schemas are registered."""
        strategy = self.settings.strategy(self.part or "value")
        if callable(strategy):
            named = strategy(self.topic, self.part, self.record_name)
        elif strategy == "record":
            named = self.record_name
        elif self.topic is None:
            raise ConfigError(
                f"the {self.name} serde does not know its topic, so it cannot name the subject",
                hint='Use serde.for_topic("orders", "value"), or the record as value.subject.name.strategy.',
            )
        elif strategy == "topic":
            named = f"{self.topic}-{self.part}"
        else:
            named = None if self.record_name is None else f"{self.topic}-{self.record_name}"
        if named is None:
            raise ConfigError(
                f"the {self.name} serde's schema has no record name, so it cannot name the subject",
                hint='Use "topic" as subject.name.strategy.',
            )
        return named

    # By the column --------------------------------------------------------------------------------------------------

    def encode(self, column: Column) -> pa.Array:
        if type(column) is EncodedColumn and self._hands_on(column):
            return column.raw
        items = column.items()
        if self.framing == "none":
            encoded = self.encode_items(items, None, b"")
        else:
            encoded = self.encode_items(items, *self._written())
        return bytes_column(self.serialize_rows(items)) if encoded is None else encoded

    def encode_items(self, items: list[Any], registered: Registered | None, frame: bytes) -> pa.Array | None:  # noqa: ARG002
        """Return all values encoded at once, where that is faster; None leaves it to the single ones."""
        return None

    def _hands_on(self, column: EncodedColumn) -> bool:
        """Return whether the bytes that the values came as equal those that they would be written as."""
        if column.decoder.reads != self.reads:
            return False
        return self.framing == "none" or starts_with(column.raw, self.write_frame)

    def decode(self, data: pa.Array) -> Column:
        data = large_binary(data)
        try:
            series = self.read_series(data)
        except (ConfigError, SchemaRegistryError):
            raise
        except undecodable():
            return super().decode(data)  # raises, and names the row
        if series is not None:
            return EncodedColumn(data, self, series=series)
        return EncodedColumn(data, self, items=self.deserialize_rows(data.to_pylist()))

    def read_series(self, data: pa.Array) -> pl.Series | None:
        """Return the values as one series; None if they have no column type.

        Raises:
            SerializationError: Some row does not decode; it does not say which.
        """
        if self.framing == "none":
            rows = np.flatnonzero(np.asarray(data.is_valid()))
            return self._placed([(rows, 0, None)], data)
        row_groups = groups(data)
        if row_groups is None:
            raise SerializationError(f"a row does not have the frame of the {self.name} serde", serde=self.name)
        client = self._process().client
        return self._placed([(group.rows, group.skip, client.schema(group.schema_id)) for group in row_groups], data)

    def series_of(self, items: list[Any]) -> pl.Series | None:  # noqa: ARG002
        """Return the series of decoded values, where that is less work than reading the bytes again."""
        return None

    def _placed(self, row_groups: list[tuple[Any, int, Registered | None]], data: pa.Array) -> pl.Series | None:
        """Read each group of rows and put the values at the places of their rows."""
        pieces: list[pl.Series] = []
        index = np.zeros(len(data), np.int64)
        filled = 0
        for rows, skip, registered in row_groups:
            part = data if len(rows) == len(data) else data.take(pa.array(rows))
            series = self.read_column(part, skip, registered)
            if series is None:
                return None
            index[rows] = filled + np.arange(len(rows))
            filled += len(rows)
            pieces.append(series)
        if len(pieces) == 1 and filled == len(data):
            return pieces[0]
        if not pieces:
            return pl.Series("", [None] * len(data))
        together = _together(pieces)
        if together is None:
            return None
        valid = np.asarray(data.is_valid())
        places = pl.Series("", index, pl.Int64)
        if not valid.all():
            places = places.zip_with(pl.Series("", valid), pl.Series([None], dtype=pl.Int64))
        return together.gather(places)

    # Identity -------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def schema_key(self) -> Any:
        """A hashable key, equal for serdes of this class that read and write alike."""

    @property
    def reads(self) -> Any:
        """A key that is equal for serdes that read alike, whatever topic they serve."""
        return type(self), self.schema_key, self.framing == "none", self.settings.url

    def _identity(self) -> Any:
        return (type(self), self.schema_key, self.framing, self.settings.given, self.topic, self.part)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaSerde) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash((type(self), self.schema_key, self.topic, self.part))


def _together(pieces: list[pl.Series]) -> pl.Series | None:
    """Return one series of several; structs of different fields get the fields of all."""
    if len({piece.dtype for piece in pieces}) == 1:
        return pl.concat(pieces)
    if all(isinstance(piece.dtype, pl.Struct) for piece in pieces):
        try:
            frames = pl.concat([piece.struct.unnest() for piece in pieces], how="diagonal_relaxed")
        except pl.exceptions.PolarsError:
            return None
        return frames.select(pl.struct(pl.all()).alias("")).to_series()
    return None
