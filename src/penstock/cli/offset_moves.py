"""The options and the output of offset moves, for `penstock groups reset` and `penstock app reset`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from penstock.log.groups.group_admin import OffsetMove
    from penstock.log.groups.reset_targets import Target

__all__ = ["MovingOptions", "show_moves"]


@dataclass(frozen=True, slots=True)
class MovingOptions:
    """The target of offsets, by one of these options, and whether to execute the move."""

    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first records.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="After the last records.")] = False
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None
    shift_by: Annotated[int | None, typer.Option(help="By this many offsets, or back: --shift-by=-10.")] = None
    to_datetime: Annotated[
        str | None, typer.Option(help="To the first records not older: ISO time (UTC) or milliseconds.")
    ] = None
    by_duration: Annotated[str | None, typer.Option(help="To the first records not older than 1h, PT15M.")] = None
    from_file: Annotated[Path | None, typer.Option(help="To the offsets in a file: topic,partition,offset lines.")] = (
        None
    )
    execute: Annotated[bool, typer.Option("--execute", help="Execute the plan; by default it is only printed.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan: the default.")] = False

    def targets(self) -> list[Target]:
        """Return the targets of all given options; one is allowed."""
        from penstock.log.groups.reset_targets import Target

        chosen_targets = [Target.earliest()] if self.to_earliest else []
        chosen_targets += [Target.latest()] if self.to_latest else []
        chosen_targets += [] if self.to_offset is None else [Target.offset(self.to_offset)]
        chosen_targets += [] if self.shift_by is None else [Target.shifted(self.shift_by)]
        chosen_targets += [] if self.to_datetime is None else [Target.at(self.to_datetime)]
        chosen_targets += [] if self.by_duration is None else [Target.ago(self.by_duration)]
        chosen_targets += [] if self.from_file is None else [Target.of_file(self.from_file)]
        return chosen_targets

    def wants_execution(self) -> bool:
        """Return whether to execute the plan."""
        from penstock.errors import ConfigError

        if self.execute and self.dry_run:
            raise ConfigError("--execute and --dry-run contradict each other", hint="Leave one of them out.")
        return self.execute


def show_moves(group: str, moves: Sequence[OffsetMove], *, does: bool, as_json: bool) -> None:
    """Print the executed or planned moves."""
    if as_json:
        print_json({"group": group, "executed": does, "moves": [asdict(move) for move in moves]})
        return
    rows = (["-" if cell is None else cell for cell in asdict(move).values()] for move in moves)
    print_table(["topic", "partition#", "before#", "after#", "lag#"], rows, empty="nothing to move")
    if moves:
        console(stderr=True).print("done" if does else "nothing was changed: --execute does it")
