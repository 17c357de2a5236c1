"""`penstock mirror`: copies between clusters, by the file that MirrorMaker 2 reads."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.terminal.human_numbers import counted
from penstock.cli.output import console
from penstock.errors import ConfigError

__all__ = ["mirror"]


def mirror(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="mm2.properties: clusters, servers, A->B.enabled.")],
    *,
    once: Annotated[bool, typer.Option("--once", help="Copy what is there now, and stop.")] = False,
) -> None:
    """Mirror topics, settings and group offsets between clusters, as MirrorMaker 2 does, until Ctrl-C."""
    from penstock.base.properties import parse_properties
    from penstock.connect.mirror.maker import Mirror

    try:
        properties = dict(parse_properties(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    out, stopped = console(stderr=True), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with Mirror(properties) as running:
        flows = [flow.flow for flow in running.flows if flow.source is not None]
        names = ", ".join(f"{flow.source.alias}->{flow.target.alias}" for flow in flows)
        if not names:
            raise ConfigError("no flow is enabled", hint="Set A->B.enabled=true for clusters A and B.")
        out.print(f"mirroring {names}", highlight=False)
        try:
            if once:
                running.run_once()
            else:
                running.run(stopped)
        except KeyboardInterrupt:
            stopped.set()
        copied = sum(flow.source.copied for flow in running.flows if flow.source is not None)
        out.print(f"{counted(copied, 'record')} copied")
