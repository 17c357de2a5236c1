"""Proves that Spark and its Kafka connector work here: starts the one, loads the other, reads something."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import EnvironmentProblemError, PenstockError
from penstock.spark.connector import add_connector, connector_jars
from penstock.spark.session import quiet_pandas, session_for

__all__ = ["prove_connector"]


def prove_connector(
    servers: str | None, settings: Mapping[str, Any], jars: Sequence[str] = ()
) -> list[tuple[str, str, str]]:
    """What was tried: a name, what was found, and what to do if that is bad (else empty).

    Args:
        servers: Brokers to read from; None: the connector is loaded only.
        settings: Of Kafka's clients, by their Java names.
        jars: As ``penstock.kafka.jars``.
    """
    found: list[tuple[str, str, str]] = []
    try:
        paths = connector_jars(jars)
        found.append(("Kafka connector", ", ".join(path.name for path in paths), ""))
        with tempfile.TemporaryDirectory() as scratch, quiet_pandas():
            session, is_new = session_for({"spark.master": "local[1]"}, "penstock-doctor", scratch)
            try:
                add_connector(session, jars)
                found.append(("Spark loads it", f"Spark {session.version}", ""))
                if servers is not None:
                    found.append(_reads(session, servers, settings))
            finally:
                if is_new:
                    session.stop()
    except PenstockError as error:
        found.append(("Kafka connector", error.message, error.hint))
    return found


def _reads(session: Any, servers: str, settings: Mapping[str, Any]) -> tuple[str, str, str]:
    """Reads one record of any topic that this user may read."""
    from penstock.log.kafka.settings import ClientSettings
    from penstock.log.open import open_log

    name = f"reads {servers}"
    with open_log(servers, settings) as log:
        topics = [info.name for info in log.topics()]
        ends = log.end_offsets(topics) if topics else {}
        first = log.beginning_offsets(topics) if topics else {}
    full = sorted({tp.topic for tp, end in ends.items() if end > first[tp]})
    if not full:
        return name, f"the broker answers; there is nothing to read in its {len(topics)} topics", ""
    reader = session.read.format("kafka").option("subscribe", full[0])
    for option, value in ClientSettings.of(servers, settings).jvm("consumer").items():
        reader = reader.option(f"kafka.{option}", value)
    try:
        rows = reader.load().limit(1).collect()
    except Exception as error:
        raise EnvironmentProblemError(
            f"Spark's connector does not read {full[0]}: {str(error).splitlines()[0]}",
            hint="The client of Python does: compare what both are told, and what the Java side may reach.",
        ) from error
    return name, f"{len(rows)} record of {full[0]}", ""
