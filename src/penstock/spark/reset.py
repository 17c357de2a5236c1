"""Forgetting all that an application has done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import UnknownTopicError
from penstock.plan.changelogs import numbers_topic
from penstock.spark.changelog_topics import delete_changelogs
from penstock.spark.committed import query_root
from penstock.spark.launch import Places, open_app_log
from penstock.state.documents import remove_tree

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.topology import Topology

__all__ = ["forget_application"]


def forget_application(topology: Topology, config: StreamsConfig, lease_ttl_ms: int) -> None:
    """Removes state, checkpoint, changelogs, ledger, committed offsets and the topics that DataFrames fill.

    Raises:
        FencedError: The application runs.
    """
    application = config["application.id"]
    places = Places.of(config)
    with open_app_log(config) as log:
        lease = log.acquire_lease(application, "reset", lease_ttl_ms)
        remove_tree(places.checkpoint)
        remove_tree(places.replicas)
        remove_tree(str(query_root(config)))
        names = [f"{application}-{name}-changelog" for name in topology.stores]
        delete_changelogs([*names, numbers_topic(application)], log)
        for source in topology.dataframes.values():  # the DataFrames are read again from their beginning
            try:
                log.delete_topic(source.topic)
            except UnknownTopicError:
                continue
        log.clear_ledger(application)
        log.delete_group(application)
        log.release_lease(lease)
