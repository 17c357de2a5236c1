"""Secrets among Spark's settings, kept out of the JVM's command line and of what Spark shows."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext

from penstock.base.secrets import is_secret

__all__ = ["REDACTED", "secrets_off_command_line"]

REDACTED = r"(?i)secret|password|passphrase|token|access[.]?key|jaas|credential|user[.]info|api[.]key|keystore[.]key"
"""The setting ``spark.redaction.regex``: names of settings whose values Spark shows as stars."""
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"


@contextmanager
def secrets_off_command_line(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the settings that may become arguments of a JVM started inside the block.

    PySpark passes settings as arguments, which every user of the machine can read. Secrets go into a properties file
    instead, which only this user can read and which is deleted afterwards. Where a JVM runs already (as under
    ``spark-submit``), or the user names a properties file, settings stay as they are.
    """
    before = os.environ.get(_ARGUMENTS, "pyspark-shell")
    secrets = {name: value for name, value in settings.items() if is_secret(name)}
    if not secrets or SparkContext._gateway is not None or "--properties-file" in before:  # noqa: SLF001 - no public way
        yield dict(settings)
        return
    with tempfile.NamedTemporaryFile("w", prefix="penstock-spark-", suffix=".conf", encoding="ascii") as file:
        file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in secrets.items())
        file.flush()
        os.environ[_ARGUMENTS] = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults {before}"
        try:
            yield {name: value for name, value in settings.items() if name not in secrets}
        finally:
            if before == "pyspark-shell":
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def _escaped(text: str) -> str:
    """Write a text in the form of Java's ``Properties``: all but plain characters as their UTF-16 numbers."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(c) if re.fullmatch(r"[A-Za-z0-9._/+-]", chr(c)) else f"\\u{c:04x}" for c in codes)
