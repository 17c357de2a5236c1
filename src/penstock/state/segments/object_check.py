"""A check that an object store can hold a checkpoint, made before anything is started."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any

from penstock.errors import EnvironmentProblemError
from penstock.state.segments.object_storage import OBJECT_SCHEMES, new_object_store

__all__ = ["check_object_store"]

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
