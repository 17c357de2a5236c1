"""Proves that Spark and its Kafka connector work here: asks the broker, starts Spark, loads the connector, reads."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.errors import AuthorizationError, EnvironmentProblemError, LogError, LogUnavailableError, PenstockError
from penstock.spark.connector import add_connector, connector_jars
from penstock.spark.session import quiet_pandas, session_for

__all__ = ["prove_connector"]

Proof = tuple[str, str, str]
_PATIENCE_MS = 10_000  # somebody waits for the answer
_CONNECT_S = 5.0
_TOPICS_TRIED = 20


def prove_connector(servers: str | None, settings: Mapping[str, Any], jars: Sequence[str] = ()) -> Iterator[Proof]:
    """What was tried: a name, what was found, and what to do if that is bad (else empty). It ends at the first bad one.

    Args:
        servers: Brokers to read from; None: the connector is loaded only.
        settings: Of Kafka's clients, by their Java names.
        jars: As ``penstock.kafka.jars``.
    """
    step = "Kafka connector"
    try:
        topic: str | None = None
        if servers is not None:
            step = f"broker {servers}"
            found, topic = _ask(servers, settings)
            yield step, found, ""
            step = "Kafka connector"
        paths = connector_jars(jars)
        yield step, f"{', '.join(path.name for path in paths)} in {paths[0].parent}", ""
        step = "Spark loads it"
        with _spark() as session:
            add_connector(session, jars)
            yield step, f"Spark {session.version}", ""
            if servers is not None and topic is not None:
                step = "Spark reads with it"
                yield step, _read(session, servers, settings, topic), ""
    except PenstockError as error:
        yield step, error.message, error.hint or "The message says all that is known."


@contextmanager
def _spark() -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as scratch, quiet_pandas():
        session, is_new = session_for({"spark.master": "local[1]"}, "penstock-doctor", scratch)
        try:
            yield session
        finally:
            if is_new:
                session.stop()


def _ask(servers: str, settings: Mapping[str, Any]) -> tuple[str, str | None]:
    """What the broker has, and a topic with records that this user may read."""
    from penstock.log.open import open_log
    from penstock.log.url import kafka_servers

    if kafka_servers(servers) is None:
        raise LogError(
            f"{servers} is no address of Kafka", hint="Give host:port; an embedded log needs no connector at all."
        )
    _reach(servers)
    with open_log(servers, {**settings, "task.timeout.ms": _PATIENCE_MS}) as log:
        topics = [info.name for info in log.topics()]
        ends = log.end_offsets(topics) if topics else {}
        starts = log.beginning_offsets(topics) if topics else {}
        full = [place for place, end in sorted(ends.items()) if end > starts[place]]
        said = f"answers; {len(topics)} topics"
        for place in full[:_TOPICS_TRIED]:
            try:
                if log.read(place.topic, place.partition, starts[place], 1).records.num_rows:
                    return said, place.topic
            except AuthorizationError:
                continue
    return f"{said}, with nothing that this user may read", None


def _reach(servers: str) -> None:
    """Raises unless somebody listens at one of the addresses: clients would go on trying, and not say why."""
    failures = []
    for server in servers.removeprefix("kafka://").split(","):
        host, _, port = server.strip().rstrip("/").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        except (OSError, ValueError) as error:
            failures.append(f"{server}: {error}")
        else:
            return
    raise LogUnavailableError(
        f"nobody answers at {'; '.join(failures)}",
        hint="Are host and port right, and does the broker run? `penstock broker start` starts one on this machine.",
    )


def _read(session: Any, servers: str, settings: Mapping[str, Any], topic: str) -> str:
    from penstock.log.kafka.settings import ClientSettings

    reader = session.read.format("kafka").option("subscribe", topic)
    for option, value in ClientSettings.of(servers, settings).jvm("consumer").items():
        reader = reader.option(f"kafka.{option}", value)
    try:
        rows = reader.load().limit(1).collect()
    except Exception as error:
        raise EnvironmentProblemError(
            f"Spark's connector does not read {topic}: {str(error).splitlines()[0]}",
            hint="The client of Python does: compare what both are told, and what the Java side may reach.",
        ) from error
    return f"{len(rows)} record of {topic}"
