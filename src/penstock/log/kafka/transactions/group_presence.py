"""A running application as the member of its group: Kafka's tools see it as active and do not change its offsets."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

from penstock.base.clock import since_boot_ms
from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, LogError
from penstock.log.base import APPLICATION_INSTANCE, GroupMembership
from penstock.log.kafka.cluster_topics import error_code
from penstock.log.kafka.error_codes import CODES, ErrorCategory
from penstock.log.kafka.failures import category_of, error_of, failure, may_pass, removed_from_group
from penstock.log.kafka.wire.groups import (
    JoinedMember,
    LogEnd,
    committed_offsets,
    group_log_end,
    has_lost,
    heartbeat,
    join_alone,
    leave,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.log.base import TopicPartition
    from penstock.log.kafka.clients.connections import Clients

__all__ = ["Presence", "expel"]

_log = own_logger(__name__)
_SESSION_MS = 45_000  # the default of Kafka's consumers
_HEARTBEAT_S = 3.0
_PAUSE_S = 0.2
_PATIENCE_S = 10.0


class Presence:
    """A member of the group, with a thread of its own, until `end`.

    Args:
        clients: The cluster's clients.
        group: The ``application.id``.
        topics: The application's topics and their numbers of partitions.
        holds: Returns whether the application still holds its lease: if not, it does not join again.
        committed: Returns offsets that the application has committed otherwise than by `commit`.
    """

    def __init__(
        self,
        clients: Clients,
        group: str,
        topics: Mapping[str, int],
        holds: Callable[[], bool],
        committed: Callable[[], Mapping[TopicPartition, int]] = dict,
    ) -> None:
        self.group = group
        self._committed = committed
        self._own: dict[TopicPartition, int] = {}  # that `commit` has committed
        self._clients = clients
        self._topics = dict(topics)
        self._holds = holds
        self._changed = threading.Condition()
        self._me: JoinedMember | None = None
        self._refused: KafkaException | None = None
        self._ending = False
        self._overtaken = False
        self._removed = False
        self._heard_ms = since_boot_ms()
        self._lost_by: int | None = None
        self._joined_behind: LogEnd | None = None  # where the group's log has the join; None: it cannot be seen
        self._thread = threading.Thread(target=self._stay, name=f"{group}-member", daemon=True)
        self._thread.start()

    def commit(self, commit: Callable[[JoinedMember | None], None], offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets as this member; as None if it could not join.

        Args:
            commit: Commits them.
            offsets: The offsets.

        Raises:
            FencedError: A newer instance of the application has taken over.
            LogError: The group has other members, or the commit fails for other reasons.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            me = self._joined(deadline)
            self._check()
            try:
                commit(me)
            except LogError as error:
                code = error_code(error)
                lost = CODES.get(code or 0) is ErrorCategory.REJOIN
                if lost and self._refused is not None:
                    access = self._clients.access
                    raise failure(self._refused, f"joining group {self.group!r}", access, group=self.group) from error
                if not lost or time.monotonic() > deadline:
                    raise
            else:
                self._own |= offsets
                return
            self._lose(me, code)

    def membership(self, timeout_s: float) -> GroupMembership | None:
        """Return the membership, after a wait for it; None if it could not join.

        Raises:
            FencedError: A newer instance of the application has taken over, or another program has removed the member.
        """
        me = self._joined(time.monotonic() + timeout_s)
        self._check()
        return None if me is None else GroupMembership(me.member, me.instance, me.generation)

    def _check(self) -> None:
        if self._removed:
            raise removed_from_group(self.group)
        if self._overtaken:
            raise FencedError(
                f"a newer instance of application {self.group!r} has taken over its group",
                hint="Stop this instance; the newer one continues.",
                group=self.group,
            )

    def end(self) -> None:
        """Leave the group."""
        with self._changed:
            self._ending = True
            me, self._me = self._me, None
            self._changed.notify_all()
        if me is not None:
            expel(self._clients, self.group)
        self._thread.join(_PATIENCE_S)

    def _joined(self, deadline: float) -> JoinedMember | None:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._me is not None
                    or self._refused is not None
                    or self._ending
                    or self._overtaken
                    or self._removed
                ),
                max(0.0, deadline - time.monotonic()),
            )
            return self._me

    def _lose(self, me: JoinedMember | None, code: int | None) -> None:
        """Note that the group does not know the member any more, unless it has joined again already."""
        with self._changed:
            if self._me is me and me is not None:
                self._me, self._lost_by = None, code
            self._changed.notify_all()

    def _may_join(self) -> bool:
        """Return whether to join again after the group has lost the member.

        Not if a newer instance is the member now; nor if another program has removed it: a group removes a member by
        itself only when its session has expired, or when its coordinator has lost records.
        """
        is_held = self._holds()
        is_fresh = since_boot_ms() - self._heard_ms < _SESSION_MS  # the machine may have slept
        is_unknown = is_held and is_fresh and self._lost_by == KafkaError.UNKNOWN_MEMBER_ID
        has_lost_records = is_unknown and self._has_lost_records()
        if has_lost_records:
            _log.warning(
                "group %r: its coordinator has lost its newest records, and joins and commits with them: the "
                "application joins again",
                self.group,
            )
        with self._changed:
            self._overtaken = not is_held
            self._removed = is_unknown and not has_lost_records
            self._changed.notify_all()
            return not self._overtaken and not self._removed

    def _has_lost_records(self) -> bool:
        """Return whether the group's coordinator has lost the join.

        Its log shows it, to those who may describe the topic of the groups. Else the group's offsets do, if the
        application has committed since it joined: older ones of its own are there then. Tools that remove members and
        set offsets commit them without metadata.
        """
        if self._joined_behind is not None and has_lost(self._clients.cluster(), self.group, self._joined_behind):
            return True
        offsets = {**self._committed(), **self._own}
        group = committed_offsets(self._clients.cluster(), self.group)
        return any(group[tp].offset < at and group[tp].metadata for tp, at in offsets.items() if tp in group)

    def _stay(self) -> None:
        again = False
        while not self._ending:
            me = self._me
            try:
                if me is not None:
                    sent_ms = since_boot_ms()
                    heartbeat(self._clients.cluster(), me)
                    self._heard_ms = sent_ms
                elif again and not self._may_join():
                    return
                else:
                    self._join()
                    again = True
            except KafkaException as error:
                self._note(error, me)
            except LogError as error:  # the lease cannot be read now
                _log.debug("group %s: %s", self.group, error.message)
            with self._changed:
                member = self._me
                pause = _PAUSE_S if member is None and self._refused is None else _HEARTBEAT_S
                self._changed.wait_for(lambda: self._ending or self._me is not member, pause)  # noqa: B023

    def _join(self) -> None:
        sent_ms = since_boot_ms()
        before = self._log_end()
        me = join_alone(self._clients.cluster(), self.group, APPLICATION_INSTANCE, self._topics, _SESSION_MS)
        after = self._log_end()  # the epoch of the join, or a later one
        self._heard_ms = sent_ms
        self._joined_behind = None if after is None else LogEnd(0 if before is None else before.offset, after.epoch)
        with self._changed:
            late = self._ending
            self._me, self._refused = (None, None) if late else (me, None)
            self._changed.notify_all()
        if late:
            expel(self._clients, self.group)

    def _log_end(self) -> LogEnd | None:
        """Return the end of the log that has the group's records; None if it cannot be seen."""
        try:
            return group_log_end(self._clients.cluster(), self.group)
        except KafkaException as error:
            if may_pass(error):
                raise
            return None

    def _note(self, error: KafkaException, me: JoinedMember | None) -> None:
        category = category_of(error)
        if category is ErrorCategory.REJOIN:
            self._lose(me, error_of(error).code())
            return
        self._clients.cluster().forget()
        if category is ErrorCategory.PASSES:
            _log.debug("group %s: %s", self.group, error_of(error).str())
            return
        with self._changed:
            if self._refused is None:
                text = "the application could not join its group %r: %s; Kafka's tools show it as stopped"
                _log.warning(text, self.group, error_of(error).str())
            self._refused = error
            self._changed.notify_all()


def expel(clients: Clients, group: str) -> None:
    """Remove an application that has ended from its group; if that fails, its session expires."""
    try:
        leave(clients.cluster(), group, APPLICATION_INSTANCE)
    except KafkaException as error:
        clients.cluster().forget()
        _log.debug("group %s is not left: %s", group, error_of(error).str())
