"""`penstock sql`: the prompt and its commands."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.default_command import DefaultCommandGroup
from penstock.cli.option_groups import grouped
from penstock.cli.options import Json
from penstock.cli.sql import formatting, inferring, scripts, serving, testing
from penstock.cli.sql.options import SqlOptions

__all__ = ["app"]


class _SqlGroup(DefaultCommandGroup):
    """``penstock sql`` alone is ``penstock sql prompt``, also with options."""

    default = "prompt"


app = typer.Typer(cls=_SqlGroup, help="Penstock SQL: a prompt, statements, and files of them as applications.")


@app.command("prompt")
@grouped
def prompt(
    *,
    execute: Annotated[
        list[str], typer.Option("--execute", "-e", metavar="STATEMENTS", help="Run these statements and end.")
    ] = [],  # noqa: B006 - typer's way
    options: SqlOptions,
    as_json: Json = False,
) -> None:
    """Open a prompt; this is what `penstock sql` does. With -e, or with statements on the standard input, run them.

    Persistent queries run while a prompt is open; with -e they process all records that exist, then the command ends.
    """
    from penstock.cli.sql.statements import run_statements

    if execute or not sys.stdin.isatty():
        text = "\n".join(f"{each.rstrip().rstrip(';')};" for each in execute) if execute else sys.stdin.read()
        with options.session("wait") as session:
            run_statements(session, text, as_json=as_json)
        return
    from penstock.cli.sql.prompt import Prompt

    with options.session("run") as session:
        Prompt(session).run()


scripts.register(app)
testing.register(app)
formatting.register(app)
inferring.register(app)
serving.register(app)
