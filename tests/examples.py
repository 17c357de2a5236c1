"""How many examples Hypothesis tries: a third in `make test`, all in `make test-all`, which sets PENSTOCK_EXAMPLES."""

from __future__ import annotations

import os

__all__ = ["examples"]


def examples(whole: int) -> int:
    """Return the whole number when PENSTOCK_EXAMPLES is set, otherwise a third of it."""
    return whole if os.environ.get("PENSTOCK_EXAMPLES") else -(-whole // 3)
