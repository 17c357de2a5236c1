"""Groups of options: a command takes them as one value, the command line shows each of them.

Typer has one parameter per option, so all commands for a log would repeat the same ones. `grouped` expands a parameter
that is a dataclass of options into its fields, and passes the dataclass to the command.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from penstock.cli.options import (
    Bootstrap,
    CommandConfig,
    ConfigFile,
    ConfigPairs,
    Target,
    open_log_at,
    read_command_config,
    read_config,
)

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.topology.topology import Topology

__all__ = ["AppOptions", "LogOptions", "grouped"]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """A topic log, and the settings of its clients."""

    bootstrap: Bootstrap = "penstock.db"
    command_config: CommandConfig = None

    def open(self, *, create: bool = False) -> TopicLog:
        """Open the log; raises LogError if it is a file that does not exist, unless it may be created."""
        return open_log_at(self.bootstrap, create=create, settings=read_command_config(self.command_config))


@dataclass(frozen=True, slots=True)
class AppOptions:
    """A topology, and its settings: of its application or module, of files, of the command line; the last one wins."""

    target: Target
    bootstrap: Bootstrap = ""
    command_config: CommandConfig = None
    config: ConfigPairs = field(default_factory=list)
    config_file: ConfigFile = None

    def load(self) -> tuple[Topology, dict[str, Any]]:
        """Load the topology and its settings."""
        from penstock.cli.loader import load_topology

        topology, own = load_topology(self.target)
        settings = {**own, **self.given()}
        if self.bootstrap:
            settings["bootstrap.servers"] = self.bootstrap
        return topology, settings

    def given(self) -> dict[str, Any]:
        """Return the settings that the command was given, without those of the topology's module."""
        return {**read_command_config(self.command_config), **read_config(self.config, self.config_file)}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: each parameter that is a dataclass of options is expanded into its fields.

    >>> @grouped
    ... def show(topic: str, *, log: LogOptions) -> None:
    ...     print(topic, log.bootstrap)
    >>> list(inspect.signature(show).parameters)
    ['topic', 'bootstrap', 'command_config']
    >>> show(topic="orders", bootstrap="localhost:9092", command_config=None)
    orders localhost:9092
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _options_of(groups[parameter.name])
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=kind))

    def run(**arguments: Any) -> None:
        for name, group in groups.items():
            arguments[name] = group(**{each.name: arguments.pop(each.name) for each in fields(group)})
        command(**arguments)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__module__, run.__qualname__ = command.__module__, command.__qualname__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _options_of(group: Any) -> Sequence[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name], default=_default(each)
        )
        for each in fields(group)
    ]


def _default(each: Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return inspect.Parameter.empty if each.default is MISSING else each.default
