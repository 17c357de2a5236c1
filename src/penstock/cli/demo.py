"""`penstock demo`: the main job on an embedded log, or one of the other demonstrations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import CommandConfig, DefaultCommandGroup, logged, read_command_config

__all__ = ["app"]


class _Demonstrations(DefaultCommandGroup):
    default = "access-log"


app = typer.Typer(help="Demonstrations; access-log, if none is named.", cls=_Demonstrations)


@app.callback()
def root() -> None:
    """Demonstrations; access-log, if none is named."""


@app.command("access-log")
@logged
def access_log(
    *,
    file: Annotated[Path | None, typer.Option(help="Your own log file; by default one is generated.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Run until Ctrl-C.")] = False,
    seconds: Annotated[
        float, typer.Option(min=1, help="The longest running time; a whole --file that is counted ends it sooner.")
    ] = 60,
    directory: Annotated[
        Path, typer.Option("--dir", help="The directory of topics, state and the generated log.")
    ] = Path(".demo"),
    rate: Annotated[float, typer.Option(min=1, help="Generated lines per second.")] = 1000,
    kafka: Annotated[bool, typer.Option("--kafka", help="Use a Kafka broker that is started and stopped.")] = False,
    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap-servers", "-b", help="Use a running Kafka: host:port.")
    ] = None,
    command_config: CommandConfig = None,
) -> None:
    """Count visits by operating system and minute, live, from an nginx access log."""
    from penstock.tools.demo import run_demo
    from penstock.tools.demo.job import DemoOptions

    run_demo(
        path=file,
        seconds=None if follow else seconds,
        directory=directory,
        options=DemoOptions(rate, bootstrap or kafka, read_command_config(command_config)),
    )
