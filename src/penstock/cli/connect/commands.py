"""`penstock connect`: all of its commands, and `connect file`, which reads a text file into a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.base.terminal.human_numbers import counted
from penstock.cli.connect import apply_and_tap, run_connector, worker
from penstock.cli.options import LogOptions, grouped
from penstock.cli.output import console, waiting
from penstock.errors import ConfigError

__all__ = ["app"]

app = typer.Typer(help="Connectors between files and topics.", no_args_is_help=True)
run_connector.register(app)
worker.register(app)
worker.register_java(app)
apply_and_tap.register(app)


@app.command("file")
@grouped
def connect_file(
    *,
    path: Annotated[Path, typer.Option(help="The text file.")],
    topic: Annotated[str, typer.Option(help="The topic; created if it does not exist.")],
    follow: Annotated[bool, typer.Option("--follow/--once", help="Wait for new lines, or stop at the end.")] = True,
    name: Annotated[str, typer.Option(help="The connector's name, under which its position is stored.")] = "",
    partitions: Annotated[int, typer.Option(min=1, help="The partitions of a created topic.")] = 1,
    where: LogOptions,
) -> None:
    """Read a growing text file, line by line, into a topic; continues exactly where it stopped."""
    from penstock.connect.file_source import FileSource

    out = console(stderr=True)
    if not topic:
        raise ConfigError("--topic is empty")
    with where.open(create=True) as log:
        source = FileSource(log, path, topic, name=name, partitions=partitions, on_note=out.print)
        try:
            if follow:
                source.follow()
            else:
                with waiting(f"reading {path}"):
                    source.run_once()
        except KeyboardInterrupt:
            source.stop()
        finally:
            status = source.status()
            out.print(
                f"{counted(status.lines, 'line')} to {topic}; {status.total_lines:,} in all, "
                f"{status.behind_bytes:,} bytes left"
            )
            source.close()
