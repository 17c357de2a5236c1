"""Segments under a prefix of an object store, through ``obstore``."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

from penstock.errors import EnvironmentProblemError, StateError
from penstock.state.segments.local_storage import PARTS, write_failed
from penstock.state.segments.segment import SegmentName

__all__ = ["OBJECT_SCHEMES", "ObjectStorage", "check_object_store", "new_object_store", "object_store"]

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


_PATIENCE = timedelta(seconds=10)
_SETTINGS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and for another service than Amazon's "
    "AWS_ENDPOINT_URL",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}


def check_object_store(checkpoint: str) -> None:
    """Write an object, check that it cannot be overwritten, and remove it.

    Raises:
        EnvironmentProblemError: There is no storage for the scheme, the store does not answer or refuses, or it takes
            no conditional writes, by which exactly one of several attempts wins.
    """
    import obstore

    scheme = checkpoint.partition("://")[0]
    if scheme not in OBJECT_SCHEMES:
        raise EnvironmentProblemError(
            f"penstock.checkpoint.location is {checkpoint!r}: there is no storage for {scheme}://",
            hint="Give a directory that all machines share, or a URL with s3://, gs:// or az://.",
            checkpoint=checkpoint,
        )
    if scheme == "memory":
        return
    retry: Any = {"max_retries": 2, "retry_timeout": _PATIENCE}
    name, free = f".check-{secrets.token_hex(8)}", False
    try:
        store = new_object_store(checkpoint, client_options={"connect_timeout": _PATIENCE}, retry_config=retry)
        obstore.put(store, name, b"1", mode="create", use_multipart=False)
        try:
            obstore.put(store, name, b"2", mode="create", use_multipart=False)
            free = True
        except obstore.exceptions.AlreadyExistsError:
            pass
        with suppress(obstore.exceptions.BaseError, OSError):
            obstore.delete(store, name)
    except (obstore.exceptions.BaseError, OSError, ValueError) as error:
        said = str(error).strip().splitlines()
        raise EnvironmentProblemError(
            f"the checkpoint {checkpoint} cannot be written: {said[0] if said else type(error).__name__}",
            hint=f"Does the bucket exist, and may these credentials write there? Set in the environment of driver and "
            f"workers: {_SETTINGS[_family(scheme)]}.",
            checkpoint=checkpoint,
        ) from error
    if free:
        raise EnvironmentProblemError(
            f"the store of {checkpoint} overwrites objects in spite of If-None-Match",
            hint="A checkpoint needs conditional writes (If-None-Match: *). Amazon S3, Google, Azure, MinIO and others "
            "have them: update the store, or use a shared directory.",
            checkpoint=checkpoint,
        )


def _family(scheme: str) -> str:
    return {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}.get(scheme, "az")
