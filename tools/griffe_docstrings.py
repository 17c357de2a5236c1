"""A Griffe extension: docstrings as the site's Markdown has them, where Griffe knows another form.

``Example:`` is a section of examples, code without ``>>>`` in it and examples outside a section are blocks of code, and
a text that ends with ``::`` before a block ends with a colon.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:\n(?P<body>(?:    .*\n?|\n)+)", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*\n?(?:\S.*\n?)*", re.MULTILINE)
_LITERAL = re.compile(r"::\n\n")


class Docstrings(griffe.Extension):
    """Rewrites each docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Leave out the constructor of a class whose objects only the builder's methods make, and overloads of others,
        which have the types of arguments and no arguments of their own.
        """
        made = cls.members.get("__init__")
        if isinstance(made, griffe.Function):
            made.overloads = None
            if "handle" in made.parameters:
                del cls.members["__init__"]


def as_markdown(text: str) -> str:
    """A docstring in the form that the site shows."""
    text = _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    return _LITERAL.sub(":\n\n", _EXAMPLE.sub(_example, text))


def _example(found: re.Match[str]) -> str:
    body = found["body"]
    if ">>>" in body:
        return f"Examples:\n{body}"
    code = textwrap.dedent(body).strip("\n")
    return f"```python\n{code}\n```\n"
