"""The topics of streams and tables: found, made, deleted."""

from __future__ import annotations

from typing import Any

from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import counted
from penstock.errors import UnknownTopicError
from penstock.log.base import TopicLog
from penstock.log.ensure_topic import ensure_topic
from penstock.sql.analyse import refusal
from penstock.sql.analyse.plans import Aggregate, QueryPlan, steps_below
from penstock.sql.analyse.properties import Properties
from penstock.sql.catalog import Source
from penstock.sql.parse import statement_nodes as s

__all__ = ["delete_topic", "ensure_sink", "ensure_source", "known_topics"]


def known_topics(log: TopicLog) -> dict[str, int]:
    """Return the partition counts of all topics."""
    return {topic.name: topic.partitions for topic in log.topics()}


def ensure_source(log: TopicLog, source: Source, statement: s.CreateSource) -> str:
    """Make the topic of a stream or table if there is none and the statement says its partitions.

    Returns:
        A note about it, or nothing.

    Raises:
        SqlError: There is none, or it has another number of partitions.
    """
    there = known_topics(log).get(source.topic)
    if there is not None:
        if source.partitions is not None and source.partitions != there:
            raise refusal(
                statement.at,
                f"A topic '{source.topic}' exists already with {counted(there, 'partition')}, not {source.partitions}.",
                f"Leave PARTITIONS out, or write PARTITIONS={there}.",
            )
        return ""
    if source.partitions is None:
        meant = did_you_mean(source.topic, known_topics(log))
        raise refusal(
            statement.at,
            f"Topic '{source.topic}' does not exist.",
            f"{meant} To make the topic, add PARTITIONS=1 to the WITH clause.".lstrip(),
        )
    ensure_topic(log, source.topic, source.partitions, _config(statement.properties, {}))
    return f"topic {source.topic} made"


def ensure_sink(log: TopicLog, plan: QueryPlan, partitions: int, properties: tuple[s.Property, ...]) -> None:
    """Make the topic that a query writes if there is none: compacted for tables, with the retention of windows."""
    topic = plan.target.topic
    if topic in known_topics(log):
        return
    config: dict[str, str] = {}
    if plan.target.is_table:
        config["cleanup.policy"] = "compact"
        if plan.target.window is not None:
            config["cleanup.policy"] = "compact,delete"
            if (kept := _retention_ms(plan)) is not None:
                config["retention.ms"] = str(kept)
    ensure_topic(log, topic, partitions, _config(properties, config))


def _retention_ms(plan: QueryPlan) -> int | None:
    retentions = [
        step.times.retention_ms for step in steps_below(plan.root) if isinstance(step, Aggregate) and step.times
    ]
    return max((kept for kept in retentions if kept), default=None)


def _config(properties: tuple[s.Property, ...], otherwise: dict[str, str]) -> dict[str, str]:
    values: dict[str, Any] = dict(Properties.of(properties).values)
    config = dict(otherwise)
    if values.get("RETENTION_MS") is not None:
        config["retention.ms"] = str(values["RETENTION_MS"])
    if values.get("CLEANUP_POLICY") is not None:
        config["cleanup.policy"] = str(values["CLEANUP_POLICY"]).lower()
    return config


def delete_topic(log: TopicLog, name: str) -> None:
    """Delete a topic, if it is there."""
    try:
        log.delete_topic(name)
    except UnknownTopicError:
        return
