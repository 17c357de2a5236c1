"""Delivery of one task's records, step by step: from a source to topics, from topics to a sink."""

from penstock.connect.delivery.conversion import Converters, Encoded
from penstock.connect.delivery.sink import SinkDelivery
from penstock.connect.delivery.source import SourceDelivery
from penstock.connect.delivery.steps import Step
from penstock.connect.delivery.stored_offsets import StoredOffsets

__all__ = ["Converters", "Encoded", "SinkDelivery", "SourceDelivery", "Step", "StoredOffsets"]
