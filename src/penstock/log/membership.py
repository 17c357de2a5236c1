"""The membership of a running application in its group."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GroupMembership"]


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
