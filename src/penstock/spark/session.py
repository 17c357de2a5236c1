"""The Spark session of an application."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from penstock.errors import EnvironmentProblemError
from penstock.spark.java_archive import archive_options
from penstock.spark.worker_process import ENVIRONMENT

__all__ = ["check_java", "quiet_pandas", "register_source", "session_for"]

_MINIMUM_JAVA = 17
_STREAMING: Mapping[str, str] = {
    # A micro-batch has a few tiny shuffles of known width: planning them anew each time only costs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # 4.2 writes a checksum file beside each of its offset and commit files (110 ms a batch in place of 30). Given up is
    # only that a bit flipped inside such a small JSON file is found by its checksum rather than by its parser.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # 4.2 compares checksums of shuffle rows. If those of a map task that runs again differ when part of the last stage
    # is done, it ends the job and with it the query: an executor that is lost would end the application. The rows that
    # matter are the same in each attempt, as they come from a published segment; but reports have times in them.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.stopTimeout": "20s",
}
# A JVM that only plans runs little code often. Its optimizing compiler would take some 7 s of CPU until the first
# record and half of the JVM's CPU of each batch, away from the Python workers that do the work.
_NO_OPTIMIZING_COMPILER = "-XX:TieredStopAtLevel=1"
_SMALL_COLLECTOR = "-XX:+UseSerialGC"
_RECORDING = "-XX:ArchiveClassesAtExit"  # not on top of an archive
# Plain files with an atomic rename; the default goes through Hadoop's FileContext, which forks for permissions.
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def session_for(
    settings: Mapping[str, Any],
    application_id: str,
    checkpoint: str,
    *,
    session: SparkSession | None = None,
    rows_in_jvm: bool = False,
) -> tuple[SparkSession, bool]:
    """The running session if there is one, else a new one with the user's ``spark.*`` settings; and whether it is new.

    Args:
        settings: Names with their ``spark.`` prefix. Without ``spark.master`` it is ``local[*]``.
        application_id: The name that Spark shows.
        checkpoint: The checkpoint location; a local one gets Spark's faster file manager.
        session: The user's own session, taken in any case.
        rows_in_jvm: Whether a new session's JVM handles records: those of DataFrames, or of real-time mode.
            Otherwise it only plans, and is told to spend less on itself.
    """
    fast = dict(_STREAMING)
    if "://" not in checkpoint or checkpoint.startswith("file:"):
        fast["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_FILES
    wanted = {name: str(value) for name, value in settings.items()}
    with quiet_pandas():
        session = session or SparkSession.getActiveSession()
        is_new = session is None
        if session is None:
            check_java()
            session = _new_session(fast, wanted, application_id, _java_options(wanted, rows_in_jvm=rows_in_jvm))
        for name, value in {**fast, **wanted}.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
    return session, is_new


def register_source(session: SparkSession, source: type[DataSource]) -> None:
    """Makes a data source known to a session, which becomes this thread's active one.

    Spark looks for what is registered in the active session. For one made by ``newSession()`` it would find the source
    of the session that it came from: refuse to register it, and then not find it when a query asks for it.
    """
    virtual_machine: Any = session._jvm  # noqa: SLF001 - as PySpark itself does it; there is no public way
    virtual_machine.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    session.dataSource.register(source)


def _java_options(wanted: Mapping[str, str], *, rows_in_jvm: bool) -> str:
    """Of the driver's JVM; what the user says comes last, which is what Java goes by."""
    given = wanted.get("spark.driver.extraJavaOptions", "")
    options = ["-Xss8m", f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"]
    if not rows_in_jvm:
        options.append(_NO_OPTIMIZING_COMPILER)
        if "GC" not in given:  # Java refuses two collectors
            options.append(_SMALL_COLLECTOR)
    if _RECORDING not in given:
        options += archive_options()
    return " ".join([*options, given]).strip()


def _new_session(fast: Mapping[str, str], wanted: Mapping[str, str], application_id: str, java: str) -> SparkSession:
    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Over TCP, what is sent after a small piece waits up to 40 ms for an acknowledgement: 30 ms of each batch.
        "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
        **{f"spark.executorEnv.{name}": value for name, value in ENVIRONMENT.items()},
        **fast,
        **wanted,
        "spark.driver.extraJavaOptions": java,
    }
    if str(settings["spark.master"]).startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers in this very environment
    builder = SparkSession.builder.appName(application_id)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        text = str(error)
        if "BindException" in text or "could not bind" in text.lower():
            raise EnvironmentProblemError(
                f"Spark could not open a port: {text.splitlines()[0]}",
                hint="Another process has it. Set spark.ui.port or spark.driver.port to a free one, or leave them out.",
            ) from error
        raise EnvironmentProblemError(
            f"Spark did not start: {text.splitlines()[0] if text else type(error).__name__}",
            hint="`penstock doctor` looks for what is missing.",
        ) from error


def check_java() -> None:
    """Raises EnvironmentProblemError unless a Java that runs Spark is there."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = "Install Java 17 or later (a JDK or JRE; on Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME."
    if java is None or not Path(java).exists():
        raise EnvironmentProblemError(
            f"Spark needs Java, and there is none{f' in {home}' if home else ''}", hint=remedy
        )
    run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found above
    version = run.stderr.partition('version "')[2].partition('"')[0]
    major = version.removeprefix("1.").split(".", 1)[0]
    if major.isdecimal() and int(major) < _MINIMUM_JAVA:
        raise EnvironmentProblemError(f"Spark needs Java 17 or later; {java} is Java {version}", hint=remedy)


@contextmanager
def quiet_pandas() -> Iterator[None]:
    """PySpark warns about every new pandas, which nothing here goes through."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        yield
