"""Apache Kafka's own Connect worker as a child process, for connectors that exist in Java only."""

from __future__ import annotations

import contextlib
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.base.jars import CONNECT_VERSION, Coordinates, fetch_jars, java_command, kafka_java_options
from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.tools.broker.process import guard

__all__ = ["JavaWorker", "check_noted", "package_folder", "parse_coordinates", "worker_jars"]

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_COORDINATE_PARTS = 3
_NOTED = "downloaded.sha256"


def parse_coordinates(text: str) -> Coordinates:
    """Read ``group:artifact:version``.

    Raises:
        ConfigError: It has another form.

    Example:
        >>> parse_coordinates("org.apache.kafka:connect-file:4.3.1")
        ('org.apache.kafka', 'connect-file', '4.3.1')
    """
    parts = tuple(text.strip().split(":"))
    if len(parts) != _COORDINATE_PARTS or not all(_PART.fullmatch(part) for part in parts):
        raise ConfigError(
            f"{text!r} is not a Maven coordinate", hint="group:artifact:version, as org.apache.kafka:connect-file:4.3.1"
        )
    return parts[0], parts[1], parts[2]


def package_folder(coordinates: Coordinates) -> Path:
    """Return the folder of a package's jars and those that it needs; downloads them if they are not cached.

    Raises:
        EnvironmentProblemError: They cannot be downloaded, or are not those of the first download any more.
    """
    return fetch_jars("packages/" + "_".join(coordinates), [coordinates], check=check_noted)


def check_noted(folder: Path) -> None:
    """Note the digests of downloaded jars, or compare them with those that were noted."""
    note = folder / _NOTED
    digests = "".join(f"{_digest(jar)}  {jar.name}\n" for jar in sorted(folder.glob("*.jar")))
    if not note.exists():
        note.write_text(digests, encoding="ascii")
    elif note.read_text(encoding="ascii") != digests:
        raise EnvironmentProblemError(
            f"the jars in {folder} have changed since they were downloaded",
            hint=f"Nothing of them was run. Delete the folder {folder} and try again.",
        )


def _digest(jar: Path) -> str:
    with jar.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_PARTS = ("connect-runtime", "connect-file", "connect-json", "connect-transforms", "connect-mirror")
_COORDINATES: tuple[Coordinates, ...] = (
    *(("org.apache.kafka", part, CONNECT_VERSION) for part in _PARTS),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)
_MAIN = "org.apache.kafka.connect.cli.Connect"
_STOP_S = 30.0
_LOGGING = """\
status = error
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = LEVEL
rootLogger.appenderRef.err.ref = err
"""


def worker_jars() -> Path:
    """Return the folder of the worker's jars; downloads them (about 30 MB) if they are not cached.

    Raises:
        EnvironmentProblemError: They cannot be downloaded.
    """
    return fetch_jars(f"kafka-connect-worker-{CONNECT_VERSION}", _COORDINATES)


class JavaWorker:
    """A worker of Apache Kafka, which ends with this process.

    Args:
        settings: The worker's settings, as in Kafka Connect's ``worker.properties``.
        connectors: Files of connectors: the worker is a standalone one with these. Without any it is distributed.
        packages: Maven coordinates of connectors, each loaded apart from the others as a plugin.
        heap: The heap of its JVM, such as ``1g``.
        level: The level of its log, which goes to standard error: ``warn`` or ``info``.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        connectors: Sequence[Path] = (),
        packages: Sequence[Coordinates] = (),
        *,
        heap: str = "1g",
        level: str = "warn",
    ) -> None:
        for path in connectors:
            if not path.is_file():
                raise ConfigError(f"there is no file {path}", hint="Give .properties or .json files of connectors.")
        self._settings = dict(settings)
        self._connectors = [path.absolute() for path in connectors]
        self._packages, self._heap, self._level = tuple(packages), heap, level
        self._ending = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start the process, and return its id.

        Raises:
            EnvironmentProblemError: Java or the jars are missing.
        """
        java, jars = java_command(), worker_jars()
        folder = Path(self._ending.enter_context(tempfile.TemporaryDirectory(prefix="connect-java-")))  # 0700
        plugins = folder / "plugins"
        plugins.mkdir()
        for each in self._packages:
            (plugins / "_".join(each)).symlink_to(package_folder(each), target_is_directory=True)
        plugin_path = self._settings.get("plugin.path", "")
        settings = {**self._settings, "plugin.path": ",".join(part for part in (plugin_path, str(plugins)) if part)}
        file = folder / "worker.properties"
        file.write_text("".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items()))
        (folder / "log4j2.properties").write_text(_LOGGING.replace("LEVEL", self._level))
        mode = "Standalone" if self._connectors else "Distributed"
        command = [
            java, f"-Xmx{self._heap}", *kafka_java_options(),
            f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}", "-cp", f"{jars}/*",
            f"{_MAIN}{mode}", str(file), *(str(path) for path in self._connectors),
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
        watcher = guard(self._process.pid)
        self._ending.callback(watcher.communicate)
        self._ending.callback(watcher.kill)
        return self._process.pid

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end of the process: its exit code, or None if it still runs."""
        assert self._process is not None, "call start() first"  # noqa: S101
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Let the worker end its connectors and leave its group; kill it if that takes long."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            if self.wait(_STOP_S) is None:
                self._process.kill()
                self._process.wait()
        self._ending.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _escaped(text: str) -> str:
    r"""Return a name or value for a ``.properties`` file.

    >>> _escaped("C:\\temp=\u00e9 x")
    'C\\:\\\\temp\\=\\u00e9\\ x'
    """
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", **{char: f"\\{char}" for char in "\\:=#! "}}
    plain = "".join(special.get(char, char) for char in text)
    units = plain.encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(unit) if unit < 0x7F else f"\\u{unit:04x}" for unit in pairs)
