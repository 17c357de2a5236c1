"""The policies for a start without a committed offset: Kafka's ``auto.offset.reset``."""

from __future__ import annotations

from typing import Any

from penstock.base.durations import duration_ms
from penstock.errors import ConfigError

__all__ = ["back_ms", "offset_reset"]

_PLAIN = ("earliest", "latest", "none")
_BY_DURATION = "by_duration:"


def offset_reset(value: Any) -> str:
    """Return a policy in its normal form.

    Example:
        >>> offset_reset("LATEST"), offset_reset("by_duration:PT1H"), offset_reset("by_duration: 1 hour")
        ('latest', 'by_duration:3600000', 'by_duration:3600000')

    Raises:
        ValueError: There is no such policy.
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
    """Return the duration of ``by_duration`` in milliseconds; None for the other policies.

    Example:
        >>> back_ms("by_duration:60000"), back_ms("latest")
        (60000, None)
    """
    return int(policy.removeprefix(_BY_DURATION)) if policy.startswith(_BY_DURATION) else None
