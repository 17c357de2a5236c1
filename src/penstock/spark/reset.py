"""Forgetting all that an application has done."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.errors import UnknownTopicError
from penstock.spark.committed import query_root
from penstock.spark.launch import Places, open_app_log
from penstock.state.documents import remove_tree

if TYPE_CHECKING:
    from penstock.config import StreamsConfig

__all__ = ["forget_application", "internal_topics", "state_places"]

_ENDINGS = (
    "-changelog",
    "-repartition",
    "-dataframe",
    "-subscription-registration-topic",
    "-subscription-response-topic",
)


def internal_topics(application: str, topics: Iterable[str], groups: Iterable[str] = ()) -> tuple[str, ...]:
    """Those of the topics that belong to an application, by their names; its ledger stays: it fences old instances.

    Args:
        application: The ``application.id``.
        topics: All topics.
        groups: All groups: topics of an application ``app-two`` are not taken for those of ``app``.

    Example:
        >>> internal_topics("app", ["app-sums-changelog", "app-two-sums-changelog", "app-out"], ["app", "app-two"])
        ('app-sums-changelog',)
    """
    others = tuple(f"{group}-" for group in groups if group.startswith(f"{application}-"))
    return tuple(
        topic
        for topic in sorted(topics)
        if topic.startswith(f"{application}-") and topic.endswith(_ENDINGS) and not topic.startswith(others)
    )


def state_places(config: StreamsConfig) -> tuple[str, ...]:
    """Where this machine, or an object store, keeps state: the checkpoint, and replicas of tasks and of queries."""
    places = Places.of(config)
    return places.checkpoint, places.replicas, str(query_root(config))


def forget_application(config: StreamsConfig, lease_ttl_ms: int) -> None:
    """Removes state, checkpoint, internal topics (those that DataFrames fill too), ledger and committed offsets.

    Raises:
        FencedError: The application runs.
    """
    application = config["application.id"]
    with open_app_log(config) as log:
        lease = log.acquire_lease(application, "reset", lease_ttl_ms)
        for place in state_places(config):
            remove_tree(place)
        for topic in internal_topics(application, (each.name for each in log.topics()), log.groups()):
            with suppress(UnknownTopicError):
                log.delete_topic(topic)
        log.clear_ledger(application)
        log.delete_group(application)
        log.release_lease(lease)
