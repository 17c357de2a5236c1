"""`penstock sql`: the prompt, statements, scripts as applications."""

from __future__ import annotations

from penstock.cli.sql.commands import app

__all__ = ["app"]
