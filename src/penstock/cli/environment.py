"""Checks of this machine: versions, Java, writable directories."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from penstock.base.check_result import CheckResult
from penstock.base.terminal.human_numbers import size
from penstock.base.version import __version__
from penstock.state.private_folders import state_home

__all__ = ["examine", "java_version", "kafka_packages", "versions"]

_PACKAGES = ("pyspark", "polars", "pyarrow", "numpy", "lmdb", "obstore", "cloudpickle", "crc32c")
_FOR_KAFKA = ("confluent-kafka", "kafka-python", "cryptography")
_MIN_JAVA = 17
_MIN_FREE_BYTES = 1 << 30


def versions() -> dict[str, str]:
    """Return the versions of Penstock and its dependencies."""
    own = {"penstock": __version__, "python": platform.python_version()}
    return {**own, **_installed(_PACKAGES), "java": java_version() or "missing"}


def _installed(names: Iterable[str]) -> dict[str, str]:
    by_name = {}
    for name in names:
        try:
            by_name[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            by_name[name] = "missing"
    return by_name


def kafka_packages() -> list[CheckResult]:
    """Check the further packages for Kafka as the log."""
    remedy = 'pip install "penstock[kafka]"'
    return [
        CheckResult(name, number, ok=number != "missing", remedy=remedy if number == "missing" else "")
        for name, number in _installed(_FOR_KAFKA).items()
    ]


def java_version() -> str | None:
    """Return the version of the Java that Spark would start; None without one."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java:
        return None
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', printed.stderr + printed.stdout)
    return match[1] if match else None


def examine(state_dir: Path | None = None, port: int | None = None) -> list[CheckResult]:
    """Check all requirements of a run.

    Args:
        state_dir: The directory for state; by default the working directory, or the user's directory of state where
            the working directory cannot be written to, as in the image.
        port: A port that must be free; None: none, as Spark's web page is off by default.
    """
    directory = state_dir or (Path.cwd() if os.access(Path.cwd(), os.W_OK) else state_home() / "penstock")
    return [
        _python(),
        *_packages(),
        _java(),
        _address(),
        *([] if port is None else [_port(port)]),
        *_places(directory),
        CheckResult("processors", str(os.cpu_count() or 1), ok=True),
    ]


def _python() -> CheckResult:
    return CheckResult("Python", platform.python_version(), ok=True)


def _packages() -> list[CheckResult]:
    findings = []
    for name, number in versions().items():
        if name in _PACKAGES:
            missing = number == "missing"
            remedy = f"pip install {name}" if missing else ""
            if name == "pyspark" and not missing and not (4, 2) <= _pair(number) < (5, 0):
                remedy = 'pip install "pyspark>=4.2,<5"'
            findings.append(CheckResult(name, number, ok=not remedy, remedy=remedy))
    return findings


def _pair(number: str) -> tuple[int, int]:
    major, minor = [*re.findall(r"\d+", number), "0", "0"][:2]
    return int(major), int(minor)


def _java() -> CheckResult:
    number = java_version()
    home = os.environ.get("JAVA_HOME")
    install = "Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17"
    if number is None:
        remedy = f"JAVA_HOME is {home}, which has no working bin/java" if home else f"Install Java 17. {install}"
        return CheckResult("Java", "missing", ok=False, remedy=remedy)
    major = _pair(number)[0]
    if major < _MIN_JAVA:
        return CheckResult("Java", number, ok=False, remedy=f"Spark needs Java {_MIN_JAVA} or later. {install}")
    return CheckResult("Java", number, ok=True)


def _address() -> CheckResult:
    name = socket.gethostname()
    try:
        return CheckResult("host name", f"{name} ({socket.gethostbyname(name)})", ok=True)
    except OSError:
        remedy = "Spark asks for the address of its host: add the name to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1"
        return CheckResult("host name", f"{name} has no address", ok="SPARK_LOCAL_IP" in os.environ, remedy=remedy)


def _port(port: int) -> CheckResult:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return CheckResult(f"port {port}", "busy: Spark's web page would take the next free one", ok=True)
    return CheckResult(f"port {port}", "free", ok=True)


def _places(directory: Path) -> list[CheckResult]:
    name = f"directory {directory}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory):
            pass
    except OSError as error:
        remedy = "Give a directory that this user may write to (state.dir)."
        return [CheckResult(name, f"not writable: {error.strerror}", ok=False, remedy=remedy)]
    free = shutil.disk_usage(directory).free
    enough = free >= _MIN_FREE_BYTES
    remedy = "" if enough else "Less than 1 GiB is free: state and topics need room."
    return [
        CheckResult(name, "writable", ok=True),
        CheckResult("free disk", size(free), ok=enough, remedy=remedy),
    ]
