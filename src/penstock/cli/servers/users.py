"""Users of a server that a command starts, with passwords from a file, the environment or a prompt."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import ConfigError

__all__ = ["UserNames", "UsersFile", "collect_users"]

_VARIABLE = "PENSTOCK_USERS"

UserNames = Annotated[
    list[str],
    typer.Option("--user", metavar="NAME", help=f"A user; the password comes from {_VARIABLE} or a prompt."),
]
UsersFile = Annotated[
    Path | None, typer.Option("--users-file", help="A file of users: lines NAME:PASSWORD.", exists=True, dir_okay=False)
]


def collect_users(names: list[str], file: Path | None) -> dict[str, str]:
    """Collect the passwords of users.

    Every user of the machine can read the arguments of a process, so passwords are not accepted there.

    Args:
        names: Users with passwords in the environment (``PENSTOCK_USERS``, lines NAME:PASSWORD) or from a prompt.
        file: Further users with their passwords.

    Returns:
        Name -> password.

    Raises:
        ConfigError: A name contains a password, the file has other lines, or there is no terminal for a prompt.
    """
    from penstock.serving import parse_users

    users = {} if file is None else parse_users(file.read_text(encoding="utf-8").splitlines(), str(file))
    of_environment = parse_users(os.environ.get(_VARIABLE, "").splitlines(), f"the environment's {_VARIABLE}")
    for name in names:
        if ":" in name:
            raise ConfigError(
                f"--user {name.partition(':')[0]}:*** has a password in it, which every user of this machine can read",
                hint=f"Give --user NAME and type the password, set {_VARIABLE}, or name a --users-file.",
            )
        if name in of_environment:
            users[name] = of_environment[name]
        elif sys.stdin.isatty():
            users[name] = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True)
        else:
            raise ConfigError(
                f"there is no password for --user {name}, and no terminal to ask for it",
                hint=f"Set {_VARIABLE} to {name}:PASSWORD, or name a --users-file.",
            )
    return users
