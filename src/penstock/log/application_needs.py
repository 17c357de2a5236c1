"""What an application needs from a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from penstock.base.randomness import RANDOM

__all__ = ["ApplicationNeeds", "owner_of"]

_COMPACTED, _REPARTITION = ("-changelog", "-penstock-ledger", "-penstock-formats"), ("-repartition",)
_REST = re.compile(r"-(?:.+-(?:changelog|repartition|dataframe)|penstock-.+|.+SUBSCRIPTION-.+-topic)")  # of the name


def owner_of(topic: str, applications: Iterable[str]) -> str | None:
    """Return the application that owns an internal topic; None for other topics.

    >>> owner_of("shop-orders-changelog", ["shop", "shop-orders"]), owner_of("orders-changelog", ["shop"])
    ('shop', None)

    Args:
        topic: The topic's name.
        applications: Groups that have committed offsets; an application's is its ``application.id``.
    """
    owners = [name for name in applications if topic.startswith(name) and _REST.fullmatch(topic[len(name) :])]
    return max(owners, key=len, default=None)


@dataclass(frozen=True, slots=True)
class ApplicationNeeds:
    """The topics of an application, and its names for the rights of groups and transactions.

    Attributes:
        application: Its ``application.id``.
        sources: The topics that it reads.
        sinks: The topics that it writes, which its start creates if they do not exist.
        internal: Its own topics, each with its number of partitions; 0: not known.
        compacted: Those of them that are compacted: changelogs, the ledger.
        repartition: Those of them through which records go between its tasks.
        replication: The ``replication.factor`` of topics that it creates; -1: the brokers' default.
        transaction_timeout_ms: The time-out of its transactions.
        request_bytes: The size of the largest record that it sends.
    """

    application: str
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    internal: Mapping[str, int] = field(default_factory=dict)
    compacted: tuple[str, ...] = ()
    repartition: tuple[str, ...] = ()
    replication: int = -1
    transaction_timeout_ms: int = 10_000
    request_bytes: int = 1_048_588

    @property
    def prefix(self) -> str:
        """The first letters of its own topics and transactional ids."""
        return f"{self.application}-"

    def unused_name(self) -> str:
        """Return a name of the prefix that no topic and no transactional id has."""
        return f"{self.prefix}penstock-doctor-{RANDOM.getrandbits(48):012x}"

    def with_topics(self, names: Iterable[str], read: Iterable[str]) -> Self:
        """Return these needs with the topics that exist, of an application whose topology is not known.

        >>> shop = ApplicationNeeds("shop").with_topics(["shop-counts-changelog", "eu-x-changelog"], ["orders"])
        >>> shop.compacted, shop.sources
        (('shop-counts-changelog',), ('orders',))

        Args:
            names: The names of topics of the cluster.
            read: The topics that its group has committed offsets of.
        """
        own = [name for name in names if name.startswith(self.prefix) and name.endswith((*_COMPACTED, *_REPARTITION))]
        return replace(
            self,
            sources=tuple(name for name in sorted(read) if name not in own),
            internal=dict.fromkeys(own, 0),
            compacted=tuple(name for name in own if name.endswith(_COMPACTED)),
            repartition=tuple(name for name in own if name.endswith(_REPARTITION)),
        )
