"""The membership of a running application, or of one of its stream threads, in its group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from penstock.errors import FencedError

__all__ = ["GroupMembership", "StreamsMembership", "membership_refused"]


class GroupMembership(NamedTuple):
    """The member of its group that an application is: a commit in its name fails once the group has removed it.

    Attributes:
        member: The member id, assigned by the group.
        instance: The ``group.instance.id``.
        generation: The generation of the group.
    """

    member: str
    instance: str
    generation: int


@dataclass(frozen=True, slots=True)
class StreamsMembership:
    """A stream thread's membership of a streams group (KIP-1071): the group fences commits, and no lease is needed.

    Attributes:
        member: The member id, made by the member itself.
        epoch: The newest epoch that the thread knows. An older one than the group's is accepted for the partitions of
            tasks that the member has had since then (KIP-1251).
        instance: The ``group.instance.id``; empty: it has none.
    """

    member: str
    epoch: int
    instance: str = ""


def membership_refused(
    group: str, membership: StreamsMembership, reason: Literal["stale", "unknown"], details: str
) -> FencedError:
    """Make the error of a commit by a member that has lost its tasks, or its place in the group."""
    return FencedError(
        f"member {membership.member} of group {group!r} may not commit as of epoch {membership.epoch}: {details}",
        hint="Others have its tasks, or will have them soon: close them without a commit, and join again.",
        group=group, member=membership.member, epoch=membership.epoch, membership=reason,
    )  # fmt: skip
