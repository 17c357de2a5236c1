"""`penstock demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(help="Jobs to look at.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Jobs to look at."""


@app.command("access-log")
def access_log(
    *,
    file: Annotated[Path | None, typer.Option(help="Your own log file; by default one is generated.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="How long to run.")] = 60,
    directory: Annotated[Path, typer.Option("--dir", help="Where topics, state and the generated log go.")] = Path(
        ".demo"
    ),
    rate: Annotated[float, typer.Option(min=1, help="Generated lines per second.")] = 1000,
) -> None:
    """Count visits by operating system and minute, live, from an nginx access log."""
    from penstock.demo import run_demo

    run_demo(path=file, follow=follow, seconds=seconds, directory=directory, rate=rate)
