"""SQL: ksqlDB's language as a front end of the DSL. It has no entry point yet."""

from __future__ import annotations

__all__: list[str] = []
