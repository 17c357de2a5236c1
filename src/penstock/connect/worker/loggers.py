"""The levels of loggers, by Kafka Connect's names for them, with the times of their changes."""

from __future__ import annotations

import logging
import threading
from typing import Any

from penstock.base.clock import unix_ms
from penstock.connect.worker.request_errors import RequestError

__all__ = ["Loggers", "known_level"]

_ROOT = "root"
_OFF = logging.CRITICAL + 10
_LEVELS = {
    "OFF": _OFF,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
    "ALL": logging.NOTSET + 1,
}


class Loggers:
    """The loggers of a worker: those whose level was set here, and those that Python has.

    Example:
        >>> loggers = Loggers()
        >>> loggers.set("org.example.a", "debug")
        ['org.example.a']
        >>> loggers.level("org.example.a")["level"]
        'DEBUG'
    """

    def __init__(self) -> None:
        self._levels: dict[str, str] = {_ROOT: "INFO"}
        self._changed_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def all(self) -> dict[str, dict[str, Any]]:
        """Return the levels of all loggers, by name."""
        with self._lock:
            return {name: self._described(name) for name in sorted({*self._levels, *_known_names()})}

    def level(self, name: str) -> dict[str, Any]:
        """Return the level of a logger.

        Raises:
            RequestError: There is none of this name (404).
        """
        name = _own_name(name)
        with self._lock:
            if name not in self._levels and name not in _known_names():
                raise RequestError(404, f"Logger {name} not found.")
            return self._described(name)

    def set(self, namespace: str, level: str) -> list[str]:
        """Set the level of a logger and of all below it; return those whose level it changed.

        Raises:
            RequestError: There is no such level (404).
        """
        namespace, new_level = _own_name(namespace), level.upper()
        if new_level not in _LEVELS:
            raise RequestError(404, f"invalid log level '{level}'.")
        with self._lock:
            below = [name for name in {*self._levels, *_known_names()} if _is_below(name, namespace)]
            changed = sorted(name for name in {namespace, *below} if self._effective(name) != new_level)
            now = unix_ms()
            for name in changed:
                self._levels[name] = new_level
                self._changed_ms[name] = now
                if name == _ROOT or name in _known_names():  # a logger that Python does not have is not made
                    logging.getLogger(None if name == _ROOT else name).setLevel(_LEVELS[new_level])
            return changed

    def _effective(self, name: str) -> str:
        at = name
        while at:
            if at in self._levels:
                return self._levels[at]
            own = logging.root.manager.loggerDict.get(at)
            if isinstance(own, logging.Logger) and own.level:
                return _name_of(own.level)
            at = at.rpartition(".")[0]
        return self._levels[_ROOT]

    def _described(self, name: str) -> dict[str, Any]:
        return {"level": self._effective(name), "last_modified": self._changed_ms.get(name)}


def known_level(level: str) -> bool:
    """Return whether there is such a level."""
    return level.upper() in _LEVELS


def _own_name(name: str) -> str:
    """Return the name of a logger; that of the root is written in any case."""
    return _ROOT if name.lower() == _ROOT else name


def _known_names() -> list[str]:
    return [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]


def _is_below(name: str, namespace: str) -> bool:
    return namespace == _ROOT or name.startswith(f"{namespace}.")


def _name_of(level: int) -> str:
    return next((name for name, number in _LEVELS.items() if level >= number), "ALL")
