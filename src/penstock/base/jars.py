"""Jars by their Maven coordinates, such as the broker's, downloaded once by PySpark's Ivy and cached."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from penstock.errors import EnvironmentProblemError

__all__ = [
    "CONNECT_VERSION",
    "KAFKA_VERSION",
    "KAFKA_VERSIONS",
    "PINS",
    "Coordinates",
    "broker_jars",
    "cache_directory",
    "fetch_jars",
    "java_command",
    "kafka_java_options",
    "pinned",
]

PINS = Path(__file__).with_name("jars.sha256")
"""Lines ``digest  file name``, written by ``tools/pin_jars.py``."""


@cache
def pinned() -> Mapping[str, str]:
    """Read the pinned digests (SHA-256, hexadecimal) by file name."""
    lines = PINS.read_text(encoding="ascii").splitlines() if PINS.exists() else []
    return MappingProxyType({name: digest for digest, _, name in (line.partition("  ") for line in lines)})


def _check_jars(folder: Path) -> None:
    """Compare each jar of a folder with its pinned digest.

    Raises:
        EnvironmentProblemError: A jar is not pinned, or its content differs.
    """
    digests = pinned()
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digests.get(jar.name) != digest:
            relation = "differs in content from" if jar.name in digests else "is not one of"
            raise EnvironmentProblemError(
                f"{jar} {relation} the jars that Penstock was tested with (its SHA-256 is {digest})",
                hint=f"Nothing of it was run. Delete the folder {folder} and try again; if it comes back, the "
                "machine's Maven repository serves something else under this name.",
                jar=str(jar),
            )


Coordinates = tuple[str, str, str]
"""Group, artifact, version; ``artifact:classifier`` means the jar of that classifier beside the artifact's own."""

KAFKA_VERSION = "4.4.0"
KAFKA_VERSIONS = (KAFKA_VERSION, "4.3.1")
"""The versions of the broker whose jars are pinned; tests run over each."""

CONNECT_VERSION = "4.3.1"
"""The version of Kafka Connect whose worker is run, and whose behaviour ours is compared with."""

_LOGGER = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")  # without it the broker writes no log at all
_PATIENCE_S = 600


def cache_directory() -> Path:
    """Return the directory of downloads: ``PENSTOCK_CACHE``, or ``penstock`` in the user's cache folder."""
    own = os.environ.get("PENSTOCK_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def java_command() -> str:
    """Return the path of the java command.

    Raises:
        EnvironmentProblemError: Java is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME is {home}, which has no working bin/java" if home else "there is no java on the PATH"
        raise EnvironmentProblemError(f"Java is missing: {where}", hint="`penstock doctor` explains how to install it.")
    return java


def kafka_java_options() -> list[str]:
    """Return Java's options for Kafka's programs: ``KAFKA_JVM_PERFORMANCE_OPTS``, as for Kafka's own scripts.

    Raises:
        EnvironmentProblemError: They cannot be read.
    """
    try:
        return shlex.split(os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS", ""))
    except ValueError as error:
        raise EnvironmentProblemError(
            f"KAFKA_JVM_PERFORMANCE_OPTS cannot be read: {error}", hint="It is split as by a shell: close its quotes."
        ) from error


def broker_jars(version: str = KAFKA_VERSION) -> Path:
    """Return the folder of the jars of a broker of this version; downloads them (about 45 MB) if they are not cached.

    Raises:
        EnvironmentProblemError: They cannot be downloaded.
    """
    return fetch_jars(f"kafka-{version}", [("org.apache.kafka", "kafka_2.13", version), _LOGGER])


def fetch_jars(
    name: str,
    coordinates: Sequence[Coordinates],
    *,
    transitive: bool = True,
    check: Callable[[Path], None] = _check_jars,
) -> Path:
    """Return the folder ``name`` of the cache with these jars and their dependencies; downloads missing ones.

    Args:
        name: The name of the folder; it should contain the version, as an existing folder is never downloaded again.
        coordinates: The jars.
        transitive: Whether to include their dependencies.
        check: Checks the jars of the folder, each time; by default against the pins in ``jars.sha256``.

    Raises:
        EnvironmentProblemError: They cannot be downloaded, or differ from the pins; checked each time, as files in a
            cache can be changed later.
    """
    folder = cache_directory() / name
    if folder.is_dir():
        check(folder)
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two processes that start at once, one downloads and the other waits
        if not folder.is_dir():
            _fetch(folder, coordinates, transitive=transitive, check=check)
    check(folder)
    return folder


def _fetch(
    folder: Path, coordinates: Sequence[Coordinates], *, transitive: bool, check: Callable[[Path], None]
) -> None:
    """Download to a temporary folder, which is then renamed: a folder of this name is always complete."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        ivy_file = Path(scratch) / "ivy.xml"
        dependencies = "".join(_dependency(each, transitive=transitive) for each in coordinates)
        ivy_file.write_text(
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
            '<info organisation="penstock" module="jars"/>'
            "<configurations><conf name='default'/></configurations>"
            f"<dependencies>{dependencies}</dependencies></ivy-module>"
        )
        jars = Path(scratch) / "jars"
        command = [
            java_command(), "-jar", str(_ivy()), "-ivy", str(ivy_file), "-cache", str(Path(scratch) / "cache"),
            "-retrieve", f"{jars}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle",
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)  # noqa: S603
        except subprocess.TimeoutExpired as error:
            raise _not_fetched(folder, f"no end after {_PATIENCE_S} s") from error
        if done.returncode or not all((jars / name).exists() for each in coordinates for name in _file_names(each)):
            errors = [line for line in done.stdout.splitlines() if "UNRESOLVED" in line or "ERROR" in line]
            reason = "; ".join(errors[:3]) or done.stderr.strip()[-300:] or f"exit code {done.returncode}"
            raise _not_fetched(folder, reason)
        check(jars)
        jars.rename(folder)


def _dependency(coordinates: Coordinates, *, transitive: bool) -> str:
    """Return Ivy's element for a dependency.

    >>> _dependency(("org.slf4j", "slf4j-api", "1.7.36"), transitive=False)
    '<dependency org="org.slf4j" name="slf4j-api" rev="1.7.36" conf="default->default" transitive="false"></dependency>'
    """
    group, name, version = coordinates
    name, _, classifier = name.partition(":")
    artifacts = f'<artifact name="{name}"/><artifact name="{name}" m:classifier="{classifier}"/>' if classifier else ""
    depth = str(transitive).lower()
    return (
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->default" transitive="{depth}">'
        f"{artifacts}</dependency>"
    )


def _file_names(coordinates: Coordinates) -> list[str]:
    """Return the names of the files that must come.

    >>> _file_names(("org.apache.kafka", "kafka-streams:test", "4.4.0"))
    ['kafka-streams-4.4.0.jar', 'kafka-streams-4.4.0-test.jar']
    """
    _, name, version = coordinates
    name, _, classifier = name.partition(":")
    return [f"{name}-{version}.jar", *([f"{name}-{version}-{classifier}.jar"] if classifier else [])]


def _not_fetched(folder: Path, reason: str) -> EnvironmentProblemError:
    return EnvironmentProblemError(
        f"the jars of {folder.name} could not be fetched: {reason}",
        hint="They come from the machine's Maven repository: check the network, or copy the folder "
        f"{folder} from a machine that has it.",
    )


def _ivy() -> Path:
    spec = find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    ivy_jars = sorted(path for folder in places or () for path in (Path(folder) / "jars").glob("ivy-*.jar"))
    if not ivy_jars:
        raise EnvironmentProblemError("PySpark has no Ivy jar", hint="Install PySpark from PyPI: pip install pyspark")
    return ivy_jars[-1]
