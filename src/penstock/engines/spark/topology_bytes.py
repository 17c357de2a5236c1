"""Pickling of topology and settings into bytes that any worker can load."""

from __future__ import annotations

import dataclasses
import inspect
import io
import pickle
import struct
import sys
import sysconfig
import threading
from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle
from cloudpickle import cloudpickle as pickling

from penstock.errors import TopologyError
from penstock.topology.operations.functions import Function

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.topology.topology import Topology

__all__ = ["AppCopies", "pickle_app"]

_registering = threading.Lock()  # cloudpickle has one list of modules for the whole process


def pickle_app(topology: Topology, config: StreamsConfig) -> bytes:
    """Pickle topology and settings; functions of modules that are not installed go by value, as workers lack them.

    Raises:
        TopologyError: Something cannot be pickled; the message names the operator and what its function captured.
    """
    with _by_value():
        try:
            return _dumps((topology, config))
        except Exception as error:
            raise _explained(topology, config, error) from error


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc, name-defined, unused-ignore]
    """A pickler that takes compiled ``struct.Struct`` objects, too, which modules of processors often have globally."""

    dispatch_table: ClassVar[Mapping[type, Any]] = ChainMap(
        {struct.Struct: lambda compiled: (struct.Struct, (compiled.format,))}, cloudpickle.Pickler.dispatch_table
    )


def _dumps(value: Any) -> bytes:
    written = io.BytesIO()
    _Pickler(written).dump(value)
    return written.getvalue()


class AppCopies:
    """Copies of a topology and its settings, each as a process of its own would load them.

    Functions, classes and global variables of the user's modules are others in each copy, with the values that they had
    when this was made. So what one copy remembers outside of its stores is unknown to the next.

    Args:
        topology: The topology.
        config: Its settings.

    Raises:
        TopologyError: Something cannot be pickled.
    """

    def __init__(self, topology: Topology, config: StreamsConfig) -> None:
        with _classes_anew():
            self._pickled = pickle_app(topology, config)

    def copy(self) -> tuple[Topology, StreamsConfig]:
        """Return another copy."""
        loaded: tuple[Any, Any] = pickle.loads(self._pickled)  # noqa: S301 - bytes of this process
        return loaded


@contextmanager
def _classes_anew() -> Iterator[None]:
    """Have classes pickled so that each load makes them anew: else one process has only one of each."""
    before = pickling._get_or_create_tracker_id  # noqa: SLF001 - there is no other way to say so
    pickling._get_or_create_tracker_id = lambda _: None  # noqa: SLF001
    try:
        yield
    finally:
        pickling._get_or_create_tracker_id = before  # noqa: SLF001


@contextmanager
def _by_value() -> Iterator[None]:
    with _registering:
        users_choice = cloudpickle.list_registry_pickle_by_value()
        own = [m for m in dict.fromkeys(list(sys.modules.values())) if _is_users_own(m)]  # some have two names
        modules = [module for module in own if module.__name__ not in users_choice]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def _is_users_own(module: ModuleType | None) -> bool:
    """Return whether a module is a plain file of the user's, and not installed in every worker's Python."""
    name = getattr(module, "__name__", "")
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not name or name == "__main__" or name.split(".", 1)[0] == "penstock":
        return False
    if sys.modules.get(name) is not module or not file.endswith(".py"):
        return False
    return not _is_installed(file)


@cache
def _is_installed(file: str) -> bool:
    """Return whether a file is of Python or of an installed package; for all modules of a process it takes 40 ms."""
    path = Path(file).resolve()
    if any(part in ("site-packages", "dist-packages") for part in path.parts):
        return True
    return any(path.is_relative_to(root) for root in _python_roots())


@cache
def _python_roots() -> frozenset[Path]:
    return frozenset(Path(sysconfig.get_path(key)).resolve() for key in ("stdlib", "platstdlib"))


def _explained(topology: Topology, config: StreamsConfig, error: Exception) -> TopologyError:
    for node in topology.nodes.values():
        for function in _functions(node):
            fn = function.fn if isinstance(function, Function) else function
            if _pickles(fn):
                continue
            try:
                captured = inspect.getclosurevars(fn)
                seen = {**captured.nonlocals, **captured.globals}
            except TypeError:
                seen = {}
            bad = [f"{name} ({type(value).__name__})" for name, value in seen.items() if not _pickles(value)]
            where = function.location if isinstance(function, Function) else getattr(fn, "__qualname__", repr(fn))
            what = f"it captured {', '.join(bad)}" if bad else str(error)
            return TopologyError(
                f"{node.name}: the function {where} cannot be sent to workers: {what}",
                hint="Create such objects (connections, locks, files) inside the function, or in a Processor's init().",
                node=node.name,
                captured=bad,
            )
    for where, sent in _other_parts(topology, config):
        if _pickles(sent):
            continue
        part = getattr(sent, "inner", sent)  # a user's object in the serde that was made of it
        bad = [f"{name} ({type(value).__name__})" for name, value in _attributes(part).items() if not _pickles(value)]
        return TopologyError(
            f"the {where}, {type(part).__qualname__}, cannot be sent to workers: "
            + (f"its attribute {', '.join(bad)} cannot be pickled" if bad else str(error)),
            hint="Create such objects (connections, locks, files) on first use, and leave them out in __getstate__().",
            captured=bad,
        )
    return TopologyError(
        f"the topology cannot be sent to workers: {error}",
        hint="Serdes, handlers and functions must be picklable: no open files, locks or connections in them.",
    )


def _other_parts(topology: Topology, config: StreamsConfig) -> Iterator[tuple[str, Any]]:
    """Yield what is pickled beside functions: serdes of nodes and stores, and settings."""
    for kind, owners in (("", topology.nodes), ("store ", topology.stores)):
        for name, owner in owners.items():
            for part in ("key", "value"):
                if (serde := getattr(owner, f"{part}_serde", None)) is not None:
                    yield f"{part} serde of {kind}{name}", serde
    for name, value in config.given.items():
        yield f"setting {name}", value


def _attributes(part: Any) -> dict[str, Any]:
    names = [*getattr(part, "__dict__", {}), *getattr(type(part), "__slots__", ())]
    return {name: getattr(part, name) for name in names if hasattr(part, name)}


def _functions(node: Any) -> Iterator[Any]:
    """Iterate over all functions inside a node, at any depth."""
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, Function) or (callable(one) and not isinstance(one, type) and not _is_data(one)):
            yield one
        elif _is_data(one):
            todo += [getattr(one, field.name) for field in dataclasses.fields(one)]
        elif isinstance(one, tuple | list):
            todo += one


def _is_data(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type | Function)


def _pickles(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:  # noqa: BLE001 - any refusal counts
        return False
    return True
