"""Settings of Kafka Streams that would change results but are not supported: they are refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from penstock.errors import ConfigError

__all__ = ["IN_MICRO_BATCHES", "OF_STATE", "REFUSED", "Refusal", "refuse", "refuse_in_mode"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason to refuse a setting, the alternative, and a test for values that match the behaviour here."""

    reason: str
    instead: str
    harmless: Callable[[Any], bool] = lambda _: False


def _is_number_up_to_0(value: Any) -> bool:
    try:
        return int(value) <= 0
    except (TypeError, ValueError):
        return False


REFUSED: Mapping[str, Refusal] = MappingProxyType(
    {
        "windowed.inner.class.serde": Refusal(
            "it is for plain consumers, and Kafka Streams refuses it too",
            'Name the serde where it is used: Serdes.time_windowed("string", "1 minute"), or "windowed<string,60000>".',
        ),
        "window.size.ms": Refusal(
            "it is for plain consumers, and Kafka Streams refuses it too",
            'Name the size where it is used: Serdes.time_windowed("string", "1 minute"), or "windowed<string,60000>".',
        ),
    }
)
OF_STATE = ("dsl.store.format",)  # which a change of the mode cannot leave out: the state has that form
IN_MICRO_BATCHES: Mapping[str, Refusal] = MappingProxyType(
    {
        "max.task.idle.ms": Refusal(
            "a micro-batch reads all records that its topics have when it is planned, and processes them in order of"
            " time, as with 0; it does not wait for empty topics",
            "Set processing.mode to continuous, or leave this setting out: penstock.min.records.per.batch and"
            " penstock.max.wait.ms let a batch wait for more records.",
            _is_number_up_to_0,
        ),
        "dsl.store.format": Refusal(
            "in micro-batches the stores of tables and windows keep no headers",
            "Set processing.mode to continuous, or leave this setting out. A processor may keep headers in a store of"
            " its own, as Stores.timestamped_with_headers.",
            lambda value: value == "DEFAULT",
        ),
    }
)


def refuse(name: str, value: Any) -> None:
    """Raise ConfigError for a setting whose effect is not supported."""
    _refuse(name, value, REFUSED.get(name))


def refuse_in_mode(settings: Mapping[str, Any]) -> None:
    """Raise ConfigError for a setting that the processing mode does not support."""
    if settings.get("processing.mode") == "micro_batch":
        for name, refusal in IN_MICRO_BATCHES.items():
            _refuse(name, settings.get(name), refusal)


def _refuse(name: str, value: Any, refusal: Refusal | None) -> None:
    if refusal is not None and value is not None and not refusal.harmless(value):
        raise ConfigError(f"{name}={value} is not supported: {refusal.reason}", hint=refusal.instead, setting=name)
