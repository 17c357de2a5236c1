"""Loading of the topology that a user names as MODULE:ATTRIBUTE."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from penstock.base.nearest_name import nearest_names, question
from penstock.base.terminal.human_numbers import with_article
from penstock.base.user_code import load_module
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
        meant = question(*(f"{name}:{near}" for near in nearest_names(attribute, dir(module))))
        raise ConfigError(
            f"{name} has no attribute {attribute!r}",
            hint=meant or "Name the variable that holds the topology.",
        )
    loaded: Any = getattr(module, attribute)
    if callable(loaded) and not isinstance(loaded, Topology | StreamsBuilder | type):
        loaded = _called(loaded, target)
    settings = _config_of(module)
    if isinstance(loaded, StreamsBuilder):
        loaded = loaded.build()
    elif _is_application(loaded):
        loaded, settings = loaded.topology, {**settings, **loaded.config.given}
    if not isinstance(loaded, Topology):
        raise ConfigError(
            f"{target} is {with_article(type(loaded).__name__)}, not a topology",
            hint="Name a Topology, a StreamsBuilder, a KafkaStreams or a function that returns one.",
        )
    return loaded, settings


def _called(make: Callable[[], Any], target: str) -> Any:
    """Call the user's function; its error is one of the topology, with the line of the user's code."""
    try:
        return make()
    except PenstockError:
        raise
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        raise TopologyError(
            f"{target} raised {type(error).__name__}: {error} at {line.filename}:{line.lineno}",
            hint="It is called without arguments, and returns the topology.",
        ) from error


def _is_application(loaded: object) -> bool:
    """Return whether it is a KafkaStreams; its module is loaded if it is one."""
    app = sys.modules.get("penstock.engines.kafka_streams")
    return app is not None and isinstance(loaded, app.KafkaStreams)


def _config_of(module: ModuleType) -> dict[str, Any]:
    config = getattr(module, "config", None)
    return dict(config) if isinstance(config, Mapping) else {}
