"""A standalone worker of connectors in the process of a test, with a file of lines to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.connect.rest import WorkerServer
from penstock.connect.worker_client import ConnectClient
from penstock.connect.worker_settings import WorkerConfig

__all__ = ["standalone_worker"]


@contextmanager
def standalone_worker(folder: Path) -> Iterator[ConnectClient]:
    """Run a worker over a log in ``folder``, beside ``lines.txt`` with two lines."""
    (folder / "lines.txt").write_text("a\nb\n")
    settings = {
        "bootstrap.servers": f"sqlite:///{folder}/log.db",
        "offset.storage.file.filename": str(folder / "offsets"),
        "listeners": "http://127.0.0.1:0",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    running = WorkerServer(WorkerConfig.of(settings, "standalone"))
    running.start()
    try:
        assert running.wait_until_ready(60)
        with ConnectClient(f"http://127.0.0.1:{running.port}") as client:
            yield client
    finally:
        running.stop()
