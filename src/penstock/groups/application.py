"""Starting an application over from nothing; Kafka's application reset tool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import FencedError, UnknownTopicError
from penstock.groups.admin import GroupAdmin, OffsetMove
from penstock.groups.resets import Target, new_offsets, places_of
from penstock.log.base import TopicPartition
from penstock.spark.reset import internal_topics, state_places
from penstock.state.documents import remove_tree

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog

__all__ = ["ApplicationReset", "ResetPlan"]

_LEASE_TTL_MS = 30_000


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset does, or would do.

    Attributes:
        application: The ``application.id``.
        moves: Where the input topics go.
        topics: Internal topics that are deleted: changelogs, repartition topics, topics of DataFrames.
        places: Directories (or object store locations) of state that are deleted.
    """

    application: str
    moves: tuple[OffsetMove, ...]
    topics: tuple[str, ...]
    places: tuple[str, ...]


class ApplicationReset:
    """Kafka's ``kafka-streams-application-reset``: input offsets, internal topics, state, checkpoint and ledger.

    Output topics keep their records.

    Args:
        log: Where the application reads and writes.
        config: Its settings: ``application.id``, and ``state.dir`` or ``penstock.checkpoint.location`` as it runs.
    """

    def __init__(self, log: TopicLog, config: StreamsConfig) -> None:
        self._log = log
        self._places = state_places(config)
        self._application = str(config["application.id"])

    def plan(self, target: Target, inputs: Sequence[str] = (), internal: Sequence[str] = ()) -> ResetPlan:
        """What would be done.

        Args:
            target: Where the input topics go.
            inputs: Input topics (``orders`` or ``orders:0,2``); by default all that the group has offsets of.
            internal: Which of the internal topics to delete; by default all.

        Raises:
            UnknownTopicError: One of the topics does not exist, or is not internal to this application.
        """
        existing = {topic.name for topic in self._log.topics()}
        found = internal_topics(self._application, existing, self._log.groups())
        for topic in internal:
            if topic not in found:
                raise UnknownTopicError(
                    f"{topic!r} is not an internal topic of {self._application!r}",
                    hint=f"Its internal topics are {', '.join(found) or 'none'}.",
                    topic=topic,
                )
        committed = self._log.committed_offsets(self._application)
        if target.named:
            places = list(target.named)
        elif inputs:
            places = places_of(self._log, inputs)
        else:
            places = [place for place in committed if place.topic in existing and place.topic not in found]
        moves = tuple(
            OffsetMove(place.topic, place.partition, bounds.committed, after, bounds.end - after)
            for place, (bounds, after) in new_offsets(self._log, target, places, committed).items()
        )
        return ResetPlan(self._application, moves, tuple(internal) or found, self._places)

    def run(self, plan: ResetPlan, *, force: bool = False) -> None:
        """Does it; run it again if it was cut off.

        Args:
            plan: What `plan` gave.
            force: Also while an instance seems to run: its further writes are refused, and it fails.

        Raises:
            FencedError: An instance runs, or consumers are members of its group.
        """
        with self._stopped(force=force):
            for place in plan.places:
                remove_tree(place)
            for topic in plan.topics:
                self._log.delete_topic(topic)
            self._log.clear_ledger(self._application)
            self._log.delete_group(self._application)
            offsets = {TopicPartition(move.topic, move.partition): move.after for move in plan.moves}
            if offsets:
                self._log.commit_offsets(self._application, offsets)

    @contextmanager
    def _stopped(self, *, force: bool) -> Iterator[None]:
        members = self._log.group_state(self._application).members
        if members:
            raise FencedError(
                f"group {self._application!r} has {len(members)} member(s), such as {members[0].member} on "
                f"{members[0].host}",
                hint="Stop these consumers first.",
                group=self._application,
            )
        lease = self._log.acquire_lease(self._application, "penstock app reset", _LEASE_TTL_MS, force=force)
        try:
            yield
        finally:
            self._log.release_lease(lease)

    def is_known(self) -> bool:
        """Whether the log has ever heard of this application."""
        admin = GroupAdmin(self._log)
        return admin.is_application(self._application) or self._application in self._log.groups()
