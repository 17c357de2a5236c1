"""Connectors and transformations from installed packages (entry points) and from files (``file.py:name``)."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.connect.api import Connector
from penstock.connect.functions.decorators import CONNECTOR, TRANSFORM, transformation_of
from penstock.connect.plugins import Plugin, PluginKind, Plugins, connector_plugin, standard_plugins
from penstock.connect.registry_converters import REGISTRY_CONVERTERS
from penstock.connect.transforms import Transformation
from penstock.errors import ConfigError, PenstockError

__all__ = ["ENTRY_POINTS", "connector_of", "file_plugins", "installed_plugins", "load_plugin", "plugin_of"]

ENTRY_POINTS = "penstock.connectors"


@lru_cache(maxsize=4)
def _announced(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001 - where packages are looked for
    """Return the entry points of installed packages, by name: looking for them opens a file of each package."""
    return tuple(sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name))


def installed_plugins(folders: Iterable[Path | str] = (), on_problem: Callable[[str], object] | None = None) -> Plugins:
    """Return Kafka's plugins, those of installed packages, and by reference those of files in some folders.

    Args:
        folders: Where files of connectors may be; a reference such as ``my_connectors.py:http_poll`` is relative to the
            first that has it. Files elsewhere are refused, as a config must not be able to run any file.
        on_problem: Called with a sentence about each package that cannot be loaded; by default that is an error.

    Raises:
        ConfigError: An installed package cannot be loaded.
    """
    allowed = tuple(Path(folder).expanduser().resolve() for folder in folders)
    plugins = standard_plugins()
    for converter in REGISTRY_CONVERTERS:
        plugins.add(
            Plugin(converter.java_class, (PluginKind.CONVERTER,), converter, converter.config, model=converter.model)
        )
    for entry in _announced(tuple(sys.path)):
        try:
            plugins.add(plugin_of(entry.load(), entry.name))
        except Exception as error:
            message = f"the connector {entry.name} ({entry.value}) cannot be loaded: {error}"
            if on_problem is None:
                raise ConfigError(message, hint="Repair or remove the package that it is from.") from error
            on_problem(message)
    plugins.references = lambda reference: load_plugin(reference, allowed) if ".py:" in reference else None
    return plugins


def load_plugin(reference: str, folders: Iterable[Path] = ()) -> Plugin:
    """Return the connector or transformation that ``file.py:name`` names.

    Args:
        reference: The file and the name of a function or class in it.
        folders: The folders in which the file may be; by default the current one.

    Raises:
        ConfigError: There is no such file in them, it cannot be run, or the name is neither.
    """
    path_text, _, name = reference.rpartition(":")
    roots: tuple[Path, ...] = tuple(folders) or (Path.cwd(),)
    candidates = ((root / path_text).resolve() for root in roots)
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None or not any(path.is_relative_to(root) for root in roots):
        places = ", ".join(map(str, roots))
        raise ConfigError(f"there is no file {path_text} in {places}", hint="Give its path, relative to that folder.")
    module = _module(path)
    member = getattr(module, name, None)
    if member is None:
        raise ConfigError(f"{path} has no {name!r}", hint=f"It has {', '.join(_names(module)) or 'no connectors'}.")
    return plugin_of(member, name)


def file_plugins(path: Path) -> list[Plugin]:
    """Return all connectors and transformations of a Python file.

    Raises:
        ConfigError: It cannot be run.
    """
    module = _module(path.resolve())
    own = [member for member in vars(module).values() if getattr(member, "__module__", None) == module.__name__]
    return [plugin_of(member, member.__name__) for member in own if _is_plugin(member)]


def _is_plugin(member: object) -> bool:
    if hasattr(member, CONNECTOR) or hasattr(member, TRANSFORM):
        return True
    return isinstance(member, type) and issubclass(member, Connector | Transformation) and hasattr(member, "java_class")


def plugin_of(member: Any, name: str) -> Plugin:
    """Return the plugin of a decorated function, a connector's or transformation's class, or a function of records.

    Raises:
        ConfigError: It is none of them.
    """
    if hasattr(member, CONNECTOR):
        return connector_plugin(getattr(member, CONNECTOR))
    implementation = getattr(member, TRANSFORM, member)
    if isinstance(implementation, type) and issubclass(implementation, Connector):
        return connector_plugin(implementation)
    if inspect.isfunction(implementation):
        implementation = transformation_of(name, implementation)
    if isinstance(implementation, type) and issubclass(implementation, Transformation):
        return Plugin(implementation.java_class, (PluginKind.TRANSFORMATION,), implementation, implementation.config)
    raise ConfigError(
        f"{name} is neither a connector nor a transformation, but {type(member).__name__}",
        hint="Decorate the function with @source or @sink, or derive the class from SourceConnector or SinkConnector.",
    )


def connector_of(function: Any) -> type[Connector]:
    """Return the connector's class behind a decorated function."""
    connector: type[Connector] = getattr(function, CONNECTOR)
    return connector


def _module(path: Path) -> ModuleType:
    name = f"penstock_connector_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        line = next((f.lineno for f in reversed(inspect.trace()) if f.filename == str(path)), None)
        where = str(path) if line is None else f"{path}, line {line}"
        raise ConfigError(f"{where}: {type(error).__name__}: {error}", hint="Correct the file.") from error
    return module


def _names(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if hasattr(value, CONNECTOR) or hasattr(value, TRANSFORM)]
