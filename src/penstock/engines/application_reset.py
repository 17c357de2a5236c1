"""Resetting an application to its beginning; Kafka's application reset tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.base.terminal.human_numbers import counted
from penstock.engines.reset import AppResources, find_resources, forget
from penstock.errors import FencedError, UnknownTopicError
from penstock.log.base import TopicPartition
from penstock.log.groups.admin import GroupAdmin, OffsetMove, offset_moves
from penstock.log.groups.gone_back import RESET_NOTE
from penstock.log.groups.resets import Target, chosen_places
from penstock.log.lease_keeper import held_lease

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import Lease, TopicLog
    from penstock.topology.topology import Topology

__all__ = ["ApplicationReset", "ResetPlan"]


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """The plan of a reset.

    Attributes:
        application: The ``application.id``.
        moves: The new offsets of the input topics.
        topics: The internal topics to delete: changelogs, repartition topics, topics of DataFrames.
        places: The directories (or object store locations) of state to delete.
        kept: Topics, and files at the checkpoint location, that look like the application's but stay, as its plan does
            not name them.
    """

    application: str
    moves: tuple[OffsetMove, ...]
    topics: tuple[str, ...]
    places: tuple[str, ...]
    kept: tuple[str, ...] = ()


class ApplicationReset:
    """Kafka's ``kafka-streams-application-reset``: input offsets, internal topics, state, checkpoint and ledger.

    Output topics keep their records.

    Args:
        log: The application's log.
        config: Its settings: ``application.id``, and ``state.dir`` or ``penstock.checkpoint.location``.
        topology: Its topology; by default the plan in the checkpoint names its internal topics.
        without_checkpoint: Whether to reset only the log, as the checkpoint is lost.
    """

    def __init__(
        self,
        log: TopicLog,
        config: StreamsConfig,
        topology: Topology | None = None,
        *,
        without_checkpoint: bool = False,
    ) -> None:
        self._log = log
        self._config = config
        self._topology = topology
        self._without_checkpoint = without_checkpoint
        self._application = str(config["application.id"])

    def plan(self, target: Target, inputs: Sequence[str] = (), internal: Sequence[str] = ()) -> ResetPlan:
        """Plan the reset.

        Args:
            target: The new offsets of the input topics.
            inputs: Input topics (``orders`` or ``orders:0,2``); by default all partitions with offsets.
            internal: The internal topics to delete; by default all.

        Raises:
            UnknownTopicError: One of the topics does not exist, or is not internal to this application.
            CheckpointMismatchError: The checkpoint was not found, or belongs to another application.
        """
        resources = self._found()
        for topic in internal:
            if topic not in resources.topics and topic not in resources.unsure:
                raise UnknownTopicError(
                    f"{topic!r} is not an internal topic of {self._application!r}",
                    hint=f"Its internal topics are {', '.join(resources.topics) or 'none'}.",
                    topic=topic,
                )
        topics = tuple(internal) or resources.topics
        committed = self._log.committed_offsets(self._application)
        of_inputs = [tp for tp in committed if tp.topic not in (*resources.topics, *resources.unsure)]
        places = chosen_places(self._log, target, inputs, of_inputs)
        moves = tuple(offset_moves(self._log, target, places, committed))
        kept = (*(topic for topic in resources.unsure if topic not in topics), *resources.foreign)
        return ResetPlan(self._application, moves, topics, resources.places, kept)

    def run(self, plan: ResetPlan, *, force: bool = False) -> tuple[str, ...]:
        """Execute a plan; run it again after an interruption.

        Args:
            plan: The output of `plan`.
            force: Reset even if an instance seems to run: its further writes are refused, and it fails.

        Returns:
            The deleted folders and topics.

        Raises:
            FencedError: An instance runs, or consumers are members of its group.
        """
        with self._stopped(force=force) as lease:
            deleted = forget(self._log, replace(self._found(), topics=plan.topics), lease)
            offsets = {TopicPartition(move.topic, move.partition): move.after for move in plan.moves}
            if offsets:
                self._log.commit_offsets(self._application, offsets, RESET_NOTE, lease)
        return deleted

    def _found(self) -> AppResources:
        resources = find_resources(self._log, self._config, self._topology)
        if not self._without_checkpoint:
            resources.require_checkpoint()
        return resources

    @contextmanager
    def _stopped(self, *, force: bool) -> Iterator[Lease]:
        members = self._log.group_state(self._application).consumers
        if members:
            raise FencedError(
                f"group {self._application!r} has {counted(len(members), 'member')}, such as {members[0].member} on "
                f"{members[0].host}",
                hint="Stop these consumers first.",
                group=self._application,
            )
        with held_lease(self._log, self._application, "penstock app reset", force=force) as keeper:
            yield keeper.lease

    def is_known(self) -> bool:
        """Return whether the application has ever run on this log."""
        admin = GroupAdmin(self._log)
        return admin.is_application(self._application) or self._application in self._log.groups()
