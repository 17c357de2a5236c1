"""Brokers for tests: of their own folder, on free ports of the loopback address.

The first one makes Java's archive of the classes that brokers load, for all processes that run tests with this Java and
these jars: with it a broker costs 60 percent of the CPU time from its start to its end. Storage is formatted once for a
version of Kafka, by a JVM of its own, and copied for other brokers.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.base.jars import KAFKA_VERSION, broker_jars, cache_directory, java_command
from penstock.errors import EnvironmentProblemError
from penstock.log.open import open_log
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker, new_cluster_id

__all__ = ["JAVA_OPTIONS", "RUNNING", "java_options", "running_broker"]

RUNNING: list[Broker] = []  # those of this process
JAVA_OPTIONS = "KAFKA_JVM_PERFORMANCE_OPTS"
# Brokers of tests live for seconds: Java's optimizing compiler would cost most of their time.
_SHORT_RUN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# One that waits for the next test does less: its controller writes nothing, and fewer threads look for work.
_WAITING = {"metadata.max.idle.interval.ms": "0", "num.io.threads": "4", "num.network.threads": "2"}
_SILENT = "-Xlog:cds*=off -Xlog:class+path=off"  # Java goes without what does not fit, and would say so


def java_options() -> str:
    """Return the options of brokers' Java, which uses the archive as soon as it is there."""
    try:
        return f"{_SHORT_RUN} -XX:SharedArchiveFile={_archive_path()} {_SILENT}"
    except (EnvironmentProblemError, OSError):
        return _SHORT_RUN


def _archive_path() -> Path:
    """Return the path of the archive for this Java and these jars, which are in no other place."""
    java, jars = Path(java_command()).resolve(), cache_directory() / f"kafka-{KAFKA_VERSION}"
    marks = f"{java} {java.stat().st_mtime_ns} {jars}"
    return cache_directory() / f"brokers-{hashlib.sha256(marks.encode()).hexdigest()[:16]}.jsa"


def _make_archive() -> None:
    """Make the archive, if there is none: a broker writes it at its end; other processes wait for it."""
    if java_options() != os.environ.get(JAVA_OPTIONS) or (path := _archive_path()).exists():
        return
    broker_jars()
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        with tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parent) as folder:
            archive = Path(folder) / path.name
            settings = BrokerSettings(Path(folder) / "kafka", free_port(), free_port())
            try:
                os.environ[JAVA_OPTIONS] = f"{_SHORT_RUN} -XX:ArchiveClassesAtExit={archive} {_SILENT}"
                with Broker(settings) as broker, open_log(broker.settings.bootstrap_servers) as log:
                    log.create_topic("words", 2)
            finally:
                os.environ[JAVA_OPTIONS] = java_options()
            if archive.exists():
                archive.replace(path)


_IDS = "meta.properties"
# What else formatting writes, by version; no broker changes it.
_CHECKPOINTS = ("__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", "bootstrap.checkpoint")


def _formatted_path(version: str) -> Path:
    return cache_directory() / f"formatted-{version}"


def _copy_formatted(settings: BrokerSettings) -> None:
    """Give a new broker the storage that another one of its version was formatted with, by ids of its own."""
    formatted, data = _formatted_path(settings.version), settings.directory / "data"
    if not formatted.exists() or data.exists():
        return
    shutil.copytree(formatted, data)
    text = (data / _IDS).read_text()
    for name in ("cluster.id", "directory.id"):  # of the same form
        text = re.sub(rf"(?m)^{re.escape(name)}=.*$", f"{name}={new_cluster_id()}", text)
    (data / _IDS).write_text(text)


def _keep_formatted(settings: BrokerSettings) -> None:
    """Keep what a broker's storage was formatted with for others, unless another process has kept it."""
    formatted, data = _formatted_path(settings.version), settings.directory / "data"
    checkpoints = [each for each in _CHECKPOINTS if (data / each).exists()]
    if formatted.exists() or not checkpoints:
        return
    with tempfile.TemporaryDirectory(prefix=".formatted-", dir=formatted.parent) as folder:
        kept = Path(folder) / "data"
        for name in (_IDS, *checkpoints):
            (kept / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(data / name, kept / name)
        with suppress(OSError):  # it is there
            kept.rename(formatted)


@contextmanager
def running_broker(
    directory: Path,
    users: Mapping[str, str] | None = None,
    *,
    acls: bool = False,
    partitions: int = 1,
    version: str = "",
    more: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """A broker that runs until the end of the block.

    Args:
        directory: Where its data goes.
        users: User -> password; with any there are listeners for SASL and mTLS beside the plain one.
        acls: Whether it asks for rights; "admin" and whoever uses the plain listener have all.
        partitions: Of topics that do not say otherwise.
        version: Of Kafka; by default ``TEST_KAFKA_VERSION``, or Penstock's own default.
        more: Further settings by Kafka's names.
    """
    _make_archive()
    secured = {"sasl_port": free_port(), "tls_port": free_port(), "users": dict(users)} if users else {}
    version = version or os.environ.get("TEST_KAFKA_VERSION", KAFKA_VERSION)
    settings = BrokerSettings(
        directory, free_port(), free_port(), partitions=partitions, acls=acls, version=version,
        more=_WAITING | dict(more or {}), **secured  # type: ignore[arg-type]
    )  # fmt: skip
    is_plain = not users and not more  # nothing of it is in what formatting writes
    if is_plain:
        _copy_formatted(settings)
    with Broker(settings) as running:
        if is_plain:
            _keep_formatted(settings)
        RUNNING.append(running)
        try:
            yield running
        finally:
            RUNNING.remove(running)
            running.stop(kill=True)  # an end in order takes a second, and its data is of no use
