"""`penstock groups`: consumer groups, their lag and their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.base.terminal.human_numbers import counted
from penstock.cli.offset_moves import MovingOptions, show_moves
from penstock.cli.options import Json, LogOptions, grouped
from penstock.cli.output import confirm, console, print_json, print_table, print_text

if TYPE_CHECKING:
    from penstock.log.base import GroupMember

__all__ = ["app"]

app = typer.Typer(help="Consumer groups, their lag and their offsets.", no_args_is_help=True)
Group = Annotated[str, typer.Argument(help="The group; an application's is its application.id.")]
Topics = Annotated[
    list[str], typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="A topic, or some partitions; repeatable.")
]
_COLUMNS = ["topic", "partition#", "committed#", "end#", "lag#"]


@app.command("list")
@grouped
def list_groups(*, where: LogOptions, as_json: Json = False) -> None:
    """List the groups that have committed offsets or members."""
    from penstock.log.groups.group_admin import GroupAdmin

    with where.open() as log:
        groups = GroupAdmin(log).groups()
    if as_json:
        print_json([asdict(each) for each in groups])
        return
    rows = ((each.group, each.state, each.members, "yes" if each.application else "") for each in groups)
    print_table(["group", "state", "members#", "application"], rows, empty="no groups")


@app.command()
@grouped
def describe(
    group: Group,
    *,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members with their partitions or tasks in place of the lag.")
    ] = False,
    where: LogOptions,
    as_json: Json = False,
) -> None:
    """Show a group's state, its members and its lag by partition."""
    from penstock.log.groups.group_admin import GroupAdmin

    with where.open() as log:
        described = GroupAdmin(log).describe(group)
    if as_json:
        print_json(asdict(described))
        return
    what = "application" if described.application else "group"
    how = f", assignor {described.assignor}" if described.assignor else ""
    console().print(f"{what} {group}: {described.state}, {counted(len(described.members), 'member')}{how}")
    if members:
        _print_members(described.members)
        return
    rows: list[list[Any]] = []
    for each in described.partitions:
        owner = described.owner(each.topic, each.partition)
        who = ["-", "-"] if owner is None else [owner.instance or owner.client or owner.member, owner.host]
        committed = "-" if each.committed is None else each.committed
        rows.append([each.topic, each.partition, committed, each.end_offset, each.lag, *who])
    starts = not rows and described.application and described.members
    empty = f"{group} starts: it has committed no offsets yet" if starts else "no offsets"
    print_table([*_COLUMNS, "consumer", "host"], rows, empty=empty)


def _print_members(members: Sequence[GroupMember]) -> None:
    """Print the members with the partitions that they read, and with their tasks in a streams group."""
    roles = list(dict.fromkeys(role for member in members for role, _ in member.tasks))
    rows: list[list[Any]] = []
    for member in members:
        tasks = dict(member.tasks)
        name = member.instance or member.member
        cells = [", ".join(tasks.get(role, ())) or "-" for role in roles]
        rows.append([name, member.client, member.host, len(member.owned), *cells])
    columns = ["member", "client", "host", "partitions#", *(f"{role} tasks" for role in roles)]
    print_table(columns, rows, empty="no members")


@app.command()
@grouped
def lag(group: Group, *, where: LogOptions, as_json: Json = False) -> None:
    """Show the lag of each partition in records."""
    from penstock.log.groups.group_admin import GroupAdmin

    with where.open() as log:
        admin = GroupAdmin(log)
        rows = [asdict(row) for row in admin.lag(group)]
        starts = not rows and admin.is_starting(group)
    if as_json:
        print_json(rows)
        return
    empty = f"{group} starts: it has committed no offsets yet" if starts else "no offsets"
    cells = ([("-" if cell is None else cell) for cell in row.values()] for row in rows)
    print_table(_COLUMNS, cells, empty=empty)


@app.command()
@grouped
def reset(
    group: Group,
    *,
    topic: Topics = [],  # noqa: B006 - typer reads the default, nobody changes it
    to_current: Annotated[
        bool, typer.Option("--to-current", help="The committed offsets; the end where there is none.")
    ] = False,
    moving: MovingOptions,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print topic,partition,offset lines, for --from-file.")] = False,
    where: LogOptions,
    as_json: Json = False,
) -> None:
    """Move a group's offsets, by default in all its topics. Prints the plan; --execute executes it.

    The group must be stopped. A stopped application continues at the new offsets; its state stays as it is, so records
    that it reads again are counted twice: see `penstock app reset` for a start from nothing.
    """
    from penstock.log.groups.group_admin import GroupAdmin
    from penstock.log.groups.reset_targets import Target, choose

    does = moving.wants_execution()
    target = choose([*moving.targets(), *([Target.current()] if to_current else [])])
    with where.open() as log:
        admin = GroupAdmin(log)
        moves = admin.plan_reset(group, target, topic)
        if does:
            admin.reset(group, moves)
        application = admin.is_application(group)
    if as_csv:
        for move in moves:
            print_text(f"{move.topic},{move.partition},{move.after}")
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
    """Delete a stopped group, or with --topic only its offsets of these topics."""
    from penstock.log.groups.group_admin import GroupAdmin

    what = f"the offsets of {group} in {', '.join(topic)}" if topic else f"group {group} and its offsets"
    with where.open() as log:
        admin = GroupAdmin(log)
        admin.lag(group)  # raises for an unknown group before the question
        confirm(f"Delete {what}?", yes=yes)
        if topic:
            admin.delete_offsets(group, topic)
        else:
            admin.delete(group)
        application = admin.is_application(group)
    console().print(f"deleted {what}")
    if application:
        console(stderr=True).print(f"{group} is a Penstock application: it continues at the offsets of its checkpoint.")
