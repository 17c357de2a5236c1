"""Who visits a console, and what they may do: from one token, a file of users, or a proxy that signs in."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from penstock.base.escapes import one_line
from penstock.errors import ConfigError
from penstock.serving.token import TWICE, new_token
from penstock.state.private_folders import create_file, own_folder, state_home

__all__ = ["BehindProxy", "OneToken", "Role", "Users", "Visitor", "kept_token"]

_DIGEST = "sha256:"
_LEAST = 32  # characters of a token
_HEX = re.compile(r"[0-9a-f]{64}")
_MOST_NAME = 100
_HINT = "Write lines NAME:ROLE:TOKEN, with viewer, operator or admin, and a token of 32 characters or its sha256:HEX."


class Role(IntEnum):
    """What a visitor may do; each role may do what those before it may."""

    VIEWER = 0
    """See all that the console shows."""
    OPERATOR = 1
    """Reset groups, stop applications, pause and restart connectors."""
    ADMIN = 2
    """Send messages, change topics, connectors and schemas, run all statements of SQL."""

    @classmethod
    def of(cls, name: str) -> Role:
        """Return the role of this name.

        Raises:
            ConfigError: There is none.
        """
        try:
            return cls[name.strip().upper()]
        except KeyError:
            raise ConfigError(
                f"there is no role {name.strip()[:30]!r}", hint="Roles are viewer, operator, admin."
            ) from None

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who visits a console.

    Attributes:
        name: The name; empty where all visitors have the same token.
        role: What they may do.
    """

    name: str = ""
    role: Role = Role.VIEWER


@dataclass(frozen=True, slots=True)
class OneToken:
    """Everybody who has the token is let in.

    Attributes:
        token: The token.
        role: What they may do.
    """

    token: str
    role: Role = Role.VIEWER

    def __call__(self, token: str, headers: Mapping[str, str]) -> Visitor | None:
        """Return who comes with a token; None: nobody who is let in."""
        del headers
        return Visitor("", self.role) if secrets.compare_digest(token.encode(), self.token.encode()) else None


@dataclass(frozen=True, slots=True)
class Users:
    """Users with a token each.

    Attributes:
        by_digest: Digest of the token -> the user.
    """

    by_digest: Mapping[str, Visitor]

    @classmethod
    def read(cls, file: Path) -> Users:
        """Read a file of users.

        Raises:
            ConfigError: It cannot be read, or a line has another form; tokens are not part of the message.
        """
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the users of the console cannot be read: {error}", hint=_HINT) from error
        return cls.of(lines, str(file))

    @classmethod
    def of(cls, lines: Iterable[str], source: str) -> Users:
        """Read lines ``NAME:ROLE:TOKEN``; empty ones and those that begin with # are left out.

        Args:
            lines: The lines.
            source: Where they come from, for errors.

        Raises:
            ConfigError: A line has another form, or two users have the same name or token.
        """
        users: dict[str, Visitor] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, _, rest = line.strip().partition(":")
            role, _, token = rest.partition(":")
            where = f"line {number} of {source}"
            if not name or len(token) < _LEAST:
                raise ConfigError(f"{where} names no user with a role and a token", hint=_HINT)
            user = Visitor(one_line(name.strip())[:_MOST_NAME], _role_in(role, where))
            digest = token.lower().removeprefix(_DIGEST) if token.lower().startswith(_DIGEST) else _digest(token)
            if _HEX.fullmatch(digest) is None:
                raise ConfigError(f"{where}: after sha256: come no 64 hexadecimal digits", hint=_HINT)
            if user.name in {each.name for each in users.values()}:
                raise ConfigError(f"{where} names {user.name} again", hint="Each user has one line.")
            if digest in users:
                raise ConfigError(f"{where} has the token of {users[digest].name}", hint="Each user has another token.")
            users[digest] = user
        if not users:
            raise ConfigError(f"{source} names no user", hint=_HINT)
        return cls(users)

    @property
    def may_write(self) -> bool:
        """Whether one of them may change something."""
        return any(user.role > Role.VIEWER for user in self.by_digest.values())

    def __call__(self, token: str, headers: Mapping[str, str]) -> Visitor | None:
        """Return whose token it is; None: nobody's."""
        del headers
        return self.by_digest.get(_digest(token))


@dataclass(frozen=True, slots=True)
class BehindProxy:
    """Users whom a proxy has signed in, by OpenID Connect for example; its requests have the token.

    Attributes:
        token: The token of the proxy.
        user_header: The header with the user's name.
        groups_header: The header with the user's groups, separated by commas.
        roles: Group -> role; who is in none of them is a viewer.
    """

    token: str
    user_header: str
    groups_header: str = ""
    roles: Mapping[str, Role] = field(default_factory=dict)

    @property
    def may_write(self) -> bool:
        """Whether one of them may change something."""
        return any(role > Role.VIEWER for role in self.roles.values())

    def __call__(self, token: str, headers: Mapping[str, str]) -> Visitor | None:
        """Return whom the proxy names; None: the request does not come from it, or does not name one user.

        A header that is there twice may come from the proxy and from the visitor, so that nobody is named by it.
        """
        named, listed = (headers.get(header.lower(), "").strip() for header in (self.user_header, self.groups_header))
        name = one_line(named)[:_MOST_NAME]
        if not name or TWICE in named + listed or not secrets.compare_digest(token.encode(), self.token.encode()):
            return None
        groups = {group.strip() for group in listed.split(",")} - {""}
        return Visitor(name, max((role for group, role in self.roles.items() if group in groups), default=Role.VIEWER))


def _role_in(text: str, where: str) -> Role:
    """Return the role of a line. A long text in its place may be a token, so it is not part of the error."""
    try:
        return Role.of(text)
    except ConfigError as error:
        what = error.message if len(text) < _LEAST else "there is no role between name and token"
        raise ConfigError(f"{where}: {what}", hint=_HINT) from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


_FILE = "console-token"


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
