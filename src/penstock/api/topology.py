"""The public Topology: built node by node with the Processor API, or by ``StreamsBuilder.build()``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Self

from penstock.api.handle import check_kind
from penstock.api.options import checked_reset
from penstock.api.processing import connected_stores, processor_operation
from penstock.api.serdes import resolve
from penstock.errors import TopologyError
from penstock.topology import topology as frozen
from penstock.topology.assembly import Assembly
from penstock.topology.functions import Function
from penstock.topology.names import check_name
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.stores import StoreSpec

__all__ = ["Topology"]

_MAKE_STORE = 'Make one with Stores, e.g. Stores.key_value("counts").'


class Topology(frozen.Topology):
    """A graph of sources, processors and sinks: Kafka's ``Topology``.

    ``StreamsBuilder.build()`` gives one, and the ``add_`` methods extend it, or an empty one, node by node. A node is
    added after its parents. An application and a test driver work on the topology as it is when they are made.

    >>> from penstock import Processor, Topology
    >>> class Upper(Processor):
    ...     def process(self, record):
    ...         self.context.forward(record.with_value(record.value.upper()))
    >>> topology = Topology()
    >>> topology = topology.add_source("in", "words").add_processor("up", Upper, "in").add_sink("out", "loud", "up")
    >>> print(topology.describe())
    Topologies:
       Sub-topology: 0
        Source: in (topics: [words])
          --> up
        Processor: up (stores: [])
          --> out
          <-- in
        Sink: out (topic: loud)
          <-- up
    <BLANKLINE>
    <BLANKLINE>

    Raises:
        TopologyError: Every ``add_`` method, for a name that is taken, a parent or store that is not there, or a topic
            that another source reads. The topology is then as it was before.
    """

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Callable[..., int] | None = None,
        offset_reset: str | None = None,
    ) -> Self:
        """Adds a node that reads a topic, several, or all whose name matches a compiled pattern (``addSource``).

        Args:
            name: The node's name.
            topics: The name of a topic, a list of names, or ``re.compile(...)``.
            key_serde: How keys decode; None is ``default.key.serde``.
            value_serde: How values decode; None is ``default.value.serde``.
            timestamp_extractor: Called as ``fn(record, partition_time_ms)``; gives milliseconds, negative to drop.
            offset_reset: Where to start without a committed offset; see `Consumed`.
        """
        offset_reset = checked_reset(offset_reset, node=name)
        pattern = topics.pattern if isinstance(topics, re.Pattern) else None
        names = () if isinstance(topics, re.Pattern) else (topics,) if isinstance(topics, str) else tuple(topics)
        if pattern is None and not names:
            raise TopologyError(f"source {name!r} reads no topic", hint="Name at least one.", node=name)
        node = _source(name, names, key_serde, value_serde, timestamp_extractor)
        return self._grow(lambda a: a.add(replace(node, pattern=pattern, offset_reset=offset_reset)))

    def add_processor(self, name: str, supplier: Callable[[], Any], *parents: str) -> Self:
        """Adds a processor (``addProcessor``), and the stores that its supplier's ``stores()`` gives.

        Args:
            name: The node's name.
            supplier: The class of the processor, or a function without arguments that makes one; called for each task.
            parents: The nodes whose records it gets.
        """
        _checked(name)
        own = connected_stores(supplier)
        node = ProcessorNode(name, processor_operation(supplier, "add_processor", own), parents)

        def add(assembly: Assembly) -> None:
            assembly.add(node)
            for store in own:
                assembly.add_store(store, [name])

        return self._grow(add)

    def add_sink(
        self,
        name: str,
        topic: str | Callable[..., str],
        *parents: str,
        key_serde: Any = None,
        value_serde: Any = None,
        partitioner: Callable[..., int] | None = None,
    ) -> Self:
        """Adds a node that writes to a topic (``addSink``).

        Args:
            name: The node's name.
            topic: The topic, or a function of (key, value) or (key, value, record context) that names it.
            parents: The nodes whose records it writes.
            key_serde: How keys encode; None is ``default.key.serde``.
            value_serde: How values encode; None is ``default.value.serde``.
            partitioner: Called as ``fn(topic, key, value, partitions)``; by default Kafka's hash of the key.
        """
        _checked(name)
        fixed = topic if isinstance(topic, str) else None
        node = SinkNode(
            name,
            None if fixed is None else check_name(fixed, "topic"),
            resolve(key_serde),
            resolve(value_serde),
            parents,
            None if fixed is not None else _function(topic, "add_sink", (2, 3)),
            None if partitioner is None else _function(partitioner, "partitioner", (4,)),
        )
        return self._grow(lambda a: a.add(node))

    def add_state_store(self, store: StoreSpec, *processors: str) -> Self:
        """Adds a store, made with `Stores`, and connects processors to it (``addStateStore``)."""
        check_kind(store, StoreSpec, "add_state_store", _MAKE_STORE)
        return self._grow(lambda a: a.add_store(store, processors))

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Self:
        """Lets a processor use stores that have been added (``connectProcessorAndStateStores``).

        Processors that share a store belong to one sub-topology.
        """
        if not stores:
            raise TopologyError(f"{processor!r} is connected to no store", hint="Name at least one.", node=processor)
        return self._grow(lambda a: a.connect(processor, stores))

    def add_global_store(
        self,
        store: StoreSpec,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Callable[[], Any],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Callable[..., int] | None = None,
    ) -> Self:
        """Adds a store of which every instance has a full copy, kept up to date by a processor (``addGlobalStore``).

        Every processor may read it without being connected; only this one may write it.

        Args:
            store: Made with `Stores`; the topic is its changelog.
            source_name: The name of the node that reads the topic.
            topic: The topic whose records keep the store up to date.
            processor_name: The name of the processor.
            supplier: Makes the processor, which puts the records into the store. It forwards nothing.
            key_serde: How keys decode; by default the store's.
            value_serde: How values decode; by default the store's.
            timestamp_extractor: As in ``add_source``.
        """
        serdes = (key_serde, value_serde)
        return self._fed_store(
            store, source_name, topic, processor_name, supplier, serdes, timestamp_extractor, is_global=True
        )

    def add_read_only_state_store(
        self,
        store: StoreSpec,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Callable[[], Any],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Callable[..., int] | None = None,
    ) -> Self:
        """Adds a store that a topic keeps up to date, task by task (``addReadOnlyStateStore``).

        Other processors read it after ``connect_processor_and_state_stores``, and the topic is its changelog; the
        topics of all of them need the same number of partitions. Arguments as in ``add_global_store``.
        """
        serdes = (key_serde, value_serde)
        return self._fed_store(store, source_name, topic, processor_name, supplier, serdes, timestamp_extractor)

    def _fed_store(
        self,
        store: StoreSpec,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Callable[[], Any],
        serdes: tuple[Any, Any],
        extractor: Callable[..., int] | None,
        *,
        is_global: bool = False,
    ) -> Self:
        verb = "add_global_store" if is_global else "add_read_only_state_store"
        check_kind(store, StoreSpec, verb, _MAKE_STORE)
        key_serde, value_serde = (
            own if given is None else given
            for given, own in zip(serdes, (store.key_serde, store.value_serde), strict=True)
        )
        source = _source(source_name, (topic,), key_serde, value_serde, extractor)
        source = replace(source, global_store=is_global, offset_reset=None if is_global else "earliest")
        spec = replace(store, logging=False, changelog_topic=topic)
        operation = processor_operation(supplier, verb, (spec,))
        processor = ProcessorNode(_checked(processor_name), operation, (source_name,))

        def add(assembly: Assembly) -> None:
            if spec.name in assembly.stores:
                raise TopologyError(f"a store is named {spec.name!r} already", hint="Rename it.", store=spec.name)
            assembly.add(source)
            assembly.add(processor)
            assembly.add_store(spec, [processor_name], is_global=is_global)

        return self._grow(add)

    def _grow(self, add: Callable[[Assembly], None]) -> Self:
        """Adds to this very object, as Java's topology does; frozen for everybody else."""
        assembly = Assembly.of(self)
        add(assembly)
        grown = assembly.extended(self)
        for field in fields(grown):
            object.__setattr__(self, field.name, getattr(grown, field.name))
        return self


def _source(
    name: str,
    topics: tuple[str, ...],
    key_serde: Any,
    value_serde: Any,
    extractor: Callable[..., int] | None,
) -> SourceNode:
    for topic in topics:
        check_name(topic, "topic")
    return SourceNode(
        _checked(name),
        tuple(dict.fromkeys(topics)),
        resolve(key_serde),
        resolve(value_serde),
        timestamp_extractor=None if extractor is None else _function(extractor, "timestamp_extractor", (1, 2)),
    )


def _function(fn: object, verb: str, allowed: tuple[int, ...]) -> Function:
    return Function.wrap(fn, verb=verb, allowed=allowed, expression=False)


def _checked(name: str) -> str:
    """Any text, unlike the names of verbs: no topic or store is named after these nodes."""
    if not isinstance(name, str) or not name:
        raise TopologyError(f"the name of a node is {name!r}", hint="Give a text, as the first argument.")
    return name
