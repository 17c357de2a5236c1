"""From a topology and settings to a running query: the checks before the start, then the job."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    CheckpointMismatchError,
    ConfigError,
    CoPartitionError,
    EnvironmentProblemError,
    UnknownTopicError,
)
from penstock.log.open import open_log
from penstock.plan.document import document_of, fingerprint_of
from penstock.plan.evolution import require_compatible
from penstock.plan.plan import PhysicalPlan, plan_of
from penstock.query.from_plan import stores_for_plan
from penstock.spark.changelog_topics import prepare_changelogs
from penstock.spark.feed import feed_partitions
from penstock.spark.job import SparkJob
from penstock.spark.moves import take_up_moves
from penstock.spark.program import pickle_program
from penstock.spark.reading import reading_of
from penstock.state.documents import read_document, write_document
from penstock.topology.configured_serdes import with_serdes

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog
    from penstock.log.coordination import Lease
    from penstock.topology.topology import Topology

__all__ = ["Places", "create_missing", "open_app_log", "plan_for", "prepare_job", "sliced_reasons"]


@dataclass(frozen=True, slots=True)
class Places:
    """Where an application keeps its things."""

    checkpoint: str
    replicas: str

    @classmethod
    def of(cls, config: StreamsConfig) -> Places:
        """The checkpoint location (by default under ``state.dir``) and the directory of replicas."""
        state_dir = config.get("state.dir") or str(Path(tempfile.gettempdir()) / "penstock")
        home = Path(state_dir).expanduser().absolute() / config["application.id"]
        given = config.get("penstock.checkpoint.location")
        checkpoint = str(given).rstrip("/") if given else str(home / "checkpoint")
        if "://" not in checkpoint:
            checkpoint = str(Path(checkpoint).expanduser().absolute())
        return cls(checkpoint, str(home / "replicas"))

    def check(self) -> None:
        """Raises EnvironmentProblemError unless the local ones are writable."""
        for setting, place in (("penstock.checkpoint.location", self.checkpoint), ("state.dir", self.replicas)):
            if "://" in place:
                continue
            try:
                Path(place).mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=place):
                    pass
            except OSError as error:
                raise EnvironmentProblemError(
                    f"the directory {place} is not writable: {error.strerror}",
                    hint=f"Set {setting} (or state.dir) to a directory that this user may write to.",
                    directory=place,
                ) from error


def open_app_log(config: StreamsConfig) -> TopicLog:
    """Opens the log that ``bootstrap.servers`` names; it must be one that other processes can open too."""
    config.require("application.id", "bootstrap.servers")
    url = str(config["bootstrap.servers"])
    if url.startswith("memory:"):
        raise ConfigError(
            f"bootstrap.servers is {url!r}, a log that only this process sees, but Spark works in other processes",
            hint='Use a file, "sqlite:///penstock.db"; for tests without Spark there is TopologyTestDriver.',
        )
    return open_log(url, log_settings(config))


def log_settings(config: StreamsConfig) -> dict[str, Any]:
    """The settings that a log takes notice of: texts and numbers."""
    given = {name: value for name, value in config.given.items() if isinstance(value, str | int | float)}
    return {"task.timeout.ms": config["task.timeout.ms"], **given}


def plan_for(topology: Topology, config: StreamsConfig, log: TopicLog) -> PhysicalPlan:
    """The physical plan over the topics that exist; raises UnknownTopicError or CoPartitionError."""
    known = feed_partitions(topology, config) | {t.name: t.partitions for t in log.topics()}
    try:
        return plan_of(topology, config["application.id"], known)
    except UnknownTopicError as error:
        with suppress(UnknownTopicError):
            log.topic(str(error.facts.get("topic")))  # a log that hides topics from some users can say so
        raise


def sliced_reasons(topology: Topology, config: StreamsConfig, plan: PhysicalPlan) -> dict[int, str | None]:
    """Sub-topology -> why its records go one by one; None where whole batches run by column."""
    from penstock.runtime.task import StreamTask
    from penstock.state.memory import MemoryTaskState

    reasons: dict[int, str | None] = {}
    for sub in plan.subtopologies:
        state = MemoryTaskState([topology.stores[name] for name in (*sub.stores, *sorted(topology.global_stores))])
        task = StreamTask(topology, config, f"{sub.id}_0", state, nodes=sub.nodes, partitions=plan.partitions)
        reasons[sub.id] = task.sliced_reason
        task.close()
    return reasons


def create_missing(topology: Topology, config: StreamsConfig, log: TopicLog) -> bool:
    """Creates what is to be written and does not exist yet: sinks, the dead letter topic, the topics of DataFrames.

    Returns:
        Whether there was any such topic.

    Raises:
        CoPartitionError: An internal topic is there already, with another number of partitions than it is to have.
    """
    existing = {t.name: t.partitions for t in log.topics()}
    _check_internal(topology, existing)
    feeds = {name: count for name, count in feed_partitions(topology, config).items() if name not in existing}
    for topic, partitions in feeds.items():
        settings = {name: str(value) for name, value in config.with_prefix("topic.").items()}
        log.create_topic(topic, partitions, {"retention.ms": "-1", **settings})
    wanted = [n.topic for n in topology.sinks if n.topic is not None and not n.internal]
    wanted.append(config.get("errors.dead.letter.queue.topic.name") or "")
    known = {*existing, *feeds, *topology.internal_topics}
    sinks = [t for t in dict.fromkeys(wanted) if t and t not in known]
    for topic in sinks:
        log.create_topic(topic, int(config["num.partitions"]))
    return bool(feeds or sinks)


def _check_internal(topology: Topology, existing: Mapping[str, int]) -> None:
    for source in topology.dataframes.values():
        there = existing.get(source.topic)
        if source.partitions is not None and there is not None and there != source.partitions:
            raise CoPartitionError(
                f"the internal topic {source.topic!r} has {there} partitions, but the topology says "
                f"{source.partitions}",
                hint="Keep the number that it has, or call KafkaStreams.reset() (which deletes it) and start anew.",
                topic=source.topic,
            )


def prepare_job(
    topology: Topology,
    config: StreamsConfig,
    plan: PhysicalPlan,
    log: TopicLog,
    lease: Lease,
    *,
    parallelism: int,
    until_latest: bool,
) -> SparkJob:
    """Everything that workers need; compares the checkpoint with the topology and notes the new plan in it.

    Raises:
        CheckpointMismatchError: The checkpoint is of another application or an incompatible topology.
        TopologyError: A function cannot be pickled.
    """
    program = pickle_program(topology, config)
    places = Places.of(config)
    document = document_of(plan, topology)
    fingerprint = fingerprint_of(document)
    before = _stored_plan(places.checkpoint, document, plan, log)
    changelogs = prepare_changelogs(
        topology, config, plan, log, places.checkpoint, None if before is None else before["plan"]
    )
    accepts = _continue(places.checkpoint, document, fingerprint, before, _for_queries(topology, config))
    return SparkJob(
        plan=plan,
        program=program,
        log_url=log.url,
        log_settings=log_settings(config),
        epoch=lease.epoch,
        checkpoint=places.checkpoint,
        replica_root=places.replicas,
        fingerprint=fingerprint,
        accepts=tuple(accepts),
        exactly_once=config["processing.guarantee"] == "exactly_once_v2",
        parallelism=parallelism,
        reading=reading_of(topology, plan, config),
        tick_ms=int(config["penstock.tick.interval.ms"]) if plan.ticks else 0,
        until_latest=until_latest,
        driver_pid=os.getpid(),
        changelogs={each.store: each.topic for each in changelogs if each.store},
        numbers_topic=next((each.topic for each in changelogs if not each.store), None),
        moves=take_up_moves(places.checkpoint, log, plan.application_id, plan.external_topics),
    )


def _for_queries(topology: Topology, config: StreamsConfig) -> dict[str, Any]:
    """What those need who read the stores without the topology."""
    typed = with_serdes(topology, config)
    return {"stores": stores_for_plan(typed.stores), "global_stores": sorted(typed.global_stores)}


def _stored_plan(
    checkpoint: str, document: Mapping[str, Any], plan: PhysicalPlan, log: TopicLog
) -> dict[str, Any] | None:
    """The plan that the checkpoint was written with, if the application has run before and may go on."""
    stored = read_document(checkpoint, "plan.json")
    if stored is not None:
        old: dict[str, Any] = json.loads(stored)
        require_compatible(old["plan"], document, checkpoint)
        return old
    if log.ledger(plan.application_id):
        raise CheckpointMismatchError(
            f"application {plan.application_id!r} has run before, but its checkpoint {checkpoint} is not there",
            hint="Set state.dir or penstock.checkpoint.location to where it ran, or call KafkaStreams.reset() to "
            "start from the beginning.",
            checkpoint=checkpoint,
        )
    return None


def _continue(
    checkpoint: str,
    document: Mapping[str, Any],
    fingerprint: str,
    before: Mapping[str, Any] | None,
    more: Mapping[str, Any],
) -> list[str]:
    """Fingerprints whose segments may be continued; writes the plan, which is new or has changed."""
    history = [] if before is None else list(before["fingerprints"])
    if fingerprint not in history:
        history.append(fingerprint)
    write_document(checkpoint, "plan.json", json.dumps({"fingerprints": history, "plan": document, **more}, indent=1))
    return history
