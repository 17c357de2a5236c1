"""How many examples Hypothesis tries: a third in `make test`, all in `make test-all`, which sets PENSTOCK_EXAMPLES."""

from __future__ import annotations

import os

__all__ = ["examples"]


def examples(whole: int) -> int:
    """Return the whole number, or PENSTOCK_EXAMPLES if that is more, when it is set; otherwise a third of it."""
    given = os.environ.get("PENSTOCK_EXAMPLES")
    return max(whole, int(given)) if given else -(-whole // 3)
