"""A topology as an application runs it: completed by the settings, default serdes among them, and checked.

Where a serde declares the fields of its values, those that a verb looks up must be among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from penstock.base.nearest_name import did_you_mean
from penstock.errors import TopologyError
from penstock.serde.bound_serdes import CurrentHeaders, bound, configured, has_schema, in_task, uses_headers
from penstock.topology.nodes import Node, ProcessorNode, SourceNode
from penstock.topology.operations.definitions import CogroupMember, CogroupMerge, StreamGlobalTableJoin, StreamToTable
from penstock.topology.operations.functions import Function, functions_of
from penstock.topology.stores import StoreSpec
from penstock.topology.timestamp_extractors import extractor_of
from penstock.topology.topology import Topology

__all__ = [
    "DefaultWindowed",
    "UntypedDefault",
    "Wrapping",
    "check_fields",
    "fields_hint",
    "fields_known_above",
    "fields_read",
    "headers_user",
    "with_current_headers",
    "with_default_serdes",
    "with_serdes",
    "with_settings",
    "with_stores",
]


@dataclass(frozen=True, slots=True)
class DefaultWindowed:
    """A windowed key over ``default.key.serde``; without a size that of a session."""

    size_ms: int | None

    def over(self, inner: Any) -> Any:
        """Return the serde over that of the plain keys."""
        from penstock.serde import Serdes

        return Serdes.session_windowed(inner) if self.size_ms is None else Serdes.time_windowed(inner, self.size_ms)


@dataclass(frozen=True, slots=True)
class UntypedDefault:
    """The serde of a store without declared types: the application's default, or ``auto`` where there is none."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """A serde over one that may be a default: ``wrap`` makes it, ``of`` is the default that ``inner`` then is."""

    wrap: Callable[[Any], Any]
    inner: Any
    of: Literal["key", "value"]


def with_default_serdes(
    topology: Topology, key_serde: Any, value_serde: Any, *, untyped: Literal["default", "auto"] = "default"
) -> Topology:
    """Return the topology with every missing serde filled in.

    Args:
        topology: As built.
        key_serde: ``default.key.serde``: a serde, its name, or None where there is no default.
        value_serde: ``default.value.serde``, likewise.
        untyped: The serdes of stores without declared types: the defaults, or ``auto`` (``penstock.untyped.stores``).

    Raises:
        TopologyError: A node or store needs a default and there is none.
    """
    defaults = _Defaults(_of(key_serde), _of(value_serde), untyped)
    return replace(
        topology,
        nodes={name: defaults.node(node) for name, node in topology.nodes.items()},
        stores={name: defaults.store(spec) for name, spec in topology.stores.items()},
    )


def _of(serde: Any) -> Any:
    if serde is None:
        return None
    from penstock.serde import Serdes

    return Serdes.of(serde)


@dataclass(frozen=True, slots=True)
class _Defaults:
    key: Any
    value: Any
    untyped: Literal["default", "auto"]

    def node(self, node: Node) -> Node:
        if isinstance(node, ProcessorNode):
            return self._processor(node)
        key, value = self._both(node, f"node {node.name!r}")
        return replace(node, key_serde=key, value_serde=value)

    def _processor(self, node: ProcessorNode) -> ProcessorNode:
        """Fill in an operation's own serdes; the fields' names end with ``key_serde`` or ``value_serde``."""
        serdes = {
            f.name: self._one(
                getattr(node.operation, f.name),
                self.key if f.name.endswith("key_serde") else self.value,
                "key" if f.name.endswith("key_serde") else "value",
                f"node {node.name!r}",
            )
            for f in fields(node.operation)
            if f.name.endswith("_serde")
        }
        return replace(node, operation=replace(node.operation, **serdes)) if serdes else node

    def store(self, spec: StoreSpec) -> StoreSpec:
        key, value = self._both(spec, f"store {spec.name!r}")
        hashed, serdes = spec.hash_serde, (spec.key_serde, spec.value_serde, spec.hash_serde)
        untyped = spec.untyped or any(isinstance(serde, UntypedDefault) for serde in serdes)
        if spec.holds_hashes:
            hashed = self._one(hashed, self.value, "value", f"store {spec.name!r}")
        return replace(spec, key_serde=key, value_serde=value, hash_serde=hashed, untyped=untyped)

    def _both(self, holder: Any, what: str) -> tuple[Any, Any]:
        return (
            self._one(holder.key_serde, self.key, "key", what),
            self._one(holder.value_serde, self.value, "value", what),
        )

    def _one(self, serde: Any, default: Any, kind: str, what: str) -> Any:
        if isinstance(serde, Wrapping):
            default = self.key if serde.of == "key" else self.value
            return serde.wrap(self._one(serde.inner, default, serde.of, what))
        if isinstance(serde, UntypedDefault):
            return _of("auto") if self.untyped == "auto" or default is None else default
        needs_default = serde is None or isinstance(serde, DefaultWindowed)
        if needs_default and default is None:
            raise TopologyError(
                f"{what} has no {kind} serde",
                hint=f"Give one where it is read or written, or set default.{kind}.serde.",
            )
        if isinstance(serde, DefaultWindowed):
            return serde.over(default)
        return default if serde is None else serde


def with_serdes(topology: Topology, config: Mapping[str, Any]) -> Topology:
    """Return the topology with every missing serde filled in, and schema serdes bound.

    Sources and sinks bind their serdes to a topic on first use; stores have the names of their changelogs here, and
    data that an operation encodes for itself has a name of its own, as in Kafka Streams.

    Args:
        topology: As built.
        config: The application's settings.

    Raises:
        TopologyError: A node or store needs a default and there is none.
    """
    defaults = (config.get("default.key.serde"), config.get("default.value.serde"))
    topology = with_default_serdes(topology, *defaults, untyped=config.get("penstock.untyped.stores") or "default")
    settings = getattr(config, "given", config)
    application = config.get("application.id") or "penstock"
    nodes = {name: _node(node, settings, application) for name, node in topology.nodes.items()}
    stores = {name: _store(spec, settings, application) for name, spec in topology.stores.items()}
    frames = {
        name: replace(source, **_changed(source, ["key_serde", "value_serde"], settings, source.topic))
        for name, source in topology.dataframes.items()
    }
    if frames:
        topology = replace(topology, dataframes=frames)
    if all(nodes[name] is topology.nodes[name] for name in nodes) and all(
        stores[name] is topology.stores[name] for name in stores
    ):
        return topology
    return replace(topology, nodes=nodes, stores=stores)


def _node(node: Node, settings: Mapping[str, Any], application: str) -> Node:
    if isinstance(node, ProcessorNode):
        field_names = [field.name for field in fields(node.operation) if field.name.endswith("_serde")]
        serdes = _changed(node.operation, field_names, settings, f"{application}-{node.name}")
        return replace(node, operation=replace(node.operation, **serdes)) if serdes else node
    serdes = _changed(node, ["key_serde", "value_serde"], settings, None)
    return replace(node, **serdes) if serdes else node


def _store(spec: StoreSpec, settings: Mapping[str, Any], application: str) -> StoreSpec:
    serdes = _changed(spec, ["key_serde", "value_serde"], settings, f"{application}-{spec.name}-changelog")
    return replace(spec, **serdes) if serdes else spec


def _changed(holder: Any, names: list[str], settings: Mapping[str, Any], topic: str | None) -> dict[str, Any]:
    """Return the schema serdes among these attributes, bound and configured."""
    serdes = {}
    for name in names:
        serde = getattr(holder, name)
        if has_schema(serde):
            serde = configured(serde, settings)
            serdes[name] = serde if topic is None else bound(serde, topic, "key" if "key" in name else "value")
    return serdes


def headers_user(topology: Topology) -> str | None:
    """Return the name of a node or store whose serde reads or writes record headers; None if there is none."""
    holders: list[tuple[str, Any]] = [*topology.nodes.items(), *topology.stores.items()]
    for name, holder in holders:
        serdes = _serdes_of(holder.operation if isinstance(holder, ProcessorNode) else holder)
        if any(map(uses_headers, serdes.values())):
            return name
    return None


def with_current_headers(topology: Topology, current: CurrentHeaders) -> Topology:
    """Return the topology as a task runs it, whose serdes find the headers of the present record in one place."""
    nodes = {}
    for name, node in topology.nodes.items():
        if isinstance(node, ProcessorNode):
            nodes[name] = replace(node, operation=_in_task(node.operation, current))
        else:
            nodes[name] = _in_task(node, current)
    stores = {name: _in_task(spec, current) for name, spec in topology.stores.items()}
    return replace(topology, nodes=nodes, stores=stores)


def _serdes_of(holder: Any) -> dict[str, Any]:
    names = [field.name for field in fields(holder) if field.name.endswith("_serde")]
    return {name: getattr(holder, name) for name in names}


def _in_task(holder: Any, current: CurrentHeaders) -> Any:
    serdes = {name: in_task(serde, current) for name, serde in _serdes_of(holder).items() if uses_headers(serde)}
    return replace(holder, **serdes) if serdes else holder


_GENERATED = re.compile(r"(?:.*-)?(?:STATE-STORE|(?:KSTREAM|KTABLE|COGROUPKSTREAM)(?:-[A-Z]+)+)-\d{10}(?:-.+)?")
_OF_FOREIGN_KEYS = "KTABLE-FK-JOIN-"  # topics and stores inside a join, which Kafka lets have such names


def with_settings(topology: Topology, config: Mapping[str, Any]) -> Topology:
    """Return the topology with the application's serdes and timestamp extractor; a second call changes nothing.

    Args:
        topology: As built.
        config: The application's settings.

    Raises:
        TopologyError: A default serde is missing, a verb reads a field that a schema lacks, or a name is generated and
            ``ensure.explicit.internal.resource.naming`` is set.
    """
    if config.get("ensure.explicit.internal.resource.naming"):
        require_explicit_names(topology)
    topology = with_stores(with_serdes(topology, config), config)
    check_fields(topology.nodes)
    setting = "default.timestamp.extractor"
    named = config.get(setting)
    extractor = None if named == "FailOnInvalidTimestamp" else extractor_of(named, setting)  # as without an extractor
    if extractor is None:
        return topology
    return replace(topology, nodes={name: _timed(node, extractor) for name, node in topology.nodes.items()})


def with_stores(topology: Topology, config: Mapping[str, Any]) -> Topology:
    """Return the topology with the place and the format of the stores of the DSL that the settings say."""
    supplier = config.get("dsl.store.suppliers.class") or config.get("default.dsl.store")
    in_memory, keeps_headers = supplier == "in_memory", config.get("dsl.store.format") == "HEADERS"
    stores = {name: _as_configured(spec, keeps_headers, in_memory) for name, spec in topology.stores.items()}
    if all(stores[name] is spec for name, spec in topology.stores.items()):
        return topology
    return replace(topology, stores=stores)


def _as_configured(spec: StoreSpec, keeps_headers: bool, in_memory: bool) -> StoreSpec:  # noqa: FBT001
    if in_memory and not spec.is_placed:
        spec = replace(spec, persistent=False)
    with_headers = keeps_headers and spec.of_dsl and (spec.persistent or spec.kind == "buffer")
    if spec.kind == "window" and spec.logs_headers and uses_headers(spec.value_serde):
        # Windows of joined streams keep headers for serdes that look at them; nobody else would see the difference.
        with_headers = keeps_headers or not spec.persistent
    return replace(spec, keeps_headers=True) if with_headers else spec


def _timed(node: Node, extractor: Function) -> Node:
    """Add the default extractor to sources without one; records of internal topics have their time already."""
    if not isinstance(node, SourceNode) or node.internal or node.global_store or node.timestamp_extractor is not None:
        return node
    return replace(node, timestamp_extractor=extractor)


def require_explicit_names(topology: Topology) -> None:
    """Check that no name depends on a verb's place in the program.

    Raises:
        TopologyError: The name of a store, its changelog or a repartition topic is generated.
    """
    changelogs = {name for name, spec in topology.stores.items() if spec.logging}
    kinds = {
        "changelog topic(s)": [f"{name}-changelog" for name in topology.stores if name in changelogs],
        "state store(s)": [name for name in topology.stores if name not in topology.global_stores],
        "repartition topic(s)": list(topology.internal_topics),
    }
    generated_names = {
        kind: [name for name in names if _GENERATED.fullmatch(name) and not name.startswith(_OF_FOREIGN_KEYS)]
        for kind, names in kinds.items()
    }
    generated_names["state store(s)"] += [  # Kafka counts the name that to_table() would give its store
        f"the store of {node.name}"
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode)
        and isinstance(node.operation, StreamToTable)
        and node.operation.store is None
    ]
    unnamed = "; ".join(
        f"following {kind} has not been named: {', '.join(names)}" for kind, names in generated_names.items() if names
    )
    if unnamed:
        raise TopologyError(
            unnamed,
            hint='Name them: Materialized("name"), Grouped("name"), Repartitioned("name"), StreamJoined("name", '
            'store_name="name"), or leave out ensure.explicit.internal.resource.naming.',
        )


_OF_RECORD = frozenset({"key", "timestamp", "value", "aggregate"})


def fields_read(nodes: Mapping[str, Node], node: ProcessorNode) -> dict[str, Function]:
    """Return the fields of incoming values that a node's expressions and built-in aggregators look up, by reader.

    Joiners are left out: their expressions read ``left`` and ``right``.
    """
    operation = node.operation
    if isinstance(operation, CogroupMember):
        merge = next(n.operation for n in nodes.values() if isinstance(n, ProcessorNode) and node.name in n.parents)
        functions = [merge.aggregators[operation.number]] if isinstance(merge, CogroupMerge) else []
    elif isinstance(operation, StreamGlobalTableJoin):
        functions = [operation.selector]
    else:
        functions = list(functions_of(operation)) if operation.reads_values else []
    return {name: function for function in functions for name in _fields_of(function.fn)}


def _fields_known(nodes: Mapping[str, Node], name: str) -> frozenset[str] | None:
    """Return the fields of the values that a node sends on; None where no schema declares them."""
    node = nodes[name]
    if isinstance(node, SourceNode):
        fields = getattr(node.value_serde, "fields", None)
        return None if fields is None else frozenset(fields)
    if not isinstance(node, ProcessorNode) or not node.operation.keeps_values:
        return None
    return fields_known_above(nodes, node)


def check_fields(nodes: Mapping[str, Node]) -> None:
    """Check that the fields which expressions and built-in aggregators look up are in the values' schema.

    Raises:
        TopologyError: A schema is known and lacks a field.
    """
    for node in nodes.values():
        if not isinstance(node, ProcessorNode):
            continue
        read = fields_read(nodes, node)
        field_names = fields_known_above(nodes, node) if read else None
        for field, function in read.items() if field_names is not None else ():
            if field_names is not None and field not in field_names:
                raise TopologyError(
                    f"{node.name} reads the field {field!r}, which the values' schema lacks "
                    f"({function.file}:{function.line})",
                    hint=fields_hint(field, field_names),
                    node=node.name,
                    field=field,
                )


def fields_hint(field: str, field_names: frozenset[str] | set[str]) -> str:
    """Return a hint that names the existing fields, the most similar one first."""
    return f"{did_you_mean(field, field_names)} The fields are {', '.join(sorted(field_names))}.".lstrip()


def fields_known_above(nodes: Mapping[str, Node], node: ProcessorNode) -> frozenset[str] | None:
    """Return the fields of the values that a node gets; None where no schema declares those of a parent."""
    above = [_fields_known(nodes, parent) for parent in node.parents]
    if any(fields is None for fields in above):
        return None
    return frozenset().union(*(fields for fields in above if fields is not None))


def _fields_of(fn: Any) -> Iterator[str]:
    """Yield the fields that a built-in aggregator or a Polars expression names."""
    read = getattr(fn, "fields_read", None)
    if read is not None:
        yield from read
    meta = getattr(fn, "meta", None)
    for name in meta.root_names() if meta is not None else ():
        if name and name not in _OF_RECORD and not (name.startswith("^") and name.endswith("$")):
            yield name
