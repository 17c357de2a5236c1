"""An S3 server in this process, for tests of what is kept in buckets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Run a server with a bucket, whose credentials are in the environment; yields its address.

    The test is skipped where moto is not installed.
    """
    boto3 = pytest.importorskip("boto3", reason="moto[s3] and flask are not installed")
    moto = pytest.importorskip("moto.server", reason="moto[s3] and flask are not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ACCESS_KEY_ID": "anyone", "SECRET_ACCESS_KEY": "anything", "REGION": "us-east-1"}.items():
            patch.setenv(f"AWS_{name}", value)
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
        yield endpoint
    server.stop()
