"""Where a topic is read from when there is no committed offset: Kafka's reset policies."""

from __future__ import annotations

from typing import Any

from penstock.durations import duration_ms
from penstock.errors import ConfigError

__all__ = ["back_ms", "offset_reset"]

_PLAIN = ("earliest", "latest", "none")
_BY_DURATION = "by_duration:"


def offset_reset(value: Any) -> str:
    """A policy in its one form.

    Example:
        >>> offset_reset("LATEST"), offset_reset("by_duration:PT1H"), offset_reset("by_duration: 1 hour")
        ('latest', 'by_duration:3600000', 'by_duration:3600000')

    Raises:
        ValueError: It is none.
    """
    text = str(getattr(value, "value", value)).strip()
    if text.lower() in _PLAIN:
        return text.lower()
    if text.lower().startswith(_BY_DURATION):
        try:
            length = duration_ms(text[len(_BY_DURATION) :].strip())
        except ConfigError:
            length = -1
        if length >= 0:
            return f"{_BY_DURATION}{length}"
    raise ValueError('"earliest", "latest", "none" or "by_duration:PT1H"')


def back_ms(policy: str) -> int | None:
    """How far ``by_duration`` goes back; None for the other policies.

    Example:
        >>> back_ms("by_duration:60000"), back_ms("latest")
        (60000, None)
    """
    return int(policy.removeprefix(_BY_DURATION)) if policy.startswith(_BY_DURATION) else None
