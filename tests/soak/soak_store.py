"""An S3 server in memory for the checkpoint of the soak; a process of its own, as it must not wait for the soak's work.

python soak_store.py PORT
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.tools.broker.broker_settings import free_port

BUCKET = "soak"
HOST = "127.0.0.1"
UP_S = 60


def environment(port: int) -> dict[str, str]:
    """What clients need to find it."""
    return {
        "AWS_ACCESS_KEY_ID": "anyone",
        "AWS_SECRET_ACCESS_KEY": "anything",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def object_store(log: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a new bucket, and the environment of those who use it."""
    port = free_port()
    with (
        log.open("ab") as said,
        subprocess.Popen(
            [sys.executable, __file__, str(port)], stdin=subprocess.PIPE, stdout=said, stderr=said
        ) as server,
    ):
        try:
            wait_for(port, server)
            make_bucket(port)
            yield f"s3://{BUCKET}", environment(port)
        finally:
            server.kill()


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + UP_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        assert server.poll() is None, "the S3 server has ended"
        assert time.monotonic() < end, "the S3 server does not start"
        time.sleep(0.1)


def make_bucket(port: int) -> None:
    import boto3

    keys = {"aws_access_key_id": "anyone", "aws_secret_access_key": "anything", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://{HOST}:{port}", **keys).create_bucket(Bucket=BUCKET)


class OneAtATime:
    """moto looks whether an object exists and then writes it: two requests at once would both succeed.

    A request is read before it waits for its turn, so that a client that is killed or stalled holds up nobody.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if not environ.get("wsgi.input_terminated"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._lock:
            return list(self._application(environ, start_response))


def end_with_parent() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    threading.Thread(target=end_with_parent, daemon=True).start()
    served = OneAtATime(DomainDispatcherApplication(create_backend_app))
    run_simple(HOST, int(sys.argv[1]), served, threaded=True)
