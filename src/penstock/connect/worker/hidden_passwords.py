"""``rest.hide.passwords``: secrets of connectors' configs are stars in answers, and stay when stars are sent back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from penstock.base.masking import without_passwords
from penstock.connect.plugins import Plugins, WorkerSettings, validate_connector
from penstock.connect.settings.providers import Providers
from penstock.errors import PenstockError

__all__ = ["HIDDEN", "Hiding"]

HIDDEN = "****"
_SECRET = re.compile(
    r"password|passwd|passphrase|authorization|secret|token|credential|api\.?key|jaas\.config|private\.?key|user\.?info",
    re.IGNORECASE,
)
Config = Mapping[str, str | None]


class Hiding:
    """Hides the values of settings that are passwords by their definition, or secrets by their name.

    References to config providers are shown: they are not secrets.

    Args:
        plugins: The plugins that there are.
        providers: The config providers.
        worker: The worker's converters.
        enabled: Whether anything is hidden.
    """

    def __init__(self, plugins: Plugins, providers: Providers, worker: WorkerSettings, *, enabled: bool) -> None:
        self._plugins, self._providers, self._worker, self._enabled = plugins, providers, worker, enabled
        self._names = lru_cache(maxsize=256)(self._passwords)

    def shown(self, config: Config) -> dict[str, str | None]:
        """A config for an answer."""
        if not self._enabled:
            return dict(config)
        names = self._names(tuple(sorted((name, value) for name, value in config.items() if value is not None)))
        return {name: HIDDEN if _is_plain(value) and name in names else _open(value) for name, value in config.items()}

    def kept(self, given: Config, stored: Config) -> dict[str, str | None]:
        """A config that was sent, with the stored secrets in place of stars."""
        if not self._enabled:
            return dict(given)
        return {
            name: stored.get(name, value) if value == HIDDEN or value == _open(stored.get(name)) else value
            for name, value in given.items()
        }

    def _passwords(self, config: tuple[tuple[str, str], ...]) -> frozenset[str]:
        found = {name for name, _ in config if _SECRET.search(name)}
        try:
            body = validate_connector(self._providers.resolve(dict(config)), self._plugins, self._worker)
        except (LookupError, PenstockError):
            return frozenset(found)
        kinds = (entry["definition"] for entry in body["configs"])
        return frozenset(found | {kind["name"] for kind in kinds if kind["type"] == "PASSWORD"})


def _open(value: str | None) -> str | None:
    """A value without the passwords of URLs in it."""
    return without_passwords(value) if value else value


def _is_plain(value: str | None) -> bool:
    return bool(value) and "${" not in str(value)
