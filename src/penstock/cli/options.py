"""Options of several commands, alone and in groups that a command takes as one value.

Typer has one parameter per option, so all commands for a log would repeat the same ones. `grouped` expands a parameter
that is a dataclass of options into its fields, and passes the dataclass to the command.
"""

from __future__ import annotations

import enum
import inspect
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperGroup

from penstock.base.log_lines import FORMAT, start_json_lines, writes_json
from penstock.base.secrets import is_secret, shown
from penstock.cli.output import console
from penstock.errors import ConfigError, LogError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.topology.topology import Topology

__all__ = [
    "AppOptions",
    "Bootstrap",
    "CommandConfig",
    "ConfigFile",
    "ConfigPairs",
    "DefaultCommandGroup",
    "Json",
    "LogOptions",
    "Target",
    "grouped",
    "instant_ms",
    "logged",
    "open_log_at",
    "read_command_config",
    "read_config",
    "start_text_lines",
]


class DefaultCommandGroup(TyperGroup):
    """A group whose words go to its default command if the first of them does not name a command.

    Attributes:
        default: The name of that command.
        runs_without_words: Without any word it runs too; else the help is shown.
    """

    default: ClassVar[str]
    runs_without_words: ClassVar[bool] = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command first if none is named."""
        is_named = args[0] in (*self.commands, "-h", "--help") if args else not self.runs_without_words
        rest: list[str] = super().parse_args(ctx, args if is_named else [self.default, *args])
        return rest


_OF_NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers", "-b", envvar="PENSTOCK_BOOTSTRAP_SERVERS",
        help="The topic log: host:port of Kafka, a file, or sqlite:///path.", show_default=True,
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
ConfigPairs = Annotated[
    list[str], typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting; may be repeated.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config-file", help="A file of settings: key=value lines, TOML or JSON.")
]

Target = Annotated[
    str, typer.Argument(metavar="MODULE:TOPOLOGY", help="A module's name or a file, and the variable in it.")
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config", metavar="FILE", envvar="PENSTOCK_COMMAND_CONFIG",
        help="A .properties file with settings of Kafka's clients, such as security.protocol.",
    ),
]  # fmt: skip


def open_log_at(url: str, *, create: bool = False, settings: Mapping[str, Any] | None = None) -> TopicLog:
    """Open the log at a URL or path; raises LogError if its file does not exist, unless it may be created."""
    from penstock.log.open import open_log, warn_of_plain_text
    from penstock.log.url import kafka_servers, parse_log_url

    if kafka_servers(url) is not None:
        warn_of_plain_text(url, settings)
        return open_log(url, settings)
    log_url = parse_log_url(url)
    if log_url.path is not None and not create and not log_url.path.exists():
        raise LogError(
            f"there is no topic log at {log_url.path}",
            hint="Give its file with --bootstrap-servers (or set PENSTOCK_BOOTSTRAP_SERVERS).",
        )
    return open_log(url)


def instant_ms(text: str | None, option: str) -> int | None:
    """Convert an ISO time to milliseconds; a number is milliseconds already, and None stays None.

    >>> instant_ms("1970-01-01T00:00:01Z", "--start"), instant_ms("250", "--start"), instant_ms(None, "--start")
    (1000, 250, None)
    """
    from penstock.base.durations import timestamp_ms

    if text is None:
        return None
    return timestamp_ms(int(text) if re.fullmatch("-?[0-9]{1,30}", text) else text, option)


def read_config(pairs: list[str], file: Path | None) -> dict[str, Any]:
    """Read the settings of a file, overridden by ``key=value`` pairs.

    Raises:
        ConfigError: A pair without ``=``, or a file that cannot be read.
    """
    settings = _read_file(file) if file else {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            # The text after the name may be a secret.
            start = pair[: len(pair) - len(pair.lstrip(_OF_NAMES))]
            rest = "***" if pair != start and is_secret(start) else pair[len(start) :]
            raise ConfigError(
                f"--config {start + rest!r} is not KEY=VALUE", hint="For example: --config application.id=shop"
            )
        if shown(name, value) == "***":
            console(stderr=True).print(
                f"warning: --config {name}=*** can be read by every user of this machine; "
                f"give it in a file (--config-file), or as {name}=${{env:NAME}}",
                style="yellow",
            )
        settings[name.strip()] = value.strip()
    return settings


def read_command_config(file: Path | None) -> dict[str, str]:
    """Read client settings from a Java ``.properties`` file, as Kafka's own tools do; none without a file.

    Raises:
        ConfigError: The file cannot be read, or a name in it is not a setting of Kafka's clients.
    """
    if file is None:
        return {}
    from penstock.config.client_names import check_client_name
    from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES

    settings = {name: str(value) for name, value in _read_file(file).items()}
    for name in settings:
        if name.startswith(REGISTRY_PREFIXES):
            raise ConfigError(
                f"{name} in {file} is a setting of the schema registry's client, and --command-config takes those of "
                "Kafka's clients",
                hint="Where a command has --config-file, it takes the whole file; else take the line out.",
                setting=name,
            )
        if name != "bootstrap.servers":
            check_client_name(name)
    return settings


def read_registry_config(file: Path | None) -> dict[str, str]:
    """Read settings of a schema registry's client; none without a file. Others in the file are left out.

    Raises:
        ConfigError: The file cannot be read.
    """
    from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES

    settings = {} if file is None else _read_file(file)
    return {name: str(value) for name, value in settings.items() if name.startswith(REGISTRY_PREFIXES)}


def _read_file(file: Path) -> dict[str, Any]:
    import json
    import tomllib

    from penstock.base.properties import parse_properties

    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            return _flat(json.loads(text))
        if file.suffix == ".toml":
            return _flat(tomllib.loads(text))
    except OSError as error:
        raise ConfigError(f"the settings file {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the settings file {file} has an error: {error}") from error
    return dict(parse_properties(text))


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted names: ``[application] id = "x"`` is ``application.id``."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            flat |= _flat(item, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = item
    return flat


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
        from penstock.cli.topology_loader import load_topology

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


_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFormat(enum.StrEnum):
    """The formats of a log."""

    TEXT = "text"
    JSON = "json"


_Option = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", envvar=FORMAT,
        help="The log on the error stream: text, or a JSON object a line with application, task and batch.",
    ),
]  # fmt: skip


def logged(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: it gets the option ``--log-format``.

    >>> @logged
    ... def run(topic: str) -> None:
    ...     print(topic)
    >>> list(inspect.signature(run).parameters)
    ['topic', 'log_format']
    """

    def run(**arguments: Any) -> None:
        if arguments.pop("log_format", LogFormat.TEXT) is LogFormat.JSON:
            start_json_lines()
        command(**arguments)

    signature = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    option = inspect.Parameter("log_format", kind, default=LogFormat.TEXT, annotation=_Option)
    parameters = [*(each.replace(kind=kind) for each in signature.parameters.values()), option]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__module__, run.__qualname__ = command.__module__, command.__qualname__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def start_text_lines(level: int) -> None:
    """Write the log as text from a level on, unless it is written as JSON."""
    if not writes_json():
        logging.basicConfig(level=level, format=_TEXT)
