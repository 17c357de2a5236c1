"""What the pages of one application share."""

from __future__ import annotations

from typing import Any

from penstock.console.app_view import Picture
from penstock.console.web.page import Visit

__all__ = ["application_stamp", "head_of", "linked_topics"]


def application_stamp(visit: Visit) -> object:
    """Return a value that changes when the figures of the application do."""
    application = visit.application
    return None if application is None else (application.name, application.stamp())


def head_of(visit: Visit) -> tuple[Picture, dict[str, Any]]:
    """Return an application's figures, and the facts that all of its pages show; without one, empty figures."""
    application = visit.application
    picture = Picture({}) if application is None else application.picture()
    return picture, {"picture": picture, "application": visit.application_name, "alerts": picture.get("alerts", [])}


def linked_topics(visit: Visit) -> frozenset[str]:
    """Return the topics that a page may link to: repartition topics of micro-batches, for example, are in no log."""
    log = visit.site.log
    return frozenset() if log is None else frozenset(topic.name for topic in log.topics())
