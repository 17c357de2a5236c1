"""The option ``--log-format`` of commands that run applications, connectors and servers."""

from __future__ import annotations

import enum
import inspect
import logging
from collections.abc import Callable
from typing import Annotated, Any

import typer

from penstock.base.log_lines import FORMAT, start_json_lines, writes_json

__all__ = ["LogFormat", "logged", "start_text_lines"]

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LogFormat(enum.StrEnum):
    """The formats of a log."""

    TEXT = "text"
    JSON = "json"


_Option = Annotated[
    LogFormat,
    typer.Option(
        "--log-format", envvar=FORMAT,
        help="The log on the error stream: text, or a JSON object a line with application, task and batch.",
    ),
]  # fmt: skip


def logged(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: it gets the option ``--log-format``.

    >>> @logged
    ... def run(topic: str) -> None:
    ...     print(topic)
    >>> list(inspect.signature(run).parameters)
    ['topic', 'log_format']
    """

    def run(**arguments: Any) -> None:
        if arguments.pop("log_format", LogFormat.TEXT) is LogFormat.JSON:
            start_json_lines()
        command(**arguments)

    signature = inspect.signature(command, eval_str=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    option = inspect.Parameter("log_format", kind, default=LogFormat.TEXT, annotation=_Option)
    parameters = [*(each.replace(kind=kind) for each in signature.parameters.values()), option]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__module__, run.__qualname__ = command.__module__, command.__qualname__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def start_text_lines(level: int) -> None:
    """Write the log as text from a level on, unless it is written as JSON."""
    if not writes_json():
        logging.basicConfig(level=level, format=_TEXT)
