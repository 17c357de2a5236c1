"""`penstock demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import CommandConfig, read_command_config

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
    kafka: Annotated[bool, typer.Option("--kafka", help="Over a Kafka broker that is started and stopped.")] = False,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", help="Over a Kafka that runs: host:port.")
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Count visits by operating system and minute, live, from an nginx access log."""
    from penstock.demo import run_demo

    run_demo(
        path=file,
        follow=follow,
        seconds=seconds,
        directory=directory,
        rate=rate,
        kafka=bootstrap or kafka,
        kafka_settings=read_command_config(command_config),
    )
