"""The demo: the access-log job with a growing log file, a live view and a check of the result at the end.

Reading order: `access_log` (the topology; the same file as examples/access_log.py), `job`, `writer`, `connect_lines`,
`counts`, `view`.
`example` runs the other programs of examples/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.demo.example import run_example
    from penstock.demo.job import run_demo

__all__ = ["run_demo", "run_example"]


def __getattr__(name: str) -> Any:
    if name == "run_demo":
        from penstock.demo.job import run_demo

        return run_demo
    if name == "run_example":
        from penstock.demo.example import run_example

        return run_example
    raise AttributeError(f"module 'penstock.demo' has no attribute {name!r}")
