"""Filling in the application's default serdes, which are unknown while the topology is built."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from penstock.errors import TopologyError
from penstock.topology.nodes import Node, ProcessorNode
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

__all__ = ["DefaultWindowed", "UntypedDefault", "Wrapping", "with_default_serdes"]


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
