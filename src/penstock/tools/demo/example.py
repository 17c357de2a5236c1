"""Running an example: its records go into an embedded log, its topology runs on Spark, and its outputs are printed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import StreamsConfig
from penstock.engines.kafka_streams import KafkaStreams
from penstock.log.clients.producer import Producer
from penstock.log.open import open_log
from penstock.topology.configured import with_serdes

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.topology.nodes import SinkNode, SourceNode
    from penstock.topology.topology import Topology

__all__ = ["ExampleRecord", "run_example"]

ExampleRecord = tuple[Any, ...]
_START_MS = 1_790_000_000_000  # 2026-09-21T14:13:20Z, the time of records without a timestamp
_KEPT = {"retention.ms": "-1"}


def run_example(
    topology: Topology,
    config: Mapping[str, Any],
    records: Iterable[ExampleRecord],
    *,
    directory: str | Path = ".demo",
    partitions: int = 2,
) -> None:
    """Run a topology on some records until all are processed, and print the outputs.

    Everything is kept in ``directory/<application.id>`` for inspection (``penstock topics``). It is emptied first:
    every run starts from nothing.

    Args:
        topology: The example's topology.
        config: Its settings.
        records: (topic, key, value) or (topic, key, value, timestamp in milliseconds).
        directory: The parent directory of all files.
        partitions: The partitions of each topic.
    """
    home = Path(directory).expanduser().absolute() / str(config["application.id"])
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    settings = StreamsConfig(
        {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            **config,
            "bootstrap.servers": f"sqlite:///{home / 'topics.db'}",
            "state.dir": str(home / "state"),
            "num.partitions": partitions,
        }
    )
    typed = with_serdes(topology, settings)
    with open_log(str(settings["bootstrap.servers"])) as log:
        outputs = {n.topic: n for n in typed.sinks if not n.internal and n.topic is not None}
        for topic in dict.fromkeys([*(t for n in typed.sources for t in n.topics), *outputs]):
            if topic not in typed.internal_topics:
                log.create_topic(topic, partitions, _KEPT)
        _write(log, typed.sources, records)
        KafkaStreams(topology, settings).run(until="latest")
        for topic, sink in outputs.items():
            _show(log, sink, topic)
    sys.stdout.write(f"\neverything is in {home}\n")


def _write(log: TopicLog, sources: Iterable[SourceNode], records: Iterable[ExampleRecord]) -> None:
    serdes = {topic: (n.key_serde, n.value_serde) for n in sources for topic in n.topics}
    with Producer(log) as producer:
        for topic, key, value, *timestamp in records:
            keys, values = serdes[topic]
            data = {"key": keys.serialize(key), "timestamp": timestamp[0] if timestamp else _START_MS}
            producer.send(topic, values.serialize(value), **data)


def _show(log: TopicLog, sink: SinkNode, topic: str) -> None:
    for partition in range(log.partitions(topic)):
        records = log.read(topic, partition, 0).records
        keys, values = (
            serde.decode(records.column(name)).items()
            for serde, name in ((sink.key_serde, "key"), (sink.value_serde, "value"))
        )
        for key, value in zip(keys, values, strict=True):
            sys.stdout.write(f"{topic}-{partition}  {key!s}  ->  {value!s}\n")
