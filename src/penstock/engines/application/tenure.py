"""The right of an instance to run an application: a lease, or none where instances share the work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from penstock.base.log_lines import own_logger
from penstock.engines.application.sharing import SharingOffer, SharingRecord
from penstock.errors import FencedError, LogError
from penstock.log.lease_holders import holder_runs, runs_already
from penstock.log.lease_keeper import LeaseKeeper

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog, TopicPartition
    from penstock.log.embedded.coordination import Lease
    from penstock.log.membership import GroupMembership

__all__ = ["LEASE_TTL_MS", "LeaseTenure", "SharedTenure", "Tenure"]

_log = own_logger(__name__)
LEASE_TTL_MS = 30_000
_MOMENT_S = 60.0  # in which a lease is held while several begin to share
_PATIENCE_S = 600.0  # for an instance that offers to share, and may be starting on a busy machine
_ASK_AGAIN_S = 30.0
_POLL_S = 0.2


class Tenure(Protocol):
    """What entitles an instance to run an application, from `take` to `give_back`."""

    @property
    def lease(self) -> Lease | None:
        """The present lease; None if there is none."""
        ...

    def take(self) -> None:
        """Take the right, or a new one in place of the present one.

        Raises:
            FencedError: Another instance runs.
        """
        ...

    def attend(self, topics: Sequence[str], offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Join the application's group, so that other tools see that it runs.

        Args:
            topics: The topics that it reads.
            offsets: Returns the offsets that it has committed, as far as they are known.
        """
        ...

    def membership(self, timeout_s: float) -> GroupMembership | None:
        """Return the membership of the group that `attend` has led to; None: it has none.

        Raises:
            FencedError: Another program has removed the application from its group.
        """
        ...

    def check(self) -> None:
        """Raise FencedError if another instance has taken over."""
        ...

    @property
    def is_asked_to_share(self) -> bool:
        """Whether another instance waits to share the tasks."""
        ...

    def refuse_to_share(self, reason: str) -> None:
        """Answer that the tasks are not shared, and why."""
        ...

    def keep_sharing(self) -> None:
        """Have others share the tasks that start while this instance begins its next epoch, if it shares them."""
        ...

    def give_back(self) -> None:
        """Give the right back."""
        ...


class LeaseTenure:
    """The lease of an application, which one instance has alone, and its membership of the application's group.

    Args:
        log: The application's log.
        config: Its settings.
    """

    def __init__(self, log: TopicLog, config: StreamsConfig) -> None:
        self._log, self._application = log, str(config["application.id"])
        self._owner = _owner_of(config)
        self._keeper: LeaseKeeper | None = None
        self._offer: SharingOffer | None = None

    @property
    def lease(self) -> Lease | None:
        """The present lease."""
        return None if self._keeper is None else self._keeper.lease

    def take(self) -> None:
        """Acquire the lease; replacing that of this start fences its own tasks, but no newer instance."""
        acquire = partial(self._log.acquire_lease, self._application, self._owner, LEASE_TTL_MS)
        if self._keeper is None:
            self._keeper = LeaseKeeper(self._log, acquire())  # a start of the JVM and rebuilds of stores may take long
        else:
            self._keeper.replace(lambda before: acquire(replacing=before))

    def attend(self, topics: Sequence[str], offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Join the application's group."""
        assert self.lease is not None  # noqa: S101 - take() comes first
        self._log.show_as_member(self.lease, list(topics), offsets)

    def membership(self, timeout_s: float) -> GroupMembership | None:
        """Return the membership of the group."""
        return self._log.membership(timeout_s)

    def check(self) -> None:
        """Raise FencedError if another instance has taken over."""
        assert self._keeper is not None  # noqa: S101 - take() comes first
        self._keeper.check()

    def offer_to_share(self, identity: str) -> None:
        """Say that other instances may share the tasks, if they have this in common with this one."""
        self._offer = SharingOffer(SharingRecord(self._log, self._application), identity)

    @property
    def is_asked_to_share(self) -> bool:
        """Whether another instance waits to share the tasks."""
        return self._offer is not None and self._offer.is_asked

    def refuse_to_share(self, reason: str) -> None:
        """Answer that the tasks are not shared, and why."""
        if self._offer is not None:
            self._offer.refuse(reason)

    def keep_sharing(self) -> None:
        """Do nothing: the lease is held meanwhile."""

    def give_back(self) -> None:
        """Release the lease."""
        if self._offer is not None:
            self._offer.end()
        if self._keeper is None:
            return
        if self._keeper.end():
            self._log.release_lease(self._keeper.lease)
        else:
            _log.warning("the lease of %s could not be given back: no broker answers", self._application)


class SharedTenure:
    """No lease: the instances of an application share its tasks, as members of its group.

    Args:
        log: The application's log.
        config: Its settings.
        before: The lease that this instance has had, and has tried to release.
    """

    lease = None
    is_asked_to_share = False

    def __init__(self, log: TopicLog, config: StreamsConfig, before: Lease | None = None) -> None:
        self._log, self._application, self._before = log, str(config["application.id"]), before
        self._owner = _owner_of(config)
        self._record = SharingRecord(log, self._application)
        self._asked_s = float("-inf")

    def take(self) -> None:
        """Check that no instance runs that has a lease; one that is paused, and wakes up later, is fenced.

        Others that start now are asked to share. One that was faster, and has the lease already, is waited for.

        Raises:
            FencedError: An instance runs that has the lease, and does not share.
        """
        self._wait_for_holder()
        self._ask_others()

    def _ask_others(self) -> None:
        """Ask others that start to share, unless that was a short time ago; one of them may have been faster."""
        while time.monotonic() - self._asked_s > _ASK_AGAIN_S:
            self.keep_sharing()
            self._wait_for_holder()

    def _wait_for_holder(self) -> None:
        began = time.monotonic()
        while (refused := self._holder()) is not None:
            offer, facts = self._record.read(), refused.facts
            offers = (offer.host, offer.pid) == (facts.get("host"), facts.get("pid"))
            if not offer.is_asked or time.monotonic() - began > (_PATIENCE_S if offers else _MOMENT_S):
                raise refused
            time.sleep(_POLL_S)

    def _holder(self) -> FencedError | None:
        """Return the error that names an instance that has the lease; None: there is none any more."""
        held = self._log.lease(self._application)
        if held is None or held.released:
            return None
        if self._before is not None and held.epoch == self._before.epoch:  # no broker had answered
            self._log.release_lease(held)
        return runs_already(held) if holder_runs(held) else self._fence()

    def _fence(self) -> FencedError | None:
        """Take the lease, and release it; return the error if another instance has it."""
        try:
            self._log.release_lease(self._log.acquire_lease(self._application, self._owner, LEASE_TTL_MS))
        except FencedError as error:
            return None if "members" in error.facts else error
        return None

    def refuse_to_share(self, reason: str) -> None:
        """Do nothing: they are shared."""

    def attend(self, topics: Sequence[str], offsets: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Look again for a lease, if the start has taken long; its threads are members.

        Raises:
            FencedError: An instance runs that has the lease, and does not share.
        """
        del topics, offsets
        self._ask_others()

    def membership(self, timeout_s: float) -> None:
        """Return None: each thread has its own."""

    def check(self) -> None:
        """Do nothing: each thread hears by itself that the group goes on without it."""

    def keep_sharing(self) -> None:
        """Have others share the tasks that start while this instance has no members; else they would take a lease."""
        self._asked_s = time.monotonic()
        try:
            self._log.prepare_lease(self._application)
            self._record.ask()
        except LogError as error:  # another instance says so at the same time; or the log is away, for others too
            _log.debug("%s: others are not asked to share: %s", self._application, error.message)

    def give_back(self) -> None:
        """Do nothing: there is nothing to give back."""


def _owner_of(config: StreamsConfig) -> str:
    """Return who an instance is in a lease, for readers."""
    return str(config["client.id"] or f"{socket.gethostname()}:{os.getpid()}")
