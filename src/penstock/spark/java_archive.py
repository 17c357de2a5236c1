"""Java's archive of the classes that Spark loads: with it a session's JVM starts with half the CPU time.

Java reads, checks and links some 20,000 classes of Spark's jars at each start. It can keep the outcome in a file and
map that the next time (class data sharing). The file counts for one Java and one PySpark in one place only, so those
are in its name; where anything else differs, Java goes without it by itself.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from penstock.broker.jars import cache_directory, java_command
from penstock.errors import EnvironmentProblemError

__all__ = ["archive_options", "archive_path", "end_java", "recording_options"]

_SILENT = "-Xlog:cds*=off"  # Java would tell on the terminal why it goes without


def archive_path() -> Path:
    """Where the archive for this Java and this PySpark is, if it has been made.

    Raises:
        EnvironmentProblemError: Java or PySpark is missing.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise EnvironmentProblemError("PySpark is missing", hint="pip install pyspark")
    jars = Path(found.origin).parent / "jars"
    java = Path(java_command()).resolve()
    marks = [f"{path} {path.stat().st_mtime_ns}" for path in (jars, java) if path.exists()]
    return cache_directory() / f"spark-{hashlib.sha256(' '.join(marks).encode()).hexdigest()[:16]}.jsa"


def archive_options() -> list[str]:
    """What Java is told in order to use the archive; nothing as long as there is none."""
    try:
        path = archive_path()
    except (EnvironmentProblemError, OSError):
        return []
    # A path with a space would be cut in two: Spark splits the options there.
    return [f"-XX:SharedArchiveFile={path}", _SILENT] if path.exists() and " " not in str(path) else []


def recording_options(path: Path) -> str:
    """What Java is told in order to write an archive of all classes that it has loaded, at its end."""
    return f"-XX:ArchiveClassesAtExit={path} {_SILENT}"


def end_java(patience_s: float) -> None:
    """Ends the JVM of this process's stopped session and waits for what it does at its end."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark itself leaves it to the end of the process
    if gateway is None:
        return
    java = gateway.proc
    gateway.shutdown()
    java.stdin.close()  # the JVM takes that as the end of its driver
    java.wait(patience_s)
