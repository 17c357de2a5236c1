"""Spark logs as a library does: its settings are those that lie beside the session."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from penstock.engines.spark import session


def test_the_file_that_the_jvm_is_given_is_there() -> None:
    (option,) = [
        each
        for each in session._java_options({}, rows_in_jvm=True).split()
        if each.startswith("-Dlog4j2.configurationFile=")
    ]
    assert "appender" in Path(urlsplit(option.partition("=")[2]).path).read_text(encoding="utf-8")
