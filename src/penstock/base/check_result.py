"""The result of one check, as `penstock doctor` prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CheckResult", "Verdict"]

Verdict = Literal["ok", "warning", "missing"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    >>> CheckResult("Java", "missing", ok=False, remedy="Install Java 17.").verdict
    'missing'
    >>> CheckResult("copies", "1", ok=True, remedy="Use 3 copies.").verdict
    'warning'

    Attributes:
        name: What was looked at.
        found: What was found.
        ok: Whether an application can run.
        remedy: What to do; empty if all is fine.
    """

    name: str
    found: str
    ok: bool
    remedy: str = ""

    @property
    def verdict(self) -> Verdict:
        """What it means: fine, to be improved, or that an application cannot run without it."""
        if not self.ok:
            return "missing"
        return "warning" if self.remedy else "ok"
