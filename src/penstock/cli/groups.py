"""`penstock groups`: consumer groups and their lag."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.options import Bootstrap, Json, open_log_at
from penstock.cli.output import print_json, print_table
from penstock.errors import LogError

__all__ = ["app"]

app = typer.Typer(help="Consumer groups and their lag.", no_args_is_help=True)
_DEFAULT = "penstock.db"


@app.command("list")
def list_groups(*, bootstrap: Bootstrap = _DEFAULT, as_json: Json = False) -> None:
    """List the groups that have committed offsets."""
    with open_log_at(bootstrap) as log:
        names = log.groups()
    if as_json:
        print_json(names)
    else:
        print_table(["group"], ([name] for name in names), empty="no groups")


@app.command("lag")
def lag(
    group: Annotated[str, typer.Argument(help="The group; an application's is its application.id.")],
    *,
    bootstrap: Bootstrap = _DEFAULT,
    as_json: Json = False,
) -> None:
    """Show how many records each partition is behind its end."""
    from penstock.groups.lag import lag as group_lag

    with open_log_at(bootstrap) as log:
        committed = log.committed_offsets(group)
        if not committed:
            known = ", ".join(log.groups()) or "none"
            raise LogError(f"group {group!r} has no committed offsets", hint=f"Groups: {known}.")
        rows = [asdict(row) for row in group_lag(log, group)]
    if as_json:
        print_json(rows)
    else:
        print_table(["topic", "partition#", "committed#", "end#", "lag#"], (list(row.values()) for row in rows))
