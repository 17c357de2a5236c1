"""Groups of commands of which one may be left out."""

from __future__ import annotations

from typing import Any, ClassVar

from typer.core import TyperGroup

__all__ = ["DefaultCommandGroup"]


class DefaultCommandGroup(TyperGroup):
    """A group whose words go to its default command if the first of them does not name a command.

    Attributes:
        default: The name of that command.
        runs_without_words: Without any word it runs too; else the help is shown.
    """

    default: ClassVar[str]
    runs_without_words: ClassVar[bool] = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command first if none is named."""
        is_named = args[0] in (*self.commands, "-h", "--help") if args else not self.runs_without_words
        rest: list[str] = super().parse_args(ctx, args if is_named else [self.default, *args])
        return rest
