"""The bytes of a store's keys, none of which may be null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import StateError
from penstock.serde.base import FEW, encode_one, encode_rows
from penstock.serde.column import to_bytes_list

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.serde.column import Column
    from penstock.topology.stores import StoreSpec

__all__ = ["encode_keys", "key_bytes", "keys_bytes"]


def key_bytes(spec: StoreSpec, key: Any) -> bytes:
    """Return the key's bytes; a null key is an error, as in Kafka."""
    data = encode_one(spec.key_serde, key) if key is not None else None
    if data is None:
        raise _null_key(spec, "the")
    return data


def encode_keys(spec: StoreSpec, keys: Column) -> pa.Array:
    """Return the bytes of many keys as a column.

    Raises:
        StateError: One of them is null.
    """
    encoded: pa.Array = spec.key_serde.encode(keys)
    if encoded.null_count:
        raise _null_key(spec, "a")
    return encoded


def keys_bytes(spec: StoreSpec, keys: Column) -> list[bytes]:
    """Return the bytes of many keys, each as Python bytes; errors as of `encode_keys`."""
    if len(keys) > FEW:
        return to_bytes_list(encode_keys(spec, keys))  # type: ignore[return-value] # no key is null
    rows = encode_rows(spec.key_serde, keys)
    if None in rows:
        raise _null_key(spec, "a")
    return rows  # type: ignore[return-value] # no key is null


def _null_key(spec: StoreSpec, article: str) -> StateError:
    return StateError(
        f"{article} key given to store {spec.name!r} is null",
        hint="State stores have no null keys; filter them out before.",
        store=spec.name,
    )
