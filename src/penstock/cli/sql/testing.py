"""`penstock sql test`: users' tests of statements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Json
from penstock.cli.output import console, print_json
from penstock.errors import SqlError

if TYPE_CHECKING:
    from penstock.sql.functions import UserFunctions
    from penstock.sql.testing import CaseOutcome, SqlCase

__all__ = ["register"]


def register(app: typer.Typer) -> None:
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
