"""Java's archive of the classes that Spark loads: with it a session's JVM starts with half the CPU time.

Java reads, checks and links some 20,000 classes of Spark's jars at each start. It can keep the outcome in a file and
map that the next time (class data sharing). The file counts for one Java and one PySpark in one place only, so those
are in its name; where anything else differs, Java goes without it by itself.

There are two: Java copies all of an archive into its memory, and stream threads need 40 % of what Spark SQL loads. The
other one does where an application's own is not there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from penstock.base.jars import cache_directory, java_command
from penstock.base.log_lines import own_logger
from penstock.errors import EnvironmentProblemError

__all__ = ["archive_options", "archive_path", "end_java", "make_in_background", "recording_options"]

_AGAIN_S = 24 * 3600.0
_SWITCH = "PENSTOCK_JAVA_ARCHIVE"
_log = own_logger(__name__)
_SILENT = "-Xlog:cds*=off"  # Java would print on the terminal why it goes without


def archive_path(*, with_sql: bool) -> Path:
    """Return the path of the archive for this Java and this PySpark, which may not exist yet.

    Args:
        with_sql: Whether it holds Spark SQL, which queries use and stream threads do not.

    Raises:
        EnvironmentProblemError: Java or PySpark is missing.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EnvironmentProblemError("PySpark is missing", hint="pip install pyspark")
    jars = Path(spec.origin).parent / "jars"
    java = Path(java_command()).resolve()
    marks = [f"{path} {path.stat().st_mtime_ns}" for path in (jars, java) if path.exists()]
    name = f"spark-{hashlib.sha256(' '.join(marks).encode()).hexdigest()[:16]}"
    return cache_directory() / f"{name}{'' if with_sql else '-threads'}.jsa"


def archive_options(*, with_sql: bool) -> list[str]:
    """Return Java's options for using an archive, the one asked for if it exists; none without any."""
    try:
        paths = [archive_path(with_sql=with_sql), archive_path(with_sql=not with_sql)]
    except (EnvironmentProblemError, OSError):
        return []
    # A path with a space would be cut in two: Spark splits the options there.
    path = next((path for path in paths if path.exists() and " " not in str(path)), None)
    return [f"-XX:SharedArchiveFile={path}", _SILENT] if path else []


def make_in_background(*, with_sql: bool) -> None:
    """Start to make an archive in a process of lowest priority, if there is none; it ends by itself in a minute.

    Tried once a day, as it may not be possible here; never with ``PENSTOCK_JAVA_ARCHIVE=off`` in the environment.
    """
    try:
        path = archive_path(with_sql=with_sql)
        tried = path.with_suffix(".tried")
        if os.environ.get(_SWITCH) == "off" or path.exists() or " " in str(path):
            return
        if tried.exists() and time.time() - tried.stat().st_mtime < _AGAIN_S:
            return
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        tried.touch()
        command = [sys.executable, "-m", "penstock.cli.java_archive", "sql" if with_sql else "threads"]
        if (nice := shutil.which("nice")) is not None:
            command = [nice, "-n", "19", *command]
        subprocess.Popen(  # noqa: S603 - this very Python
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, cwd=path.parent, env={**os.environ, _SWITCH: "off"},
        )  # fmt: skip
    except (EnvironmentProblemError, OSError) as error:
        _log.debug("Java's class archive is not made: %s", error)
        return
    _log.info("Java's class archive is being made in the background: the next start takes half the time")


def recording_options(path: Path) -> str:
    """Return Java's options for writing an archive of all loaded classes at its end."""
    return f"-XX:ArchiveClassesAtExit={path} {_SILENT}"


def end_java(patience_s: float) -> None:
    """End the JVM of this process's stopped session and wait for its end."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark itself leaves it to the end of the process
    if gateway is None:
        return
    java = gateway.proc
    gateway.shutdown()
    java.stdin.close()  # which the JVM treats as the end of its driver
    java.wait(patience_s)
