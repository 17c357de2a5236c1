"""Segments under a prefix of an object store, through ``obstore``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from penstock.errors import StateError
from penstock.state.segments.local_storage import PARTS, write_failed
from penstock.state.segments.segment import SegmentName

__all__ = ["OBJECT_SCHEMES", "ObjectStorage", "new_object_store", "object_store"]

OBJECT_SCHEMES = frozenset({"memory", "s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss"})
_OBSTORES_NAMES = {"s3a": "s3", "gcs": "gs"}  # of schemes that only others know


class ObjectStorage:
    """A prefix in an object store, through ``obstore``."""

    def __init__(self, store: Any, prefix: str, url: str) -> None:
        self._store = store
        self._prefix = prefix
        self._url = url.rstrip("/")

    def names(self) -> list[SegmentName]:
        names = [SegmentName.parse(path.rsplit("/", 1)[-1]) for path, _ in self._list(self._prefix)]
        return sorted(name for name in names if name is not None)

    def where(self, name: SegmentName) -> str:
        return f"{self._url}/{self._prefix}/{name}"

    def read(self, name: SegmentName) -> bytes | memoryview | None:
        return self._get(f"{self._prefix}/{name}")

    def exists(self, name: SegmentName) -> bool:
        import obstore

        try:
            obstore.head(self._store, f"{self._prefix}/{name}")
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return False
        return True

    def create(self, name: SegmentName, parts: Sequence[Any]) -> bool:
        import obstore

        try:
            obstore.put(self._store, f"{self._prefix}/{name}", b"".join(parts), mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            return False
        except (OSError, obstore.exceptions.BaseError) as error:
            raise write_failed(self.where(name), error) from error
        return True

    def put_part(self, name: SegmentName, label: str, parts: Sequence[Any]) -> None:
        import obstore

        try:
            obstore.put(self._store, f"{self._parts_of(name.batch)}/{label}", b"".join(parts))
        except (OSError, obstore.exceptions.BaseError) as error:
            raise write_failed(f"{self.where(name)}, part {label},", error) from error

    def read_part(self, name: SegmentName, label: str) -> bytes | memoryview | None:
        return self._get(f"{self._parts_of(name.batch)}/{label}")

    def delete_part(self, name: SegmentName, label: str) -> None:
        self._remove(f"{self._parts_of(name.batch)}/{label}")

    def remove_parts(self, before: int) -> None:
        for path, _ in self._list(f"{self._prefix}/{PARTS}"):
            batch = path.rsplit("/", 2)[-2]
            if batch.isdecimal() and int(batch) < before:
                self._remove(path)

    def _parts_of(self, batch: int) -> str:
        return f"{self._prefix}/{PARTS}/{batch}"

    def make_durable(self, name: SegmentName) -> None:
        """Do nothing: an object that can be read is durable."""

    def delete(self, name: SegmentName) -> None:
        self._remove(f"{self._prefix}/{name}")
        if name.kind == "snapshot":
            for path, _ in self._list(self._parts_of(name.batch)):
                self._remove(path)

    def sizes(self) -> dict[SegmentName, int]:
        sizes: dict[SegmentName, int] = {}
        parts: dict[str, int] = {}
        for path, size in self._list(self._prefix):
            folder, _, last = path.rpartition("/")
            name = SegmentName.parse(last)
            if name is not None:
                sizes[name] = size
            else:
                parts[folder] = parts.get(folder, 0) + size
        return {
            name: size + (parts.get(self._parts_of(name.batch), 0) if name.kind == "snapshot" else 0)
            for name, size in sorted(sizes.items())
        }

    def size_bytes(self) -> int:
        return sum(size for _, size in self._list(self._prefix))

    def _get(self, path: str) -> memoryview | None:
        import obstore

        try:
            return memoryview(obstore.get(self._store, path).bytes())
        except (FileNotFoundError, obstore.exceptions.NotFoundError):
            return None
        except (OSError, obstore.exceptions.BaseError) as error:
            where = f"{self._url}/{path}"
            raise StateError(
                f"segment {where} could not be read: {str(error).splitlines()[0]}",
                hint="Does the store answer, and may these credentials read there? Start again: it continues where it "
                "stopped.",
                segment=where,
            ) from error

    def _remove(self, path: str) -> None:
        import obstore

        with suppress(FileNotFoundError, obstore.exceptions.NotFoundError):
            obstore.delete(self._store, path)

    def _list(self, prefix: str) -> Iterator[tuple[str, int]]:
        import obstore

        for page in obstore.list(self._store, prefix=prefix):
            for entry in page:
                yield entry["path"], int(entry["size"])


@cache
def object_store(url: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """Return one store per URL and process: its connections are reused, and ``memory://`` is one memory."""
    import obstore.store

    if url.startswith("memory:"):
        return obstore.store.MemoryStore()
    return new_object_store(url, **dict(options))


def new_object_store(url: str, **options: Any) -> Any:
    """Return a new store, with the settings of the environment (``AWS_...``)."""
    import obstore.store

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint.startswith("http://"):  # plain HTTP was asked for
        options["client_options"] = {"allow_http": True, **options.get("client_options", {})}
    scheme, _, rest = url.partition("://")
    return obstore.store.from_url(f"{_OBSTORES_NAMES.get(scheme, scheme)}://{rest}", **options)
