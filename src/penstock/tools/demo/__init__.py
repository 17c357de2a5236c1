"""The demo: the access-log job with a growing log file, a live view and a check of the result at the end.

Reading order: `access_log` (the topology; the same file as examples/access_log.py), `job`.
`example` runs the other programs of examples/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.tools.demo.example import run_example
    from penstock.tools.demo.job import run_demo

__all__ = ["run_demo", "run_example"]

__getattr__ = lazy_names(__name__, {"run_demo": "job", "run_example": "example"})
