"""The part of ``penstock doctor`` that looks at a broker: it is reached, answers, and lets this user read."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from penstock.base.terminal.human_numbers import counted
from penstock.errors import AuthorizationError, LogError, LogUnavailableError, PenstockError

__all__ = ["check_broker"]

_PATIENCE_MS = 10_000  # a user waits for the result
_CONNECT_S = 5.0
_TOPICS_TRIED = 20


def check_broker(servers: str, settings: Mapping[str, Any]) -> tuple[str, str, str]:
    """Look at a broker.

    Args:
        servers: Its address.
        settings: Settings of Kafka's clients, by their Java names.

    Returns:
        The name of the check, its result, and the remedy if it has failed, else an empty text.
    """
    name = f"broker {servers}"
    try:
        return name, _ask(servers, settings), ""
    except PenstockError as error:
        return name, error.message, error.hint or "The message says all that is known."


def _ask(servers: str, settings: Mapping[str, Any]) -> str:
    """Ask the broker for its topics, and read a record; return a summary."""
    from penstock.log.open import open_log
    from penstock.log.url import kafka_servers

    if kafka_servers(servers) is None:
        raise LogError(f"{servers} is not an address of Kafka", hint="Use host:port; an embedded log needs no broker.")
    _reach(servers)
    with open_log(servers, {**settings, "task.timeout.ms": _PATIENCE_MS}) as log:
        topics = [info.name for info in log.topics()]
        ends = log.end_offsets(topics) if topics else {}
        starts = log.beginning_offsets(topics) if topics else {}
        full = [tp for tp, end in sorted(ends.items()) if end > starts[tp]]
        said = f"answers; {counted(len(topics), 'topic')}"
        for tp in full[:_TOPICS_TRIED]:
            try:
                if log.read(tp.topic, tp.partition, starts[tp], 1).records.num_rows:
                    return f"{said}; a record of {tp.topic} was read"
            except AuthorizationError:
                continue
    return f"{said}, with nothing that this user may read"


def _reach(servers: str) -> None:
    """Raise LogUnavailableError unless one of the addresses accepts connections; clients would only go on trying."""
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
        f"no broker answers at {'; '.join(failures)}",
        hint="Check host and port, and that the broker runs. `penstock broker start` starts one on this machine.",
    )
