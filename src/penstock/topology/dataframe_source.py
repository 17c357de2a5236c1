"""A streaming DataFrame that feeds a topic of the application."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["DataFrameSource", "OutputMode", "ledger_task"]

OutputMode = Literal["append", "update"]


@dataclass(frozen=True)
class DataFrameSource:
    """One DataFrame that feeds a topic of the application.

    ``key``, ``value`` and ``timestamp`` are column names or Spark columns; a value of several names is a struct, and
    None stands for no key, for all columns, and for the time of writing. The serdes encode the columns.
    Without ``frame``, which does not travel, the application must get the DataFrame again.
    """

    name: str
    topic: str
    key_serde: Any
    value_serde: Any
    partitions: int | None = None
    output_mode: OutputMode = "append"
    key: Any = field(default=None, compare=False)
    value: Any = field(default=None, compare=False)
    timestamp: Any = field(default=None, compare=False)
    frame: Any = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the objects of the driver's Spark session: workers read the topic."""
        names = {"key": self.key, "value": self.value, "timestamp": self.timestamp}
        kept = {k: v if v is None or isinstance(v, str | tuple) else None for k, v in names.items()}
        return {**self.__dict__, **kept, "frame": None}

    @property
    def task(self) -> str:
        """Its name in the ledger."""
        return ledger_task(self.name)


def ledger_task(name: str) -> str:
    """Return the name in the ledger of the DataFrame of this name."""
    return f"dataframe-{name}"
