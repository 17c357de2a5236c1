"""Requests that change something. They need ``--allow-writes``; the guard of the server has checked their origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.base.json_depth import depth_of
from penstock.console import actions
from penstock.console.web.page import NotThereError, Visit
from penstock.console.web.pages.log_pages import log_of
from penstock.errors import ConfigError, InvalidStateError, PenstockError

__all__ = ["body_of", "changed", "produce", "require_writes", "reset", "restart_connector", "stop"]

_DEEPEST = 100


def require_writes(visit: Visit) -> None:
    """Raise PenstockError unless visitors may change something."""
    if not visit.site.permissions.writes:
        raise PenstockError(
            "this console only reads",
            hint="Start it with --allow-writes, or the application with penstock.console.allow.writes=true.",
            status=403,
        )


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


def changed(visit: Visit, who: str, what: str, work: Any) -> Any:
    """Do a change, and log it with its result; refusals are logged, too."""
    try:
        require_writes(visit)
        outcome = work()
    except PenstockError as error:
        actions.audit(who, what, f"refused: {error.message}")
        raise
    actions.audit(who, what, "done")
    return outcome


def reset(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Reset a stopped group; ``dry_run=true`` only plans it."""
    dry_run = visit.get("dry_run").lower() in ("true", "1", "yes")
    return actions.reset_group(log_of(visit), visit.get("name"), body, dry_run=dry_run)


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


def restart_connector(visit: Visit, body: Mapping[str, Any]) -> Any:
    """Restart a connector, with its tasks; ``only_failed`` restarts those that have failed."""
    connectors = visit.site.connectors
    if connectors is None:
        raise NotThereError("no Connect worker is known", hint="Start the console with --connect URL.")
    connectors.restart(visit.get("name"), only_failed=bool(body.get("only_failed", False)))
    return {"connector": visit.get("name"), "restarting": True}
