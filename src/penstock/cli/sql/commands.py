"""`penstock sql` and its commands: statements, format, infer, run, explain, export, serve, test."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.options import (
    Bootstrap,
    CommandConfig,
    ConfigFile,
    ConfigPairs,
    DefaultCommandGroup,
    Json,
    LogOptions,
    grouped,
    logged,
    read_command_config,
    read_config,
)
from penstock.cli.output import console, print_json, print_source, print_text
from penstock.cli.servers.users import UserNames, UsersFile, collect_users
from penstock.errors import ConfigError, SqlError

if TYPE_CHECKING:
    from penstock.log.base import TopicLog
    from penstock.sql.functions import UserFunctions
    from penstock.sql.session import SqlSession
    from penstock.sql.session.script_application import Script
    from penstock.sql.testing import CaseOutcome, SqlCase

__all__ = ["app"]


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """The log of a session, and its settings: of files, of the command line; the last one wins."""

    bootstrap: Bootstrap = "penstock.db"
    command_config: CommandConfig = None
    config: ConfigPairs = field(default_factory=list)
    config_file: ConfigFile = None

    def settings(self) -> dict[str, Any]:
        """Return the config of a session."""
        return {
            "bootstrap.servers": self.bootstrap,
            **read_command_config(self.command_config),
            **read_config(self.config, self.config_file),
        }

    def session(self, queries: Literal["run", "wait"], *, scripts: bool = True) -> SqlSession:
        """Open a session; an embedded log is made if there is none."""
        from penstock.sql.session import SqlSession

        return SqlSession(self.settings(), queries=queries, scripts=scripts)


def register_formatting(app: typer.Typer) -> None:
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


def register_inference(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("infer")(infer)


@grouped
def infer(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    *,
    table: Annotated[bool, typer.Option("--table", help="Make a table; its key is the records' key.")] = False,
    name: Annotated[str, typer.Option(help="The name of the stream or table; by default that of the topic.")] = "",
    records: Annotated[int, typer.Option("--records", "-n", min=1, help="How many records to look at.")] = 1000,
    config: ConfigPairs = [],  # noqa: B006 - typer's way
    config_file: ConfigFile = None,
    where: LogOptions,
) -> None:
    """Print a CREATE statement for a topic: format, columns and key by its newest records.

    With `-c schema.registry.url=URL`, schemas of Avro, JSON Schema and Protobuf are looked up there.
    """
    from penstock.serde.schemas.schema_settings import REGISTRY_PREFIXES
    from penstock.sql.infer import infer_statement, read_sample

    settings = read_config(config, config_file)
    registry = {key: str(value) for key, value in settings.items() if key.startswith(REGISTRY_PREFIXES)}
    with where.open() as log:
        sample = read_sample(log, topic, records)
    statement = infer_statement(sample, "TABLE" if table else "STREAM", name, registry)
    for note in statement.notes:
        console(stderr=True).print(f"Note: {note}", markup=False)
    print_source(statement.text)


File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of statements.")]


def register_scripts(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(logged(grouped(run)))
    app.command()(grouped(explain))
    app.command()(grouped(export))


def run(
    file: File,
    *,
    options: SqlOptions,
    until: Annotated[
        str, typer.Option(help="stopped: run until Ctrl-C; latest: stop after the records that exist now.")
    ] = "stopped",
) -> None:
    """Run a file as one application on Spark: all its queries in one topology, until Ctrl-C.

    The application.id is the name of the file, or --config application.id=NAME. Topics are made as the statements say;
    rows of INSERT ... VALUES are written before the first run alone.
    """
    if until not in ("stopped", "latest"):
        raise ConfigError(f"--until is {until!r}", hint="Use stopped or latest.")
    name = _application_id(file, options)
    with _log(options) as log:
        script = _script(file, options, log)
        topology = script.topology()
        script.prepare(log, name)
    from penstock.cli.application.run import shown_while_running
    from penstock.engines.kafka_streams import KafkaStreams

    while True:
        app = KafkaStreams(topology, script.app_settings(name))
        with shown_while_running(app, console(stderr=True)):
            app.run(until=until)  # type: ignore[arg-type]
        if until == "stopped":
            return
        with _log(options) as log:
            if not script.has_more(log, name):
                return


def explain(file: File, *, options: SqlOptions, as_json: Json = False) -> None:
    """Show the topology of a file and the back end of each of its expressions, without running it."""
    from penstock.sql.session.describing_statements import explained

    with _log(options) as log:
        script = _script(file, options, log)
    explanations = [(plan, explained(plan)) for plan in script.plans]
    topology = script.topology().describe()
    if as_json:
        print_json([{**each.plan, "expressions": each.expressions} for _, each in explanations])
        return
    print_text(str(topology).rstrip())
    for plan, each in explanations:
        print_text(f"\n{plan.id}: {' '.join(plan.text.split())}")
        for text, kind, back_end in each.expressions:
            print_text(f"  {back_end}  {text}  {kind}")


def export(*, options: SqlOptions) -> None:
    """Print the present catalog as SQL statements that create it."""
    with options.session("wait") as session:
        print_source(session.export(), end="")


def _log(options: SqlOptions) -> TopicLog:
    from penstock.log.open import open_log
    from penstock.sql.session import SessionSettings

    settings = SessionSettings.of(options.settings())
    return open_log(settings.log, settings.app)


def _script(file: Path, options: SqlOptions, log: TopicLog) -> Script:
    from penstock.sql.session import SessionSettings
    from penstock.sql.session.script_application import Script

    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}", hint="Give a file of statements.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error.reason}") from error
    return Script(text, SessionSettings.of(options.settings()), {each.name: each.partitions for each in log.topics()})


def _application_id(file: Path, options: SqlOptions) -> str:
    application_id = options.settings().get("application.id")
    return str(application_id) if application_id else re.sub(r"[^A-Za-z0-9._-]", "-", file.stem)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The address of a server, and the rules of access to it."""

    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes a free one.")] = 8088
    user: UserNames = field(default_factory=list)
    users_file: UsersFile = None
    certificate: Annotated[Path | None, typer.Option(help="A PEM certificate: serve HTTPS.")] = None
    key: Annotated[Path | None, typer.Option(help="The certificate's private key.")] = None


def register_server(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(logged(grouped(serve)))


def serve(
    *,
    options: SqlOptions,
    listening: ServerOptions,
    most_queries: Annotated[int, typer.Option(help="The number of push queries that may run at once.")] = 32,
) -> None:
    """Serve ksqlDB's REST interface until Ctrl-C; persistent queries run meanwhile."""
    from penstock.serving import Certificate
    from penstock.sql.server import SqlService, server

    users = collect_users(listening.user, listening.users_file) or None
    key = None if listening.key is None else str(listening.key)
    tls = None if listening.certificate is None else Certificate(str(listening.certificate), key)
    with options.session("run", scripts=False) as session:
        service = SqlService(session, most_queries=most_queries)
        try:
            sql_server = server(service, listening.host, listening.port, users=users, certificate=tls)
            scheme = "http" if tls is None else "https"
            console().print(f"Penstock SQL listens at {scheme}://{listening.host}:{sql_server.port}. Ctrl-C ends it.")
            sql_server.run()
        finally:
            service.close()


def register_tests(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("test")(run_tests)


def run_tests(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of tests, .sql or .json, or folders.")],
    *,
    only: Annotated[str, typer.Option("-k", metavar="TEXT", help="Run only tests with this text in their name.")] = "",
    functions: Annotated[
        list[str], typer.Option("--functions", metavar="MODULE", help="Python functions: a file or a module.")
    ] = [],  # noqa: B006 - typer's way
    inputs: Annotated[
        Path | None,
        typer.Option("--input-file", "-i", help="The inputs of one .sql file, as JSON."),
    ] = None,
    outputs: Annotated[Path | None, typer.Option("--output-file", "-o", help="The outputs of that file.")] = None,
    as_json: Json = False,
) -> None:
    """Run tests of statements, without Spark and without a log. Exit code 1 if one fails.

    A .sql file has rows by INSERT ... VALUES, and checks the results by ASSERT VALUES, ASSERT NULL VALUES,
    ASSERT STREAM and ASSERT TABLE; `--@test: NAME` begins a test. A .json file is in the format of ksqlDB's own query
    validation tests.
    """
    from penstock.sql.functions import load_functions

    users = load_functions(*functions, installed=True)
    outcomes: list[dict[str, Any]] = []
    for file in _expanded(files):
        for outcome in _outcomes(file, (inputs, outputs), only, users):
            outcomes.append(outcome)
            if not as_json:
                _show(outcome)
    failed = sum(not outcome["passed"] for outcome in outcomes)
    if not outcomes:
        raise SqlError("There is no such test.", hint="Name files or folders of tests; -k takes a part of a name.")
    if as_json:
        print_json({"passed": len(outcomes) - failed, "failed": failed, "tests": outcomes})
    else:
        console().print(f"{len(outcomes) - failed} passed, {failed} failed")
    if failed:
        raise typer.Exit(1)


def _expanded(files: list[Path]) -> Iterator[Path]:
    for file in files:
        if file.is_dir():
            yield from sorted(each for each in file.rglob("*") if each.suffix in (".sql", ".json"))
        elif file.exists():
            yield file
        else:
            raise SqlError(f"There is no file {file}.")


def _outcomes(
    file: Path, sides: tuple[Path | None, Path | None], only: str, users: UserFunctions
) -> Iterator[dict[str, Any]]:
    from penstock.sql.testing import load_cases, load_script_tests, run_case, run_script_test

    if file.suffix == ".json" or any(sides):
        cases = load_cases(file) if file.suffix == ".json" else iter([_joined(file, sides)])
        for case in cases:
            if only.lower() in f"{case.area} {case.name}".lower():
                yield _of_case(file, case, run_case(case, users))
        return
    for test_ in load_script_tests(file):
        if only.lower() in f"{file.stem} {test_.name}".lower():
            outcome = run_script_test(test_, users)
            yield _plain(file, test_.name, outcome.reason)


def _joined(file: Path, sides: tuple[Path | None, Path | None]) -> SqlCase:
    from penstock.sql.testing import case_of_files

    return case_of_files(file, *sides)


def _of_case(file: Path, case: SqlCase, outcome: CaseOutcome) -> dict[str, Any]:
    reason = "" if outcome.passed else outcome.reason
    expected = (case.refused or {}).get("message")
    if outcome.passed and expected and expected not in outcome.reason and not outcome.same_cause:
        reason = f"it is refused for another reason than {expected!r}:\n{outcome.reason}"
    return _plain(file, case.name, reason)


def _plain(file: Path, name: str, reason: str) -> dict[str, Any]:
    return {"file": str(file), "name": name, "passed": not reason, "reason": reason}


def _show(outcome: dict[str, Any]) -> None:
    out = console()
    word, style = ("PASS", "green") if outcome["passed"] else ("FAIL", "red")
    out.print(word, style=style, end=" ")
    out.print(f"{outcome['file']}: {outcome['name']}", markup=False)
    for line in outcome["reason"].splitlines():
        out.print(f"     {line}", markup=False)


class _SqlGroup(DefaultCommandGroup):
    """``penstock sql`` alone is ``penstock sql prompt``, also with options."""

    default = "prompt"


app = typer.Typer(cls=_SqlGroup, help="Penstock SQL: a prompt, statements, and files of them as applications.")


@app.command("prompt")
@grouped
def prompt(
    *,
    execute: Annotated[
        list[str], typer.Option("--execute", "-e", metavar="STATEMENTS", help="Run these statements and end.")
    ] = [],  # noqa: B006 - typer's way
    options: SqlOptions,
    as_json: Json = False,
) -> None:
    """Open a prompt; this is what `penstock sql` does. With -e, or with statements on the standard input, run them.

    Persistent queries run while a prompt is open; with -e they process all records that exist, then the command ends.
    """
    from penstock.cli.sql.render import run_statements

    if execute or not sys.stdin.isatty():
        text = "\n".join(f"{each.rstrip().rstrip(';')};" for each in execute) if execute else sys.stdin.read()
        with options.session("wait") as session:
            run_statements(session, text, as_json=as_json)
        return
    from penstock.cli.sql.prompt import Prompt

    with options.session("run") as session:
        Prompt(session).run()


register_scripts(app)
register_tests(app)
register_formatting(app)
register_inference(app)
register_server(app)
