"""`penstock groups`: consumer groups, their lag, and where they go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.option_groups import LogOptions, grouped
from penstock.cli.options import Json
from penstock.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from penstock.groups.admin import OffsetMove
    from penstock.groups.resets import Target

__all__ = [
    "ByDuration",
    "DryRun",
    "Execute",
    "FromFile",
    "ShiftBy",
    "ToCurrent",
    "ToDatetime",
    "ToEarliest",
    "ToLatest",
    "ToOffset",
    "app",
    "show_moves",
    "targets_of",
    "wants_execution",
]

app = typer.Typer(help="Consumer groups, their lag, and where they go on.", no_args_is_help=True)
Group = Annotated[str, typer.Argument(help="The group; an application's is its application.id.")]
Topics = Annotated[
    list[str], typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="A topic, or some partitions; repeatable.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first records.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="Behind the last records.")]
ToCurrent = Annotated[bool, typer.Option("--to-current", help="Where it is; the end where it is nowhere.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")]
ShiftBy = Annotated[int | None, typer.Option("--shift-by", help="So many on, or back: --shift-by=-10.")]
ToDatetime = Annotated[
    str | None, typer.Option("--to-datetime", help="The first records not older: ISO time (UTC) or milliseconds.")
]
ByDuration = Annotated[str | None, typer.Option("--by-duration", help="The first records not older than 1h, PT15M.")]
FromFile = Annotated[Path | None, typer.Option("--from-file", help="Offsets of a file: topic,partition,offset lines.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; without, only show what would be done.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done: the default.")]
_COLUMNS = ["topic", "partition#", "committed#", "end#", "lag#"]


@app.command("list")
@grouped
def list_groups(*, where: LogOptions, as_json: Json = False) -> None:
    """List the groups that have committed offsets or members."""
    from penstock.groups.admin import GroupAdmin

    with where.open() as log:
        found = GroupAdmin(log).groups()
    if as_json:
        print_json([asdict(each) for each in found])
        return
    rows = ((each.group, each.state, each.members, "yes" if each.application else "") for each in found)
    print_table(["group", "state", "members#", "application"], rows, empty="no groups")


@app.command()
@grouped
def describe(group: Group, *, where: LogOptions, as_json: Json = False) -> None:
    """Show a group's state, its members and its lag by partition."""
    from penstock.groups.admin import GroupAdmin

    with where.open() as log:
        found = GroupAdmin(log).describe(group)
    if as_json:
        print_json(asdict(found))
        return
    what = "application" if found.application else "group"
    how = f", assignor {found.assignor}" if found.assignor else ""
    console().print(f"{what} {group}: {found.state}, {len(found.members)} member(s){how}")
    rows: list[list[Any]] = []
    for each in found.partitions:
        owner = found.owner(each.topic, each.partition)
        who = ["-", "-"] if owner is None else [owner.instance or owner.client or owner.member, owner.host]
        committed = "-" if each.committed is None else each.committed
        rows.append([each.topic, each.partition, committed, each.end_offset, each.lag, *who])
    print_table([*_COLUMNS, "consumer", "host"], rows, empty="no offsets")


@app.command()
@grouped
def lag(group: Group, *, where: LogOptions, as_json: Json = False) -> None:
    """Show how many records each partition is behind its end."""
    from penstock.groups.admin import GroupAdmin

    with where.open() as log:
        rows = [asdict(row) for row in GroupAdmin(log).lag(group)]
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, ([("-" if cell is None else cell) for cell in row.values()] for row in rows))


@app.command()
@grouped
def reset(
    group: Group,
    *,
    topic: Topics = [],  # noqa: B006 - typer reads the default, nobody changes it
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print topic,partition,offset lines, as --from-file.")] = False,
    where: LogOptions,
    as_json: Json = False,
) -> None:
    """Move a group's offsets, by default in all its topics. Shows what it would do; --execute does it.

    The group must be stopped. A stopped application continues at the new offsets; its state stays as it is, so what it
    has counted already is counted again: see `penstock app reset` for a start from nothing.
    """
    from penstock.groups.admin import GroupAdmin
    from penstock.groups.resets import choose

    does = wants_execution(execute=execute, dry_run=dry_run)
    target = choose(
        targets_of(
            to_earliest=to_earliest, to_latest=to_latest, to_current=to_current, to_offset=to_offset,
            shift_by=shift_by, to_datetime=to_datetime, by_duration=by_duration, from_file=from_file,
        )
    )  # fmt: skip
    with where.open() as log:
        admin = GroupAdmin(log)
        moves = admin.plan_reset(group, target, topic)
        if does:
            admin.reset(group, moves)
        application = admin.is_application(group)
    if as_csv:
        for move in moves:
            typer.echo(f"{move.topic},{move.partition},{move.after}")
        return
    show_moves(group, moves, does=does, as_json=as_json)
    if application and not as_json:
        console(stderr=True).print(
            f"{group} is a Penstock application: its state stays as it is. For a start from nothing: penstock app reset"
        )


@app.command()
@grouped
def delete(
    group: Group,
    *,
    topic: Topics = [],  # noqa: B006 - typer reads the default, nobody changes it
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    where: LogOptions,
) -> None:
    """Delete a group that is stopped, or with --topic its offsets of these topics only."""
    from penstock.groups.admin import GroupAdmin

    what = f"the offsets of {group} in {', '.join(topic)}" if topic else f"group {group} and its offsets"
    with where.open() as log:
        admin = GroupAdmin(log)
        admin.lag(group)  # an unknown group is told before the question
        if not yes:
            typer.confirm(f"Delete {what}?", abort=True)
        if topic:
            admin.delete_offsets(group, topic)
        else:
            admin.delete(group)
        application = admin.is_application(group)
    console().print(f"deleted {what}")
    if application:
        console(stderr=True).print(f"{group} is a Penstock application: it continues where its checkpoint says.")


def targets_of(
    *,
    to_earliest: bool = False,
    to_latest: bool = False,
    to_current: bool = False,
    to_offset: int | None = None,
    shift_by: int | None = None,
    to_datetime: str | None = None,
    by_duration: str | None = None,
    from_file: Path | None = None,
) -> list[Target]:
    """All that the options ask for; one is allowed."""
    from penstock.groups.resets import Target

    found = []
    if to_earliest:
        found.append(Target.earliest())
    if to_latest:
        found.append(Target.latest())
    if to_current:
        found.append(Target.current())
    if to_offset is not None:
        found.append(Target.offset(to_offset))
    if shift_by is not None:
        found.append(Target.shifted(shift_by))
    if to_datetime is not None:
        found.append(Target.at(to_datetime))
    if by_duration is not None:
        found.append(Target.ago(by_duration))
    if from_file is not None:
        found.append(Target.of_file(from_file))
    return found


def wants_execution(*, execute: bool, dry_run: bool) -> bool:
    """Whether to do it."""
    from penstock.errors import ConfigError

    if execute and dry_run:
        raise ConfigError("--execute and --dry-run contradict each other", hint="Leave one of them out.")
    return execute


def show_moves(group: str, moves: Sequence[OffsetMove], *, does: bool, as_json: bool) -> None:
    """What was moved, or would be."""
    if as_json:
        print_json({"group": group, "executed": does, "moves": [asdict(move) for move in moves]})
        return
    rows = (["-" if cell is None else cell for cell in asdict(move).values()] for move in moves)
    print_table(["topic", "partition#", "before#", "after#", "lag#"], rows, empty="nothing to move")
    if moves:
        console(stderr=True).print("done" if does else "nothing was changed: --execute does it")
