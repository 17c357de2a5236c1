"""Requests that change something. They need a role; the guard of the server has checked their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.base.escapes import one_line
from penstock.base.json_depth import depth_of
from penstock.console import actions
from penstock.console.web.page import NotThereError, Visit
from penstock.console.web.pages.log_pages import log_of
from penstock.console.web.visitors import Role
from penstock.errors import ConfigError, InvalidStateError, PenstockError
from penstock.log.application_needs import owner_of

if TYPE_CHECKING:
    from penstock.console.part_interfaces import Connectors
    from penstock.log.base import TopicInfo, TopicPartition

__all__ = [
    "add_partitions",
    "alter_topic",
    "body_of",
    "changed",
    "configure_connector",
    "create_connector",
    "create_topic",
    "delete_topic",
    "pause_connector",
    "produce",
    "require",
    "reset",
    "restart_connector",
    "stop",
    "who_of",
]

_DEEPEST = 100
_MOST_PARTITIONS = 10_000
_MOST_NAMED = 10  # groups
_MOST_SAID = 1_000  # characters of a line of the log


def require(visit: Visit, role: Role) -> None:
    """Raise PenstockError unless the visitor has a role, or one that may do more."""
    if visit.visitor.role >= role:
        return
    if not visit.site.permissions.writes:
        raise PenstockError(
            "this console only reads",
            hint="Start it with --allow-writes, or the application with penstock.console.allow.writes=true.",
            status=403,
        )
    raise PenstockError(
        f"{visit.visitor.name or 'this visitor'} is {visit.visitor.role}, and this needs the role {role}",
        hint="Ask whoever keeps the users of this console.",
        status=403,
    )


def who_of(visit: Visit, host: str) -> str:
    """Return who changes something, for the log: name, role and address; the address alone where nobody has a name."""
    return f"{visit.visitor.name} ({visit.visitor.role}) at {host}" if visit.visitor.name else host


def body_of(data: bytes) -> Mapping[str, Any]:
    """Parse the body of a request; an empty one is an empty object.

    Raises:
        ConfigError: It is not a JSON object.
    """
    try:
        if depth_of(data) > _DEEPEST:
            raise ConfigError("the body is nested too deeply", hint="Send an object with texts and lists.")
        document = json.loads(data.decode() or "{}")
    except ValueError as error:
        raise ConfigError(f"the body is not JSON: {error}"[:200], hint="Send an object.") from error
    if not isinstance(document, dict):
        raise ConfigError("the body is not a JSON object", hint='For example {"to": "earliest"}.')
    return document


def changed(visit: Visit, role: Role, who: str, what: str, work: Any) -> Any:
    """Do a change that needs a role, and log it with its result; refusals are logged, too."""
    try:
        require(visit, role)
        outcome = work()
    except PenstockError as error:
        actions.audit(who, what, f"refused: {error.message}")
        raise
    actions.audit(who, what, f"done{_said(outcome)}")
    return outcome


def _said(outcome: Any) -> str:
    """Return what a change has changed, from what to what, for the log."""
    if not isinstance(outcome, Mapping):
        return ""
    said = [str(each) for each in outcome.get("changes", ())]
    said += [
        f"{move['topic']}-{move['partition']}: {move['before']} -> {move['after']}" for move in outcome.get("moves", ())
    ]
    named = [f"{name} {outcome[name]}" for name in ("topic", "connector") if name in outcome]
    return one_line(f": {'; '.join([*named, *said])}"[:_MOST_SAID]) if said or named else ""


def reset(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Reset a stopped group; ``dry_run=true`` only plans it."""
    return actions.reset_group(log_of(visit), visit.get("name"), body, dry_run=_is_plan(visit))


def produce(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Send a message."""
    return actions.produce(log_of(visit), visit.get("name"), body)


def stop(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Stop a running application."""
    del body
    application = visit.application
    if application is None:
        raise NotThereError("the log has no application", hint="Start one with penstock run.")
    if not application.picture().is_running:
        raise InvalidStateError(
            f"{application.name} does not run: it is {application.picture().state}", hint="There is nothing to stop."
        )
    application.ask_to_stop()
    return {"application": application.name, "stopping": True}


def pause_connector(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Pause a connector, or resume it with ``resume``."""
    resume = bool(body.get("resume", False))
    _connectors(visit).pause(visit.get("name"), resume=resume)
    return {"connector": visit.get("name"), "paused": not resume}


def create_connector(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Create a connector: ``connector`` and ``settings``, lines of ``name=value``; ``dry_run=true`` plans."""
    name = str(body.get("connector", "")).strip()
    if not name:
        raise ConfigError("the connector has no name", hint="Send connector.")
    if name in {each.name for each in _connectors(visit).all()}:
        raise InvalidStateError(f"there is a connector {name[:100]!r} already", hint="Choose another name.")
    return _configured(visit, name, body)


def configure_connector(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Change the settings of a connector, lines of ``name=value``; ``dry_run=true`` only says what changes."""
    name = visit.get("name")
    if name not in {each.name for each in _connectors(visit).all()}:
        raise NotThereError(f"there is no connector {name[:100]!r}", hint="The page of connectors lists them.")
    return _configured(visit, name, body)


def _configured(visit: Visit, name: str, body: Mapping[str, Any]) -> Any:
    changes = _connectors(visit).configure(name, _settings(body.get("settings")), dry_run=_is_plan(visit))
    said = [one_line(each) for each in changes]
    return {"connector": name, "changes": said, "note": "\n".join(said) or "Nothing changes.", "moves": []}


def create_topic(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Create a topic: ``topic``, ``partitions`` and ``settings``, lines of ``name=value``."""
    name, partitions = str(body.get("topic", "")).strip(), body.get("partitions", 1)
    if not name:
        raise ConfigError("the topic has no name", hint="Send topic.")
    partitions = _partitions(partitions, 1)
    log = log_of(visit)
    if name in {each.name for each in log.topics()}:
        raise InvalidStateError(f"the log has a topic {name[:100]!r} already", hint="Choose another name.")
    log.create_topic(name, partitions, _settings(body.get("settings")))
    return {"topic": name, "created": True}


def alter_topic(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Change settings of a topic: lines of ``name=value``, without a value for the default; ``dry_run=true`` plans."""
    log, name = log_of(visit), visit.get("name")
    before, settings = _topic(visit).config, _settings(body.get("settings"))
    changes = [
        f"{key}: {before.get(key, 'default')} -> {value or 'default'}"
        for key, value in settings.items()
        if before.get(key, "") != value
    ]
    if not _is_plan(visit) and changes:
        log.alter_config(name, {key: value or None for key, value in settings.items()})
    return {"topic": name, "changes": changes, "note": "\n".join(changes) or "Nothing changes.", "moves": []}


def add_partitions(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Add partitions to a topic, up to ``partitions`` in all; ``dry_run=true`` says what that means."""
    topic = _topic(visit)
    total = _partitions(body.get("partitions"), topic.partitions + 1)
    changes = [f"partitions: {topic.partitions} -> {total}"]
    readers, owner = _readers(visit, log_of(visit).end_offsets([topic.name])), _owner(visit, topic.name)
    note = [
        *changes,
        "Keys move: records of a key that come from now on may go to another partition than those that are there.",
        "A topic never gets fewer partitions again.",
        *([f"Groups with offsets of it: {readers}."] if readers else []),
        *([f"It is internal to {owner}, which would not start with another number of partitions."] if owner else []),
    ]
    if not _is_plan(visit):
        if owner:
            raise InvalidStateError(
                f"{topic.name} is internal to {owner}", hint="The application makes it, with a partition for each task."
            )
        log_of(visit).create_partitions(topic.name, total)
    return {"topic": topic.name, "changes": changes, "note": "\n".join(note), "moves": []}


def delete_topic(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Delete a topic with its records; ``confirm`` is its name again. ``dry_run=true`` says what would be lost."""
    topic, log = _topic(visit), log_of(visit)
    firsts, ends = log.beginning_offsets([topic.name]), log.end_offsets([topic.name])
    count = sum(end - firsts[tp] for tp, end in ends.items())
    owner = _owner(visit, topic.name)
    changes = [f"partitions: {topic.partitions} -> 0", f"offsets: {count:,} -> 0"]
    if _is_plan(visit):
        readers = _readers(visit, ends)
        among = f"{topic.partitions} partition{'s' if topic.partitions != 1 else ''}"
        note = [
            f"Its {count:,} offsets in {among} are lost for ever.",
            *([f"Groups with offsets of it: {readers}."] if readers else []),
            *([f"It is internal to {owner}, which loses what is in it."] if owner else []),
        ]
        return {"topic": topic.name, "changes": changes, "note": "\n".join(note), "moves": []}
    if body.get("confirm") != topic.name:
        raise ConfigError("confirm is not the name of the topic", hint="Send the name again, to be sure.")
    if owner and visit.site.applications.get(owner).picture().is_running:
        raise InvalidStateError(
            f"{topic.name} is internal to {owner}, which runs", hint="Stop it; penstock app reset deletes its topics."
        )
    log.delete_topic(topic.name)
    return {"topic": topic.name, "changes": changes, "deleted": True}


def _topic(visit: Visit) -> TopicInfo:
    log, name = log_of(visit), visit.get("name")
    if name not in {each.name for each in log.topics()}:
        raise NotThereError(f"the log has no topic {name[:100]!r}", hint="The page of topics lists them.")
    return log.topic(name)


def _readers(visit: Visit, ends: Mapping[TopicPartition, int]) -> str:
    """Return the groups that have offsets of a topic, whose ends are given, as text."""
    consumers = visit.site.groups.consumers(log_of(visit), ends)
    names = sorted(consumers.lags)[:_MOST_NAMED]
    more = [f"and {len(consumers.lags) - len(names)} more"] if len(consumers.lags) > len(names) else []
    unasked = (
        [f"({consumers.total - consumers.asked} groups were not asked)"] if consumers.asked < consumers.total else []
    )
    return one_line(", ".join([*names, *more, *unasked]))


def _owner(visit: Visit, topic: str) -> str:
    """Return the application that a topic is internal to; empty if it is none's."""
    return owner_of(topic, visit.site.applications.names()) or ""


def _partitions(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_PARTITIONS:
        raise ConfigError(
            f"partitions is {value!r}", hint=f"It is a whole number from {least:,} to {_MOST_PARTITIONS:,}."
        )
    return value


def _settings(text: Any) -> dict[str, str]:
    """Read lines of ``name=value``."""
    if not isinstance(text, str | None):
        raise ConfigError("settings is a text", hint="It has lines such as retention.ms=60000.")
    settings = {}
    for line in (text or "").splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not (equals and name.strip()):
            raise ConfigError(f"the setting {line[:60]!r} has no =", hint="Write name=value, one a line.")
        if line.strip():
            settings[name.strip()] = value.strip()
    return settings


def _is_plan(visit: Visit) -> bool:
    return visit.get("dry_run").lower() in ("true", "1", "yes")


def restart_connector(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Restart a connector, with its tasks; ``only_failed`` restarts those that have failed."""
    _connectors(visit).restart(visit.get("name"), only_failed=bool(body.get("only_failed", False)))
    return {"connector": visit.get("name"), "restarting": True}


def _connectors(visit: Visit) -> Connectors:
    if visit.site.connectors is None:
        raise NotThereError("no Connect worker is known", hint="Start the console with --connect URL.")
    return visit.site.connectors
