"""Loading of the topology that a user names as MODULE:ATTRIBUTE."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError, PenstockError, TopologyError

if TYPE_CHECKING:
    from penstock.topology.topology import Topology

__all__ = ["load_module", "load_topology"]


def load_topology(target: str) -> tuple[Topology, dict[str, Any]]:
    """Load a topology and its settings: those of the application, or the mapping ``config`` of its module.

    Args:
        target: ``package.module:attribute``, ``path/to/file.py:attribute``, or without attribute for ``topology``. The
            attribute is a Topology, a StreamsBuilder, a KafkaStreams that has not been started, or a function without
            arguments that returns one of them.

    Raises:
        ConfigError: The module or the attribute does not exist, or is something else.
    """
    from penstock.api.builder import StreamsBuilder
    from penstock.topology.topology import Topology

    name, _, attribute = target.rpartition(":") if ":" in target else (target, "", "topology")
    module = load_module(name)
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, dir(module), 1)
        raise ConfigError(
            f"{name} has no attribute {attribute!r}",
            hint=f"Did you mean {name}:{near[0]}?" if near else "Name the variable that holds the topology.",
        )
    found: Any = getattr(module, attribute)
    if callable(found) and not isinstance(found, Topology | StreamsBuilder | type):
        found = found()
    settings = _config_of(module)
    if isinstance(found, StreamsBuilder):
        found = found.build()
    elif _is_application(found):
        found, settings = found.topology, {**settings, **found.config.given}
    if not isinstance(found, Topology):
        raise ConfigError(
            f"{target} is a {type(found).__name__}, not a topology",
            hint="Name a Topology, a StreamsBuilder, a KafkaStreams or a function that returns one.",
        )
    return found, settings


def _is_application(found: object) -> bool:
    """Return whether it is a KafkaStreams; its module is loaded if it is one."""
    app = sys.modules.get("penstock.app")
    return app is not None and isinstance(found, app.KafkaStreams)


def _config_of(module: ModuleType) -> dict[str, Any]:
    config = getattr(module, "config", None)
    return dict(config) if isinstance(config, Mapping) else {}


def load_module(name: str) -> ModuleType:
    """Load a module by its name (also from the working directory) or by the path of its file."""
    if name.endswith(".py") or "/" in name:
        return _from_file(Path(name))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except PenstockError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {name!r}", hint=f"Is the file here? Try {name.replace('.', '/')}.py:topology"
            ) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="Give the path of a Python file, or a module's name.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # the file may import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file", hint="Its name must end with .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except PenstockError:
        raise
    except Exception as error:
        raise _broken(str(path), error) from error
    return module


def _broken(name: str, error: Exception) -> TopologyError:
    """Make the error of a failed import, with the line of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    where = f" at {last.filename}:{last.lineno}" if last else ""
    return TopologyError(f"{name} cannot be imported: {type(error).__name__}: {error}{where}")
