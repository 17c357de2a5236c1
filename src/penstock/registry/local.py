"""Registries of this process by name: what ``mock://name`` stands for."""

from __future__ import annotations

import threading

from penstock.registry.service import Registry

__all__ = ["forget", "named"]

_registries: dict[str, Registry] = {}
_lock = threading.Lock()


def named(name: str) -> Registry:
    """The registry of this name in this process, made on first use."""
    with _lock:
        if name not in _registries:
            _registries[name] = Registry()
        return _registries[name]


def forget(name: str) -> None:
    """Drops the registry and all that is in it."""
    with _lock:
        _registries.pop(name, None)
