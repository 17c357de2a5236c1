"""The last import of the process that tasks are forked from: what it has loaded so far stays shared with the tasks."""

from __future__ import annotations

import gc

__all__: list[str] = []

gc.collect()
gc.freeze()  # a collection in a task would write to all pages that it shares
