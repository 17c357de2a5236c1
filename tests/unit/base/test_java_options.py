"""Java's options for Kafka's programs come from Kafka's own variable."""

from __future__ import annotations

import pytest

from penstock.base.jars import kafka_java_options
from penstock.errors import EnvironmentProblemError


@pytest.mark.parametrize(("text", "options"), [("", []), ("-Xmx1g  -Da='b c'", ["-Xmx1g", "-Da=b c"])])
def test_they_are_split_as_by_a_shell(monkeypatch: pytest.MonkeyPatch, text: str, options: list[str]) -> None:
    monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", text)
    assert kafka_java_options() == options


def test_a_quote_without_an_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_JVM_PERFORMANCE_OPTS", "-Da='b")
    with pytest.raises(
        EnvironmentProblemError, match="KAFKA_JVM_PERFORMANCE_OPTS cannot be read: No closing quotation"
    ):
        kafka_java_options()
