"""The settings of the file connectors, as Kafka defines them."""

from __future__ import annotations

from penstock.connect.config import ConfigDef, Importance, Kind, NonEmptyText, Setting

__all__ = ["FILE_SINK", "FILE_SOURCE"]

FILE_SOURCE = ConfigDef(
    [
        Setting(
            name="file",
            kind=Kind.STRING,
            default=None,
            importance=Importance.HIGH,
            doc=("Source filename. If not specified, the standard input will be used"),
        ),
        Setting(
            name="topic",
            kind=Kind.STRING,
            rule=NonEmptyText(),
            importance=Importance.HIGH,
            doc=("The topic to publish data to"),
        ),
        Setting(
            name="batch.size",
            kind=Kind.INT,
            default="2000",
            importance=Importance.LOW,
            doc=("The maximum number of records the source task can read from the file each time it is polled"),
        ),
    ]
)
FILE_SINK = ConfigDef(
    [
        Setting(
            name="file",
            kind=Kind.STRING,
            default=None,
            importance=Importance.HIGH,
            doc=("Destination filename. If not specified, the standard output will be used"),
        ),
    ]
)
