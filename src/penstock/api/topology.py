"""The public Topology: built node by node with the Processor API, or by ``StreamsBuilder.build()``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Self

from penstock.api.handle import check_kind
from penstock.api.options import checked_reset
from penstock.api.processing.build import connected_stores, processor_operation
from penstock.api.serdes import resolve
from penstock.api.topic_verbs import topic_names
from penstock.base.java_names import with_java_names
from penstock.errors import TopologyError
from penstock.topology import topology as frozen
from penstock.topology.building.assembly import Assembly
from penstock.topology.building.names import check_name
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode
from penstock.topology.operations.definitions import Process
from penstock.topology.operations.functions import TOPIC_OF, Function
from penstock.topology.stores import StoreSpec
from penstock.topology.timestamp_extractors import extractor_of

__all__ = ["Topology"]

_MAKE_STORE = 'Make one with Stores, e.g. Stores.key_value("counts").'


@with_java_names
class Topology(frozen.Topology):
    """A graph of sources, processors and sinks: Kafka's ``Topology``.

    ``StreamsBuilder.build()`` returns one, and the ``add_`` methods extend it, or an empty one, node by node. A node is
    added after its parents. An application and a test driver use the topology as it is when they are created.

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
        TopologyError: By every ``add_`` method, for a name that is taken, a parent or store that does not exist, or a
            topic that another source reads. The topology is then unchanged.
    """

    def add_source(
        self,
        name: str,
        topics: str | Sequence[str] | re.Pattern[str],
        *,
        key_serde: Any = None,
        value_serde: Any = None,
        timestamp_extractor: Callable[..., int] | str | None = None,
        offset_reset: str | None = None,
    ) -> Self:
        """Add a node that reads a topic, several topics, or all that match a compiled pattern (``addSource``).

        Args:
            name: The node's name.
            topics: The name of a topic, a list of names, or ``re.compile(...)``.
            key_serde: The serde of keys; None is ``default.key.serde``.
            value_serde: The serde of values; None is ``default.value.serde``.
            timestamp_extractor: A function called as ``fn(record, partition_time_ms)`` that returns milliseconds; a
                negative number drops the record. Or the name of one of Kafka's, as in `Consumed`.
            offset_reset: The start without a committed offset; see `Consumed`.
        """
        offset_reset = checked_reset(offset_reset, node=name)
        pattern = topics.pattern if isinstance(topics, re.Pattern) else None
        names = () if isinstance(topics, re.Pattern) else topic_names(topics, "add_source")
        if pattern is None and not names:
            raise TopologyError(f"source {name!r} reads no topic", hint="Name at least one.", node=name)
        node = _source(name, names, key_serde, value_serde, timestamp_extractor)
        return self._grow(lambda a: a.add(replace(node, pattern=pattern, offset_reset=offset_reset)))

    def add_processor(self, name: str, supplier: Callable[[], Any], *parents: str) -> Self:
        """Add a processor (``addProcessor``), and the stores of its supplier's ``stores()``.

        Args:
            name: The node's name.
            supplier: The class of the processor, or a function without arguments that makes one; called once for each
                task.
            parents: The nodes whose records it gets.
        """
        _checked(name, *parents)
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
        partitioner: Callable[..., Any] | None = None,
    ) -> Self:
        """Add a node that writes to a topic (``addSink``).

        Args:
            name: The node's name.
            topic: The topic, or a function of (key, value) or (key, value, record context) that returns it.
            parents: The nodes whose records it writes.
            key_serde: The serde of keys; None is ``default.key.serde``.
            value_serde: The serde of values; None is ``default.value.serde``.
            partitioner: A function called as ``fn(topic, key, value, partitions)``, or with the headers before the
                number of partitions; see `Produced`. By default Kafka's hash of the key.
        """
        _checked(name, *parents)
        fixed = topic if isinstance(topic, str) else None
        node = SinkNode(
            name,
            None if fixed is None else check_name(fixed, "topic"),
            resolve(key_serde),
            resolve(value_serde),
            parents,
            None if fixed is not None else _function(topic, "add_sink", (2, 3), TOPIC_OF),
            None if partitioner is None else _function(partitioner, "add_sink: partitioner", (4, 5)),
        )
        return self._grow(lambda a: a.add(node))

    def add_state_store(self, store: StoreSpec, *processors: str) -> Self:
        """Add a store, made with `Stores`, and connect processors to it (``addStateStore``)."""
        check_kind(store, StoreSpec, "add_state_store", _MAKE_STORE)
        _checked(*processors)
        return self._grow(lambda a: a.add_store(store, processors))

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Self:
        """Connect a processor to stores that have been added (``connectProcessorAndStateStores``).

        Processors that share a store belong to one sub-topology.
        """
        _checked(processor, *stores)
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
        timestamp_extractor: Callable[..., int] | str | None = None,
    ) -> Self:
        """Add a store that every machine has in full, kept up to date by a processor (``addGlobalStore``).

        Every processor may read it without being connected; only this one may write to it.

        Args:
            store: The store, made with `Stores`; the topic is its changelog.
            source_name: The name of the node that reads the topic.
            topic: The topic whose records keep the store up to date.
            processor_name: The name of the processor.
            supplier: The class of the processor that puts the records into the store, or a function that makes one. It
                must not forward records.
            key_serde: The serde of keys; by default the store's.
            value_serde: The serde of values; by default the store's.
            timestamp_extractor: As in ``add_source``.
        """
        check_kind(store, StoreSpec, "add_global_store", _MAKE_STORE)
        source = _source(source_name, (topic,), key_serde, value_serde, timestamp_extractor)
        operation = processor_operation(supplier, "add_global_store", (store,))
        return self._add_fed_store(store, replace(source, global_store=True), processor_name, operation)

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
        timestamp_extractor: Callable[..., int] | str | None = None,
    ) -> Self:
        """Add a store that a processor keeps up to date from a topic (``addReadOnlyStateStore``).

        Other processors may read it after ``connect_processor_and_state_stores``; the topics of their sub-topology need
        the same number of partitions. The topic is the changelog. For the arguments see ``add_global_store``.
        """
        check_kind(store, StoreSpec, "add_read_only_state_store", _MAKE_STORE)
        source = _source(source_name, (topic,), key_serde, value_serde, timestamp_extractor)
        operation = processor_operation(supplier, "add_read_only_state_store", (store,))
        return self._add_fed_store(store, replace(source, offset_reset="earliest"), processor_name, operation)

    def _add_fed_store(self, store: StoreSpec, source: SourceNode, name: str, operation: Process) -> Self:
        """Add a store with the source and the processor of this name that keep it up to date."""
        source = _store_source(store, source)
        processor = ProcessorNode(_checked(name), operation, (source.name,))
        spec = replace(store, logging=False, changelog_topic=source.topics[0])

        def add(assembly: Assembly) -> None:
            assembly.add(source)
            assembly.add(processor)
            assembly.add_store(spec, [processor.name], is_global=source.global_store)

        return self._grow(add)

    def _grow(self, add: Callable[[Assembly], None]) -> Self:
        """Add to this object itself, as Java's topology does; it is frozen otherwise."""
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
    extractor: Callable[..., int] | str | None,
) -> SourceNode:
    for topic in topics:
        check_name(topic, "topic")
    return SourceNode(
        _checked(name),
        tuple(dict.fromkeys(topics)),
        resolve(key_serde),
        resolve(value_serde),
        timestamp_extractor=extractor_of(extractor, "add_source: timestamp_extractor"),
    )


def _store_source(store: StoreSpec, source: SourceNode) -> SourceNode:
    """Return the source with the serdes of the store where it has none of its own."""
    return replace(
        source,
        key_serde=store.key_serde if source.key_serde is None else source.key_serde,
        value_serde=store.value_serde if source.value_serde is None else source.value_serde,
    )


def _function(fn: object, verb: str, allowed: tuple[int, ...], passed: str = "") -> Function:
    return Function.wrap(fn, verb=verb, allowed=allowed, passed=passed, expression=False)


def _checked(*names: str) -> str:
    """Check that names are texts and return the first. Any text is allowed, as no topic is named after these nodes."""
    for name in names:
        if not isinstance(name, str) or not name:
            raise TopologyError(
                f"the name of a node or store is {name!r}", hint="Give texts, each as a separate argument."
            )
    return names[0] if names else ""
