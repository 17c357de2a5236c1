"""What a console may change: offsets of groups, messages, applications. Each change leaves a line in the log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.console.producing import TextProducer
from penstock.console.recorder import NOW, read_facts
from penstock.errors import ConfigError, InvalidStateError, LogError
from penstock.log.groups.group_admin import GroupAdmin
from penstock.log.groups.reset_targets import Target
from penstock.log.topic_formats import format_of
from penstock.state.checkpoint import read_document, write_document

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["AUDIT", "ask_to_stop", "audit", "produce", "reset_group", "stop_asked"]

AUDIT = "penstock.console.audit"
_STOP = "console/stop.json"
_log = own_logger(AUDIT)


def audit(who: str, what: str, result: str) -> None:
    """Log who has changed, or was refused to change, what."""
    _log.info("%s: %s: %s", who, what, result)


def reset_group(log: TopicLog, group: str, request: Mapping[str, Any], *, dry_run: bool) -> dict[str, Any]:
    """Move the offsets of a stopped group; return the moves, which a dry run only plans.

    Args:
        log: The log.
        group: The group.
        request: ``to`` is earliest, latest, ``offset:N`` or ``time:T``; ``topics`` are names, ``orders:0,2`` for some
            partitions; by default all that the group has read.
        dry_run: Whether nothing is changed.

    Raises:
        ConfigError: The target or the topics have another form.
        LogError: There is no such group.
        FencedError: The group has members, or its application runs.
    """
    topics = request.get("topics") or ()
    if isinstance(topics, str) or not all(isinstance(each, str) for each in topics):
        raise ConfigError("topics is a list of names", hint='For example ["orders", "clicks:0,2"].')
    admin = GroupAdmin(log)
    moves = admin.plan_reset(group, _target(str(request.get("to", ""))), tuple(topics))
    if not dry_run:
        admin.reset(group, moves)
    note = ""
    if admin.is_application(group):
        note = "It is an application: its state stays as it is. For a start from nothing: penstock app reset."
    return {"group": group, "done": not dry_run, "moves": [asdict(move) for move in moves], "note": note}


def _target(text: str) -> Target:
    kind, _, value = text.partition(":")
    if text == "earliest":
        return Target.earliest()
    if text == "latest":
        return Target.latest()
    if kind == "offset" and value.isdecimal() and len(value) < 19:
        return Target.offset(int(value))
    if kind == "time" and value:
        return Target.at(int(value) if value.isdecimal() else value)
    raise ConfigError(f"to is {text[:60]!r}", hint="Use earliest, latest, offset:N or time:2026-11-22T12:00:00Z.")


def produce(log: TopicLog, topic: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Append one message.

    Args:
        log: The log.
        topic: An existing topic.
        request: ``key`` and ``value`` as text, or null; JSON for formats that are neither text nor numbers.
            ``key_format`` and ``value_format`` are by default those that the application that writes the topic has
            noted, else text; ``partition`` is by default that of the key.

    Raises:
        LogError: There is no such topic or partition.
        ConfigError: There is no such format, or the message is none.
        SerializationError: Key or value do not have the format.
    """
    if topic not in {each.name for each in log.topics()}:
        raise LogError(f"the log has no topic {topic[:100]!r}", hint="Create it first: penstock topics create.")
    key, value, partition = request.get("key"), request.get("value"), request.get("partition")
    if not (isinstance(key, str | None) and isinstance(value, str | None)):
        raise ConfigError("key and value are texts or null", hint='For example {"key": "u1", "value": "{}"}.')
    if partition is not None and (isinstance(partition, bool) or not isinstance(partition, int)):
        raise ConfigError("partition is a whole number", hint="Leave it out for that of the key.")
    noted = format_of(log, topic)
    formats = [
        str(request.get(f"{side}_format") or (getattr(noted, side) if noted else "string")) for side in ("key", "value")
    ]
    producer = TextProducer(log, topic, formats[0], formats[1], partition=partition)
    producer.add(key, value, unix_ms())
    producer.flush()
    return {"topic": topic, "sent": producer.sent}


def ask_to_stop(checkpoint: str, application: str) -> None:
    """Ask a running application of another process to stop, by a document in its checkpoint.

    Raises:
        InvalidStateError: It keeps no figures, so it does not see the request.
    """
    now = read_facts(checkpoint, NOW)
    if now is None:
        raise InvalidStateError(
            f"{application} keeps no figures for the console, so it cannot be stopped from here",
            hint="Stop its process; or set penstock.console.enabled.",
        )
    write_document(checkpoint, _STOP, json.dumps({"asked_ms": unix_ms(), "started_ms": now.get("started_ms")}))


def stop_asked(checkpoint: str, started_ms: int, *, of_all: bool = False) -> bool:
    """Return whether a stop of the run that began then has been asked for.

    Args:
        checkpoint: Its checkpoint location.
        started_ms: When it began.
        of_all: Whether it is one of several instances, all of which stop: consoles show one of them.
    """
    with suppress(OSError, ValueError, TypeError, AttributeError):
        text = read_document(checkpoint, _STOP)
        asked = {} if text is None else json.loads(text)
        return asked.get("started_ms") == started_ms or (of_all and asked.get("asked_ms", 0) >= started_ms)
    return False
