"""The right to run an application, which fences other instances: a lease, or none where instances share the tasks.

An application whose ``group.protocol`` is not set begins with a lease, and *offers* to share: a record of its log says
so, beside the lease. Another start that finds the lease held *asks* in that record, and waits. The holder ends its
epoch, releases the lease, and both go on as members of the application's group. Or it refuses, and says why.

For some time after it was asked for, each start shares, whether or not it finds an instance: so a third one that comes
while the first has released its lease, and is no member yet, does not take the lease.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

from penstock.base.clock import unix_ms
from penstock.base.log_lines import own_logger
from penstock.errors import FencedError, LogError, LogUnavailableError, PenstockError
from penstock.log.fenced_record import SHARING_KEY, SHARING_WRITER, RecordName, change_record
from penstock.log.leases import LeaseKeeper, holder_runs, lease_name, not_shared, runs_already
from penstock.log.processes import may_run, own_process

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import GroupMembership, Lease, TopicLog, TopicPartition
    from penstock.log.fenced_record import StoredRecord

__all__ = [
    "LEASE_TTL_MS",
    "LeaseTenure",
    "Offer",
    "SharedTenure",
    "SharingOffer",
    "SharingRecord",
    "Tenure",
    "wait_for_lease",
    "wait_to_share",
]

# Sharing

_log = own_logger(__name__)
_ASKED_MS = 120_000  # so long a request counts
_ASK_AGAIN_MS = 30_000
_OFFER_MS = 10_000  # after it has taken the lease, an instance that offers to share has said so
_PATIENCE_S = 600.0  # for an instance that offers to share, and may be starting on a busy machine
_LOOK_S = 1.0
_POLL_S = 0.2
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class Offer:
    """The offer of an instance to share its tasks, and a request to do so.

    Attributes:
        host: Its machine; empty: there is no offer.
        pid: Its process.
        start: The start of its process, see `penstock.log.processes.process_start`.
        identity: What an instance that shares the tasks has in common with it, see `Engine.sharing_identity`.
        asked_ms: The time of the last request; 0: there is none.
        refused: Why it does not share all the same; empty: it has not refused.
    """

    host: str = ""
    pid: int = 0
    start: str = ""
    identity: str = ""
    asked_ms: int = 0
    refused: str = ""

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked a short time ago, and was not refused."""
        return not self.refused and abs(unix_ms() - self.asked_ms) < _ASKED_MS

    def is_of(self, held: Lease) -> bool:
        """Return whether the holder of a lease offers this, and not an earlier process."""
        return (self.host, self.pid, self.start) == (held.host, held.pid, held.process_start)

    @classmethod
    def of(cls, stored: StoredRecord) -> Offer:
        """Read a stored offer."""
        facts: Mapping[str, Any] = json.loads(stored.value) if stored.value else {}
        return cls(**{name: facts[name] for name in cls.__slots__ if name in facts})


class LeaseHolder(Protocol):
    """The taker of an application's lease."""

    def take(self) -> None:
        """Take it; raises FencedError if another instance runs."""
        ...

    def give_back(self) -> None:
        """Give it back."""
        ...


class SharingRecord:
    """The record of an application's log with the offer.

    Args:
        log: The log.
        application: The ``application.id``.
    """

    def __init__(self, log: TopicLog, application: str) -> None:
        topic = lease_name(application).topic
        self._record = log.fenced_record(RecordName(application, SHARING_WRITER, topic, SHARING_KEY, is_in_topic=False))

    def read(self) -> Offer:
        """Return the present offer."""
        return Offer.of(self._record.read())

    def offer(self, identity: str) -> None:
        """Offer to share, as the process that holds the lease; a request stays."""
        own = Offer(*own_process(), identity)
        self._change(lambda before: replace(own, asked_ms=before.asked_ms if before.is_asked else 0))

    def ask(self) -> None:
        """Ask the holder of the lease to share."""
        self._change(lambda before: replace(before, asked_ms=unix_ms(), refused=""))

    def refuse(self, reason: str) -> None:
        """Answer that the tasks are not shared."""
        self._change(lambda before: replace(before, refused=reason))

    def _change(self, change: Callable[[Offer], Offer]) -> None:
        def changed(stored: StoredRecord) -> bytes | None:
            before = Offer.of(stored)
            after = change(before)
            return None if after == before else json.dumps(asdict(after)).encode()

        change_record(self._record, changed)


class SharingOffer:
    """An offer to share in a thread of its own, which looks whether somebody asks, until `end`.

    Args:
        record: The record.
        identity: What an instance that shares the tasks has in common with this one.
        on_asked: Called when somebody asks.
    """

    def __init__(self, record: SharingRecord, identity: str, on_asked: Callable[[], None] = lambda: None) -> None:
        self._record, self._identity, self._on_asked = record, identity, on_asked
        self._ended = threading.Event()
        self._has_offered = self._is_asked = False
        self._thread = threading.Thread(target=self._run, name="penstock-sharing", daemon=True)
        self._thread.start()

    @property
    def is_asked(self) -> bool:
        """Whether somebody asks."""
        return self._is_asked

    def refuse(self, reason: str) -> None:
        """Answer that the tasks are not shared, and why."""
        self._record.refuse(reason)
        self._is_asked = False

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._look()
            except PenstockError as error:  # the log is away, or does not allow it; then nobody can ask
                _log.debug("the offer to share is not looked at: %s", error.message)
            except Exception:  # noqa: BLE001 - the application goes on without an offer
                _log.debug("the offer to share is not looked at", exc_info=True)
            self._ended.wait(_LOOK_S)

    def _look(self) -> None:
        if not self._has_offered:
            self._record.offer(self._identity)
            self._has_offered = True
        now = self._record.read()
        self._is_asked = now.asked_ms > 0 and not now.refused  # by any clock: the offer has removed old requests
        if self._is_asked:
            self._on_asked()


def wait_to_share(
    log: TopicLog,
    application: str,
    lease: LeaseHolder,
    identity: str,
    why_not_shared: Callable[[], str],
    doing: Callable[[str], None],
) -> bool:
    """Take the lease, or have the instance that holds it share its tasks.

    Args:
        log: The log.
        application: The ``application.id``.
        lease: Takes the lease, and gives it back.
        identity: What an instance that shares the tasks has in common with this one.
        why_not_shared: Returns why this one could not share; empty: it can. Asked for once, when it is needed.
        doing: Called with what is waited for.

    Returns:
        Whether the tasks are shared from now on; else the lease is held.

    Raises:
        FencedError: An instance runs that does not share its tasks.
    """
    record, holder, began, asked_ms = SharingRecord(log, application), _Holder(), time.monotonic(), 0
    obstacle = cache(why_not_shared)  # the brokers are asked
    while True:
        held = log.lease(application)
        if held is None or not holder.runs(held):
            try:
                return not _take(lease, record, obstacle)
            except FencedError as error:
                if "owner" not in error.facts or time.monotonic() - began > _PATIENCE_S:
                    raise
                holder.is_seen(error.facts.get("since_ms"))  # its clock is behind; or it was faster
            time.sleep(_POLL_S)
            continue
        offer = record.read()
        if not offer.is_of(held) and holder.should_have_offered(held):
            raise runs_already(held)
        if refusal := _refusal(held, offer, identity, obstacle()):
            raise refusal
        if asked_ms and offer.refused:  # an earlier refusal was of another start
            raise not_shared(held, offer.refused)
        if offer.is_of(held) and unix_ms() - asked_ms > _ASK_AGAIN_MS:
            if not asked_ms:
                _log.info("%s runs already, in process %d on %s: it is asked to share its tasks", application, held.pid,
                          held.host)  # fmt: skip
            record.ask()
            asked_ms = unix_ms()
        if time.monotonic() - began > _PATIENCE_S:
            raise not_shared(held, f"it has not answered for {_PATIENCE_S:.0f} s")
        doing(f"waiting for process {held.pid} on {held.host} to share its tasks")
        time.sleep(_POLL_S)


def wait_for_lease(
    log: TopicLog, application: str, lease: LeaseHolder, wait: Callable[[Lease], None], is_stopped: Callable[[], bool]
) -> bool:
    """Take the lease, once no other instance has it; return whether it was waited for.

    Args:
        log: The log.
        application: The ``application.id``.
        lease: Takes the lease.
        wait: Called while another instance has the lease, again and again.
        is_stopped: Returns whether to wait no longer.

    Raises:
        FencedError: The other instance is of this process, or shares its tasks with others; or `is_stopped`.
        LogUnavailableError: The log is away at the first look; later ones are repeated.
    """
    holder, has_waited = _Holder(), False
    while True:
        try:
            held = log.lease(application)
        except LogUnavailableError:
            if not has_waited or is_stopped():
                raise
            time.sleep(_POLL_S)  # who waits for days outlasts a broker that is away
            continue
        if held is None or not holder.runs(held):
            try:
                lease.take()
            except FencedError as error:
                if "owner" not in error.facts:
                    raise
                holder.is_seen(error.facts.get("since_ms"))  # its clock is behind; or another one was faster
            else:
                return has_waited
        elif (held.host, held.pid, held.process_start) == own_process() or is_stopped():
            raise runs_already(held)
        else:
            wait(held)
        has_waited = True
        time.sleep(_POLL_S)


class _Holder:
    """The holder of the lease as a start sees it; its clock may be behind or ahead."""

    def __init__(self) -> None:
        self._since_ms, self._heartbeat_ms = -1, -1
        self._seen_s = float("-inf")  # when it was known to run
        self._first_s = 0.0

    def runs(self, held: Lease) -> bool:
        """Return whether it runs: its heartbeats look new, or go on."""
        if held.since_ms != self._since_ms:
            self._first_s = time.monotonic()
        elif held.heartbeat_ms != self._heartbeat_ms:
            self._seen_s = time.monotonic()
        self._since_ms, self._heartbeat_ms = held.since_ms, held.heartbeat_ms
        is_alive = not held.released and (time.monotonic() - self._seen_s) * 1000 < held.ttl_ms
        return holder_runs(held) or (is_alive and may_run(held.host, held.pid, held.process_start))

    def is_seen(self, since_ms: object) -> None:
        """Note that the holder since then runs, whatever its heartbeats look like."""
        if since_ms == self._since_ms:
            self._seen_s = time.monotonic()

    def should_have_offered(self, held: Lease) -> bool:
        """Return whether it would have offered to share by now."""
        waited_ms = (time.monotonic() - self._first_s) * 1000
        return max(waited_ms, held.heartbeat_ms - held.since_ms) > _OFFER_MS


def _take(lease: LeaseHolder, record: SharingRecord, obstacle: Callable[[], str]) -> bool:
    """Take the lease; return False if other instances share the tasks, or begin to, and this one can share them, too.

    Raises:
        FencedError: Another instance has the lease; or others share the tasks, and this one cannot.
    """
    if record.read().is_asked and not obstacle():
        return False
    try:
        lease.take()
    except FencedError as error:
        if "members" not in error.facts:  # of other instances, which share
            raise
        if reason := obstacle():
            raise FencedError(
                error.message, hint=f"This start cannot share the tasks: {reason}. Stop the others first", **error.facts
            ) from error
        return False
    if record.read().is_asked and not obstacle():  # the lease was released to share
        lease.give_back()
        return False
    return True


def _refusal(held: Lease, offer: Offer, identity: str, obstacle: str) -> FencedError | None:
    """Return the error for a start that cannot share the tasks of the holder; None: it may be able to."""
    if (held.pid, held.process_start) == own_process()[1:]:  # containers have equal numbers
        return runs_already(held)
    if obstacle:
        return not_shared(held, obstacle)
    if offer.is_of(held) and offer.identity != identity:
        return not_shared(held, "its topology or processing.guarantee is another one")
    return None


# Leases

LEASE_TTL_MS = 30_000
_MOMENT_S = 60.0  # in which a lease is held while several begin to share
_ASK_AGAIN_S = 30.0


class Tenure(Protocol):
    """The right of an instance to run an application, from `take` to `give_back`."""

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

    def offer_to_share(self, identity: str, on_asked: Callable[[], None] = lambda: None) -> None:
        """Say that other instances may share the tasks, if they have this in common with this one."""
        self._offer = SharingOffer(SharingRecord(self._log, self._application), identity, on_asked)

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
