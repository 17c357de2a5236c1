"""Options shared by several commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.secrets import is_secret, shown
from penstock.cli.output import console
from penstock.errors import ConfigError, LogError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = [
    "Bootstrap",
    "CommandConfig",
    "ConfigFile",
    "ConfigPairs",
    "Json",
    "Target",
    "instant_ms",
    "open_log_at",
    "read_command_config",
    "read_config",
]

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
