"""The classes that connectors are made of: connectors, their tasks, and what a worker hands to them."""

from penstock.connect.api.connector import (
    Boundaries,
    Connector,
    ConnectorContext,
    ExactlyOnce,
    SinkConnector,
    SourceConnector,
)
from penstock.connect.api.sink_task import ErrantRecordReporter, SinkTask, SinkTaskContext
from penstock.connect.api.source_task import OffsetReader, SourceTask, SourceTaskContext, TransactionContext

__all__ = [
    "Boundaries",
    "Connector",
    "ConnectorContext",
    "ErrantRecordReporter",
    "ExactlyOnce",
    "OffsetReader",
    "SinkConnector",
    "SinkTask",
    "SinkTaskContext",
    "SourceConnector",
    "SourceTask",
    "SourceTaskContext",
    "TransactionContext",
]
