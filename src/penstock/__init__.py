"""Penstock: Kafka Streams for Python, running on Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.base.extension_points import declare
from penstock.base.version import __version__

if TYPE_CHECKING:
    from penstock.api.builder import StreamsBuilder
    from penstock.api.groups import agg
    from penstock.api.joins.stream_stream import JoinWindows
    from penstock.api.options import (
        Branched,
        Consumed,
        Grouped,
        Joined,
        Materialized,
        Named,
        Produced,
        Repartitioned,
        StreamJoined,
        TableJoined,
    )
    from penstock.api.processing.build import ProcessorWrapper
    from penstock.api.processing.processor import (
        Cancellable,
        FixedKeyProcessor,
        FixedKeyRecord,
        Processor,
        ProcessorContext,
        Punctuator,
        Record,
        RecordMetadata,
        ValueTransformerWithKey,
    )
    from penstock.api.stores import Stores
    from penstock.api.stream import KStream
    from penstock.api.table import GlobalKTable, KTable
    from penstock.api.topology import Topology
    from penstock.api.windowed.suppressed import BufferConfig, Suppressed
    from penstock.api.windowed.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows
    from penstock.config import StreamsConfig
    from penstock.engines.kafka_streams import KafkaStreams
    from penstock.errors import PenstockError
    from penstock.serde import Serdes
    from penstock.serde.windowed import Window, Windowed
    from penstock.state.restores.restore_progress import StateRestoreListener
    from penstock.testing import TopologyTestDriver
    from penstock.topology.operations.definitions import Retry

__all__ = [
    "Branched",
    "BufferConfig",
    "Cancellable",
    "Consumed",
    "FixedKeyProcessor",
    "FixedKeyRecord",
    "GlobalKTable",
    "Grouped",
    "JoinWindows",
    "Joined",
    "KStream",
    "KTable",
    "KafkaStreams",
    "Materialized",
    "Named",
    "PenstockError",
    "Processor",
    "ProcessorContext",
    "ProcessorWrapper",
    "Produced",
    "Punctuator",
    "Record",
    "RecordMetadata",
    "Repartitioned",
    "Retry",
    "Serdes",
    "SessionWindows",
    "SlidingWindows",
    "StateRestoreListener",
    "Stores",
    "StreamJoined",
    "StreamsBuilder",
    "StreamsConfig",
    "Suppressed",
    "TableJoined",
    "TimeWindows",
    "Topology",
    "TopologyTestDriver",
    "UnlimitedWindows",
    "ValueTransformerWithKey",
    "Window",
    "Windowed",
    "__version__",
    "agg",
]

# Names are loaded when they are first used: `import penstock` loads neither Polars nor PyArrow nor PySpark.
_MODULES = {
    "api.builder": ("StreamsBuilder",),
    "api.joins.stream_stream": ("JoinWindows",),
    "api.options": (
        "Branched",
        "Consumed",
        "Grouped",
        "Joined",
        "Materialized",
        "Named",
        "Produced",
        "Repartitioned",
        "StreamJoined",
        "TableJoined",
    ),
    "api.processing.processor": (
        "Cancellable",
        "FixedKeyProcessor",
        "FixedKeyRecord",
        "Processor",
        "ProcessorContext",
        "Punctuator",
        "Record",
        "RecordMetadata",
        "ValueTransformerWithKey",
    ),
    "api.stores": ("Stores",),
    "api.stream": ("KStream",),
    "api.windowed.suppressed": ("BufferConfig", "Suppressed"),
    "api.table": ("GlobalKTable", "KTable"),
    "api.topology": ("Topology",),
    "api.processing.build": ("ProcessorWrapper",),
    "api.windowed.windows": ("SessionWindows", "SlidingWindows", "TimeWindows", "UnlimitedWindows"),
    "engines.kafka_streams": ("KafkaStreams",),
    "config": ("StreamsConfig",),
    "errors": ("PenstockError",),
    "serde": ("Serdes",),
    "serde.windowed": ("Window", "Windowed"),
    "state.restores.restore_progress": ("StateRestoreListener",),
    "testing": ("TopologyTestDriver",),
    "topology.operations.definitions": ("Retry",),
}
# What stands above the core and plugs into it; each is imported when the core first asks for it.
declare("penstock.applications", "console", "penstock.console.extension:ConsoleExtension")
declare("penstock.applications", "connectors", "penstock.connect.application_sinks:ConnectorSinks")
declare("penstock.languages", "sql", "penstock.sql:stream")

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "agg":
        return import_module("penstock.api.groups.agg")
    if name not in _MODULE_OF:
        from penstock.base.java_names import JAVA_CLASSES

        if name in JAVA_CLASSES:  # no AttributeError: Python would put a sentence without any help in its place
            raise ImportError(f"penstock has no {name}: it is {JAVA_CLASSES[name]} here", name=__name__)
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(f"penstock.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
