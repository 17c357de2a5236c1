"""The operations of a foreign-key join; see `penstock.topology.operations.base` for the rules.

Left side: `SubscriptionSend` subscribes its rows to their foreign keys on the right side. Right side:
`SubscriptionReceive` keeps the subscriptions, `SubscriptionJoin` answers with the present foreign value, and
`ForeignTableJoin` answers again when a foreign value changes. Left side: `ResponseJoin` joins the answers that still
fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.topology.operations.base import Operation
from penstock.topology.operations.functions import Function

__all__ = ["ForeignTableJoin", "ResponseJoin", "SubscriptionJoin", "SubscriptionReceive", "SubscriptionSend"]


@dataclass(frozen=True, slots=True)
class SubscriptionSend(Operation):  # SubscriptionSendProcessorSupplier
    """``extractor`` takes (value) or (key, value) and returns the foreign key."""

    extractor: Function
    primary_key_serde: Any
    foreign_key_serde: Any
    value_serde: Any
    left: bool
    versioned: bool = False  # the left table is: changes that are not the latest are dropped


@dataclass(frozen=True, slots=True)
class SubscriptionReceive(Operation):  # SubscriptionReceiveProcessorSupplier
    foreign_key_serde: Any
    primary_key_serde: Any
    store: str


@dataclass(frozen=True, slots=True)
class SubscriptionJoin(Operation):  # SubscriptionJoinProcessorSupplier; ``table`` is the right table
    table: str


@dataclass(frozen=True, slots=True)
class ForeignTableJoin(Operation):  # ForeignTableJoinProcessorSupplier; ``subscriptions`` is the receiving node
    subscriptions: str
    foreign_key_serde: Any
    primary_key_serde: Any
    store: str
    versioned: bool = False  # the right table is: changes that are not the latest are dropped


@dataclass(frozen=True, slots=True)
class ResponseJoin(Operation):  # ResponseJoinProcessorSupplier; ``table`` is the left table
    """``joiner`` takes (left, right) or (key, left, right)."""

    table: str
    value_serde: Any
    joiner: Function
    left: bool
