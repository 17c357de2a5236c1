"""``sasl.jaas.config``: the login of Java's clients, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import ConfigError

__all__ = ["Jaas", "jaas_line", "parse_jaas"]

_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b(.*)", re.DOTALL | re.IGNORECASE)
_OPTION = re.compile(r"""\s*([\w.-]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;"']+)""", re.DOTALL)
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


@dataclass(frozen=True, slots=True, repr=False)
class Jaas:
    """A login module and its options, some of which are secrets."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Jaas({self.module!r}, {sorted(self.options)})"


def parse_jaas(text: str) -> Jaas:
    r"""Parse the value of ``sasl.jaas.config``.

    >>> parse_jaas('org.example.PlainLoginModule required username="al" password="a\\"b";').options
    {'username': 'al', 'password': 'a"b'}

    Raises:
        ConfigError: It is malformed; the message names the place, but no value.
    """
    head = _HEAD.fullmatch(text)
    if head is None:
        raise _wrong("it does not begin with a login module and 'required'")
    options: dict[str, str] = {}
    rest = head.group(3)
    while rest.strip() not in ("", ";"):
        option = _OPTION.match(rest)
        if option is None:
            after = f"after the option {list(options)[-1]!r}" if options else "after 'required'"
            raise _wrong(f'{after} no option of the form name="value" follows')
        value = option.group(2)
        if value[0] in "\"'":
            value = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
        options[option.group(1)] = value
        rest = rest[option.end() :]
    if not rest.strip():
        raise _wrong("it does not end with a semicolon")
    return Jaas(head.group(1), options)


def _wrong(problem: str) -> ConfigError:
    return ConfigError(
        f"sasl.jaas.config cannot be read: {problem}",
        hint=f'For example: {_MODULES["PLAIN"]} required username="alice" password="${{env:KAFKA_PASSWORD}}"; - '
        "or give sasl.username and sasl.password instead.",
        setting="sasl.jaas.config",
    )


def jaas_line(mechanism: str, options: Mapping[str, str]) -> str:
    """Return the value of ``sasl.jaas.config`` for a SASL mechanism."""
    if mechanism not in _MODULES:
        raise ConfigError(
            f"sasl.mechanism is {mechanism!r}", hint=f"One of {', '.join(_MODULES)}.", setting="sasl.mechanism"
        )
    pairs = "".join(f' {name}="{_escaped(value)}"' for name, value in options.items())
    return f"{_MODULES[mechanism]} required{pairs};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
