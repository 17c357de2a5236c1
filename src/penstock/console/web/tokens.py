"""The token of this user's consoles, kept so that a bookmark works after a restart."""

from __future__ import annotations

from contextlib import suppress

from penstock.errors import ConfigError
from penstock.serving.token import new_token
from penstock.state.own_folder import create_file, own_folder, state_home

__all__ = ["kept_token"]

_FILE = "console-token"
_LEAST = 32


def kept_token() -> str:
    """Return the token in this user's directory of state; the first call makes it, for this user alone to read.

    Where nothing can be kept, the token is a new one.
    """
    with suppress(OSError, ConfigError):  # a user in a container may have no home
        folder = state_home() / "penstock"
        token_file = folder / _FILE
        own_folder(folder)
        with suppress(FileExistsError), create_file(token_file) as file:
            file.write(new_token().encode())
        if not token_file.is_symlink() and not token_file.stat().st_mode & 0o077:
            kept = token_file.read_text(encoding="ascii").strip()
            if len(kept) >= _LEAST:
                return kept
    return new_token()
