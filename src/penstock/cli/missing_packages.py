"""A package that a command needs and that a plain installation lacks: the extra that brings it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata

__all__ = ["hint_for"]

# Modules whose distribution has another name.
_DISTRIBUTIONS = {
    "confluent_kafka": "confluent-kafka",
    "google": "protobuf",
    "kafka": "kafka-python",
    "opentelemetry": "opentelemetry-sdk",
    "prometheus_client": "prometheus-client",
    "starlette": "fastapi",  # of the extras that name FastAPI alone, which brings it
    "yaml": "pyyaml",
}
_EXTRA_OF = re.compile(r"^(?P<name>[\w.-]+).*;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
# The extras of commands whose names are not those of their extras.
_COMMANDS = {
    "mirror": ("kafka",),
    "registry": ("registry", "schemas"),
    "sql": ("query",),
    "topics": ("schemas",),
}
_NOT_FOR_USERS = frozenset({"all", "dev", "test"})


def hint_for(error: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """Return the command that installs a missing package; None for a package that no extra brings.

    Args:
        error: The failed import.
        arguments: The words of the command that failed, from which the extra is chosen where several bring the package.

    Examples:
        >>> hint_for(ModuleNotFoundError(name="uvicorn"), ["registry", "start"])
        'Install it: pip install "penstock[registry]".'
        >>> hint_for(ModuleNotFoundError(name="starlette.requests"), ["sql", "serve"])
        'Install it: pip install "penstock[query]".'
        >>> hint_for(ModuleNotFoundError(name="penstock.nowhere"), []) is None
        True
    """
    module = (error.name or "").partition(".")[0]
    names = {module, _DISTRIBUTIONS.get(module, module)}
    extras = [extra for name, extra in _extras() if name in names]
    if not extras:
        return None
    preferred = [extra for word in arguments for extra in _COMMANDS.get(word, (word,))]
    extra = next((extra for extra in preferred if extra in extras), extras[0])
    return f'Install it: pip install "penstock[{extra}]".'


def _extras() -> list[tuple[str, str]]:
    """Return each distribution that an extra requires, with the extra, in the order of their declaration."""
    try:
        requirements = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:  # run from sources that are not installed
        return []
    matches = filter(None, map(_EXTRA_OF.match, requirements))
    return [(match["name"], match["extra"]) for match in matches if match["extra"] not in _NOT_FOR_USERS]
