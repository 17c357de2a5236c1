"""`penstock sql format`: statements as canonical text."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.output import print_source
from penstock.errors import SqlError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("format")(format_)


def format_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files of statements; - is the standard input.")
    ],
    *,
    write: Annotated[bool, typer.Option("--write", "-w", help="Change the files, instead of printing.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Print differences, and end with exit code 1 if there are any.")
    ] = False,
) -> None:
    """Print statements in one form: keywords in upper case, one clause a line, comments before their statement."""
    changed = False
    for file in files:
        before = _read(file)
        after = _formatted(before, file)
        changed = changed or before != after
        if check:
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(), str(file), f"{file} formatted", lineterm=""
            )
            for line in lines:
                print_source(line)
        elif write and str(file) != "-":
            if before != after:
                _replace(file, after)
        else:
            print_source(after, end="")
    if check and changed:
        raise typer.Exit(1)


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SqlError(f"{file} cannot be read: {error}") from error


def _formatted(text: str, file: Path) -> str:
    from penstock.errors import SqlSyntaxError
    from penstock.sql.parse import format_script, parse_script

    try:
        parsed = parse_script(text, tests=True)
    except SqlSyntaxError as error:
        raise SqlSyntaxError(f"{file}: {error.message}", hint=error.hint, **error.facts) from error
    if not parsed:
        return text
    return f"{format_script(parsed)}\n"


def _replace(file: Path, text: str) -> None:
    """Put the text in place of a file's, whole or not at all."""
    number, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).chmod(file.stat().st_mode)
        Path(name).replace(file)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise SqlError(f"{file} cannot be written: {error}") from error
