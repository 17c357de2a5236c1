"""Secret settings: their names, their display as stars, and references to values elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.base.masking import NAMES_OF_SECRETS, without_passwords
from penstock.errors import ConfigError

__all__ = ["NAMES_OF_SECRET_SETTINGS", "Secretive", "is_secret", "masked", "resolved", "secret_texts", "shown"]

NAMES_OF_SECRET_SETTINGS = (
    rf"{NAMES_OF_SECRETS}|webhook|jaas|user[._-]?info|(?:^|[._-])(?:pwd|pass|sas)$"
    r"|ssl\.key(?!\.location)|\.key\.pem|keystore\.key|oauthbearer\.config|oauthbearer\.extensions"
)
"""A pattern of words in the names of secret settings, for Java too."""
_SECRET = re.compile(NAMES_OF_SECRET_SETTINGS, re.IGNORECASE)
_OPTION = re.compile(r"""(\w+)\s*=\s*["']([^"']+)["']""")  # of a login module
_REFERENCE = re.compile(r"\$\{(env|file|directory):([^}]*)\}")


def is_secret(name: str) -> bool:
    """Return whether the value of a setting is secret.

    >>> is_secret("sasl.jaas.config"), is_secret("ssl.key.password"), is_secret("ssl.key.location")
    (True, True, False)
    """
    return _SECRET.search(name) is not None


def shown(name: str, value: Any) -> Any:
    """Return a value for display: secrets as stars; references and the hosts of URLs are not changed."""
    if not isinstance(value, str):
        return "***" if is_secret(name) else value
    if is_secret(name):
        return value if _REFERENCE.fullmatch(value.strip()) else "***"
    return without_passwords(value)


def masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for display, with secrets as stars."""
    return {name: shown(name, value) for name, value in settings.items()}


def secret_texts(settings: Mapping[str, Any]) -> set[str]:
    """Return the texts of settings that nobody may read: values of secret ones, and passwords inside of them.

    >>> sorted(secret_texts({"sasl.jaas.config": 'PlainLoginModule required username="ann" password="s3cret";'}))[1]
    's3cret'
    """
    texts = {value.strip() for name, value in settings.items() if isinstance(value, str) and is_secret(name)}
    texts = {text for text in texts if text and not _REFERENCE.fullmatch(text)}
    return texts | {inner for text in texts for name, inner in _OPTION.findall(text) if is_secret(name)}


class Secretive(dict[str, Any]):
    """A dict of settings that prints without its secrets."""

    def __repr__(self) -> str:
        return repr(masked(self))

    __str__ = __repr__


def resolved(name: str, value: str) -> str:
    """Replace the references in a value.

    References are those of Kafka's config providers (KIP-297): ``${env:NAME}``, ``${file:/path/to.properties:key}`` and
    ``${directory:/path:file}``, which stands for the content of the file. They are resolved in the process that uses
    the value.

    Raises:
        ConfigError: A reference cannot be resolved.
    """

    def look_up(reference: re.Match[str]) -> str:
        provider, rest = reference.groups()
        if provider == "env":
            secret = os.environ.get(rest)
            where = f"the environment has no {rest}"
        else:
            path, _, key = rest.rpartition(":")
            secret, where = _of_file(provider, Path(path), key)
        if secret is None:
            raise ConfigError(
                f"{name} is {reference.group()}, but {where}",
                hint="It is looked up in every process that talks to Kafka: on the driver and on each executor.",
                setting=name,
            )
        return secret

    return _REFERENCE.sub(look_up, value)


def _of_file(provider: str, path: Path, key: str) -> tuple[str | None, str]:
    from penstock.base.properties import parse_properties

    try:
        if provider == "directory":
            return (path / key).read_text(encoding="utf-8").rstrip("\r\n"), ""
        return parse_properties(path.read_text(encoding="utf-8")).get(key), f"{path} has no {key}"
    except OSError as error:
        return None, f"{error.filename} cannot be read: {error.strerror}"
