"""Delivery of one task's records, step by step: from a source to topics, from topics to a sink.

The same for a task in a worker, for ``connect run`` and for the test driver.
"""

from penstock.connect.delivery.pipeline import Converters, Encoded, Pipeline, Step
from penstock.connect.delivery.sink import SinkDelivery
from penstock.connect.delivery.source import SourceDelivery, Unwatched
from penstock.connect.delivery.source_encoding import SourceSteps
from penstock.connect.delivery.source_writer import RecordWriter, StoredOffsets, WritableLog

__all__ = [
    "Converters",
    "Encoded",
    "Pipeline",
    "RecordWriter",
    "SinkDelivery",
    "SourceDelivery",
    "SourceSteps",
    "Step",
    "StoredOffsets",
    "Unwatched",
    "WritableLog",
]
