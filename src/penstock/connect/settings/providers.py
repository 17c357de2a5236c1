"""Config providers: ``${file:/run/secrets/db.properties:password}`` in a config stands for a value from elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.config.prefixes import behind_prefix
from penstock.connect.data import SettingError
from penstock.connect.settings.properties import parse_properties
from penstock.errors import ConfigError

__all__ = ["Providers", "config_providers"]

_REFERENCE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
_PACKAGE = "org.apache.kafka.common.config.provider."
Lookup = Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class Providers:
    """The config providers of a worker, by name.

    Example:
        >>> providers = Providers({"env": lambda path, key: {"TOPIC": "lines"}.get(key)})
        >>> providers.resolve({"topic": "${env:TOPIC}", "file": "${other:x:y}"})
        {'topic': 'lines', 'file': '${other:x:y}'}
    """

    lookups: Mapping[str, Lookup] = field(default_factory=dict)

    def resolve(self, config: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the config with the values that its references stand for; those that are not found stay as they are.

        Raises:
            SettingError: A file cannot be read.
        """
        if not self.lookups:
            return dict(config)
        return {name: value if value is None else _REFERENCE.sub(self._value, value) for name, value in config.items()}

    def _value(self, match: re.Match[str]) -> str:
        lookup = self.lookups.get(match[1])
        value = None if lookup is None else lookup(match[3] or "", match[4])
        return match[0] if value is None else value


def config_providers(settings: Mapping[str, str]) -> Providers:
    """Return the providers that a worker's settings name.

    ``config.providers=file``, ``config.providers.file.class=...``.

    Raises:
        ConfigError: A class is unknown or missing.
    """
    names = [name.strip() for name in settings.get("config.providers", "").split(",") if name.strip()]
    lookups = {}
    for name in names:
        prefix = f"config.providers.{name}."
        java_class = settings.get(f"{prefix}class", "")
        make = _KINDS.get(java_class.removeprefix(_PACKAGE))
        if make is None:
            raise ConfigError(
                f"{prefix}class is {java_class!r}, which is not a config provider that this worker has",
                hint=f"It has {', '.join(_PACKAGE + kind for kind in _KINDS)}.",
            )
        lookups[name] = make(behind_prefix(settings, prefix))
    return Providers(lookups)


def _file_provider(parameters: Mapping[str, str]) -> Lookup:
    allowed = _allowed_paths(parameters)

    def lookup(path: str, key: str) -> str | None:
        if not path or not allowed(path):
            return None
        try:
            return parse_properties(Path(path).read_text()).get(key)
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"Could not read properties from file {path}") from error

    return lookup


def _directory_provider(parameters: Mapping[str, str]) -> Lookup:
    allowed = _allowed_paths(parameters)

    def lookup(path: str, key: str) -> str | None:
        folder = Path(path)
        if not path or not allowed(path) or not folder.is_dir():
            return None
        if Path(key).name != key or not (folder / key).is_file():
            return None
        try:
            return (folder / key).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"Could not read file {folder / key} for property {key}") from error

    return lookup


def _environment_provider(parameters: Mapping[str, str]) -> Lookup:
    pattern = re.compile(parameters.get("param.allowlist.pattern", ".*"))

    def lookup(path: str, key: str) -> str | None:
        return None if path or not pattern.fullmatch(key) else os.environ.get(key)

    return lookup


def _allowed_paths(parameters: Mapping[str, str]) -> Callable[[str], bool]:
    roots = [Path(part.strip()).resolve() for part in parameters.get("param.allowed.paths", "").split(",") if part]
    return lambda path: not roots or any(Path(path).resolve().is_relative_to(root) for root in roots)


_KINDS: dict[str, Callable[[Mapping[str, str]], Lookup]] = {
    "FileConfigProvider": _file_provider,
    "DirectoryConfigProvider": _directory_provider,
    "EnvVarConfigProvider": _environment_provider,
}
