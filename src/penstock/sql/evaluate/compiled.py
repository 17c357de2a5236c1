"""Typed expressions as functions of rows: the generated source is compiled once for a list of expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.sql.evaluate import helpers
from penstock.sql.evaluate.generate import ModuleWriter, is_safe
from penstock.sql.evaluate.source import Block, Module
from penstock.sql.evaluate.typed import Typed
from penstock.sql.functions import EvaluationErrors
from penstock.sql.functions.registry import COMPUTATION_ERRORS
from penstock.sql.types import SqlValueError
from penstock.sql.types.numbers import wrap_int, wrap_long

__all__ = ["compile_predicate", "compile_rows", "generated_source"]

Row = tuple[Any, ...]
NAMES: dict[str, Any] = {
    "ERRORS": COMPUTATION_ERRORS,
    "wrap_int": wrap_int,
    "wrap_long": wrap_long,
    **{name: getattr(helpers, name) for name in ("contains", "element", "like", "no_condition")},
}


def compile_rows(
    expressions: Sequence[Typed], errors: EvaluationErrors, names: Sequence[str] = ()
) -> Callable[[Row], Row]:
    """Compile expressions to one function of a row that returns their values as a tuple.

    An expression that fails is null, and its error is reported; the others are not affected.

    Args:
        expressions: The expressions.
        errors: Counts the errors.
        names: The names of the expressions in reports; by default their numbers.

    >>> from penstock.sql.evaluate.typed import Arithmetic, TypedColumn
    >>> from penstock.sql.types import INTEGER
    >>> a, b = TypedColumn(INTEGER, 0), TypedColumn(INTEGER, 1)
    >>> rows = compile_rows([Arithmetic(INTEGER, "+", a, b), b], EvaluationErrors())
    >>> rows((1, 2)), rows((None, 2))
    ((3, 2), (None, 2))
    """
    return _loaded(_rows(expressions, names), errors)


def compile_predicate(expression: Typed, errors: EvaluationErrors, name: str = "WHERE") -> Callable[[Row], bool]:
    """Compile a condition to a function of a row; null and errors are false, errors are reported.

    Args:
        expression: The condition.
        errors: Counts the errors.
        name: The name of the condition in reports.
    """
    return _loaded(_predicate(expression, name), errors)


def generated_source(expressions: Sequence[Typed]) -> str:
    """Return the source that `compile_rows` compiles; names such as ``k1`` stand for functions and values."""
    return _rows(expressions, ()).text


def _rows(expressions: Sequence[Typed], names: Sequence[str]) -> Module:
    module = Module()
    generator, body = ModuleWriter(module, "report", "ERRORS"), Block(module)
    texts = []
    for number, expression in enumerate(expressions):
        if is_safe(expression):
            texts.append(generator.value(expression, body))
            continue
        target = module.fresh("v")
        generator.guarded(expression, body, names[number] if names else f"expression {number + 1}", target)
        texts.append(target)
    body.add(f"return ({''.join(f'{text}, ' for text in texts)})")
    module.functions.append("\n".join(["def main(row):", *body.lines]))
    return module


def _predicate(expression: Typed, name: str) -> Module:
    module = Module()
    generator, body = ModuleWriter(module, "report", "ERRORS"), Block(module)
    with body.nested("try:"):
        body.add(f"return {generator.value(expression, body)} is True")
    with body.nested("except ERRORS as error:"):
        body.add(f"report({name!r}, error)")
        body.add("return False")
    module.functions.append("\n".join(["def main(row):", *body.lines]))
    return module


def _loaded(module: Module, errors: EvaluationErrors) -> Callable[[Row], Any]:
    space: dict[str, Any] = {**NAMES, **module.names, "report": _reporting(errors)}
    exec(compile(module.text, "<penstock sql>", "exec"), space)  # noqa: S102  (our own text, see Module)
    main: Callable[[Row], Any] = space["main"]
    return main


def _reporting(errors: EvaluationErrors) -> Callable[[str, Exception], None]:
    def report(where: str, error: Exception) -> None:
        is_null = isinstance(error, TypeError) and "None" in str(error)
        errors.report(where, SqlValueError("an operand is null") if is_null else error)

    return report
