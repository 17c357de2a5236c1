"""The entry point of the command line: its commands, and the handling of errors."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from penstock.base.version import __version__
from penstock.cli import demo, doctor, sql
from penstock.cli.application import metrics, query, state
from penstock.cli.application import run as apps
from penstock.cli.application.app import app as app_commands
from penstock.cli.application.app import register_convert, register_plan
from penstock.cli.connect import commands as connect
from penstock.cli.connect.mirror import mirror
from penstock.cli.options import Json, logged
from penstock.cli.output import console, print_error, print_json
from penstock.cli.servers import broker, registry
from penstock.cli.servers.ui import ui
from penstock.cli.testing import replay, simulate
from penstock.cli.topics import datagen, groups, topics
from penstock.errors import PenstockError

__all__ = ["app", "hint_for", "main"]

_FULL = (errno.ENOSPC, errno.EDQUOT)

app = typer.Typer(
    name="penstock",
    help="Kafka Streams for Python, running on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - typer's signature
    if is_asked:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")] = False,
) -> None:
    """Kafka Streams for Python, running on Spark."""
    del (
        version,
        debug,
    )  # the first is done by now; main() removes the second from the arguments, so that it may stand anywhere


@app.command()
def version(*, as_json: Json = False) -> None:
    """Print the versions of Penstock and its dependencies."""
    from penstock.cli.environment import versions

    numbers = versions()
    if as_json:
        print_json(numbers)
        return
    for name, number in numbers.items():
        console().print(f"{name} {number}")


apps.register(app)
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
register_plan(app_commands)
register_convert(app_commands)
app.add_typer(app_commands, name="app")
app.add_typer(query.app, name="query")
app.add_typer(metrics.app, name="metrics")
app.add_typer(state.app, name="state")
app.add_typer(broker.app, name="broker")
app.add_typer(registry.app, name="registry")
app.add_typer(sql.app, name="sql")
datagen.register(app)
app.add_typer(connect.app, name="connect")
app.command()(logged(mirror))
app.command()(ui)
simulate.register(app)
replay.register(app)
app.add_typer(demo.app, name="demo")
doctor.register(app)


def main() -> None:
    """Run the command. Exit codes: 0, 1 for a PenstockError, 2 for a wrong call, 70 for a bug, 130 for Ctrl-C."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        try:
            app(arguments, prog_name="penstock")
        finally:
            sys.stdout.flush()  # here: at the end of the process nobody could say what is wrong
    except PenstockError as error:
        if debug:
            raise
        print_error(error.message, error.hint, error.docs)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `penstock topics consume ... | head`
        _write_no_more()
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, OSError) and error.errno in _FULL:
            _write_no_more()
            target = f" to {error.filename}" if error.filename else ""
            print_error(f"nothing more can be written{target}: {error.strerror}", "Free disk space, then run it again.")
            sys.exit(1)
        if isinstance(error, ModuleNotFoundError) and (hint := hint_for(error, arguments)):
            print_error(f"this command needs the package {error.name}, which is not installed", hint)
            sys.exit(1)
        if explained := _explained(error):
            print_error(explained.message, explained.hint, explained.docs)
            sys.exit(1)
        print_error(
            f"{type(error).__name__}: {error}", "This is not a message for users: please report it, with --debug."
        )
        sys.exit(70)


def _write_no_more() -> None:
    """Drop what is not written yet: its error would come again at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explained(error: Exception) -> PenstockError | None:
    """Return the error for users behind one of Kafka's clients; None for all others."""
    if "confluent_kafka" not in sys.modules:
        return None
    from confluent_kafka import KafkaException

    from penstock.log.kafka.failures import failure

    return failure(error, "the request to the cluster failed") if isinstance(error, KafkaException) else None


# Modules whose distribution has another name.
_DISTRIBUTIONS = {
    "confluent_kafka": "confluent-kafka",
    "google": "protobuf",
    "kafka": "kafka-python",
    "opentelemetry": "opentelemetry-sdk",
    "prometheus_client": "prometheus-client",
    "starlette": "fastapi",  # of the extras that name FastAPI alone, which brings it
    "yaml": "pyyaml",
}
_EXTRA_OF = re.compile(r"^(?P<name>[\w.-]+).*;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
# The extras of commands whose names are not those of their extras.
_COMMANDS = {
    "mirror": ("kafka",),
    "registry": ("registry", "schemas"),
    "sql": ("query",),
    "topics": ("schemas",),
}
_NOT_FOR_USERS = frozenset({"all", "dev", "test"})


def hint_for(error: ModuleNotFoundError, arguments: Sequence[str]) -> str | None:
    """Return the command that installs a missing package; None for a package that no extra brings.

    Args:
        error: The failed import.
        arguments: The words of the command that failed, from which the extra is chosen where several bring the package.

    Examples:
        >>> hint_for(ModuleNotFoundError(name="uvicorn"), ["registry", "start"])
        'Install it: pip install "penstock[registry]".'
        >>> hint_for(ModuleNotFoundError(name="starlette.requests"), ["sql", "serve"])
        'Install it: pip install "penstock[query]".'
        >>> hint_for(ModuleNotFoundError(name="penstock.nowhere"), []) is None
        True
    """
    module = (error.name or "").partition(".")[0]
    names = {module, _DISTRIBUTIONS.get(module, module)}
    extras = [extra for name, extra in _extras() if name in names]
    if not extras:
        return None
    preferred = [extra for word in arguments for extra in _COMMANDS.get(word, (word,))]
    extra = next((extra for extra in preferred if extra in extras), extras[0])
    return f'Install it: pip install "penstock[{extra}]".'


def _extras() -> list[tuple[str, str]]:
    """Return each distribution that an extra requires, with the extra, in the order of their declaration."""
    try:
        requirements = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:  # run from sources that are not installed
        return []
    matches = filter(None, map(_EXTRA_OF.match, requirements))
    return [(match["name"], match["extra"]) for match in matches if match["extra"] not in _NOT_FOR_USERS]


if __name__ == "__main__":
    main()
