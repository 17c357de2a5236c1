"""Typed expressions to Python functions: their source, what it calls, and its compilation.

`Generator.value` writes an expression: it returns text that computes it, after it has written the lines which that
text needs into the block. What is evaluated on its own (`alone`) becomes a ``try`` of its own, whose error makes it
null. Conditions whose operands need lines become functions, so that these lines run only when they must.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NoReturn

from penstock.sql.evaluate import typed as n
from penstock.sql.evaluate.typed import Arithmetic, Typed
from penstock.sql.functions import EvaluationErrors
from penstock.sql.functions.registry import COMPUTATION_ERRORS
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    MapType,
    SqlType,
    SqlValueError,
    StructType,
)
from penstock.sql.types.conversions import cast_function
from penstock.sql.types.numbers import wrap_int, wrap_long
from penstock.sql.types.operators import arithmetic, comparison, distinct, negation
from penstock.sql.types.sql_type import Primitive

__all__ = ["Block", "Module", "compile_predicate", "compile_rows", "generated_source", "parts"]


# Source


class Module:
    """The functions of a generated module and the objects that they name.

    Values of a statement never become text of the program, except numbers and strings by their ``repr``.
    """

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.functions: list[str] = []
        self._by_id: dict[int, str] = {}
        self._count = 0

    def constant(self, value: Any) -> str:
        """Return the text that stands for an object."""
        if value is None or type(value) in (bool, str) or (type(value) is int and abs(value) < 1 << 64):
            return repr(value)
        if type(value) is float and math.isfinite(value):
            return repr(value)
        name = self._by_id.get(id(value))
        if name is None:
            name = self._by_id[id(value)] = self.fresh("k")
            self.names[name] = value
        return name

    def fresh(self, prefix: str) -> str:
        """Return a name that is not used yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    @property
    def text(self) -> str:
        """The whole program."""
        return "\n\n".join(self.functions) + "\n"


class Block:
    """Lines of a function, indented; `nested` indents what is written within."""

    def __init__(self, module: Module, depth: int = 1) -> None:
        self.module = module
        self.lines: list[str] = []
        self._depth = depth

    def add(self, line: str) -> None:
        """Write a line."""
        self.lines.append(f"{'    ' * self._depth}{line}")

    @contextmanager
    def nested(self, opening: str) -> Iterator[None]:
        """Write a line that opens a block, and indent what follows."""
        self.add(opening)
        self._depth += 1
        yield
        self._depth -= 1


# What the source calls

ANY = "[^\n\r\u0085\u2028\u2029]"  # Java's dot: no line breaks


def element(values: list[Any] | None, index: int | None) -> Any:
    """Return an element of an array, counted from one or from the end; null where there is none.

    >>> element(["a", "b"], 1), element(["a", "b"], -1), element(["a"], 0), element(None, 1)
    ('a', 'b', None, None)
    """
    if values is None:
        return None
    if index is None:
        raise SqlValueError("the index of an array is null")
    if index == 0 or abs(index) > len(values):
        return None
    return values[index - 1] if index > 0 else values[index]


def contains(items: Sequence[Any], value: Any) -> bool:
    """Return whether a value that is not null is among the items."""
    return value is not None and value in items


def no_condition() -> NoReturn:
    """Fail: a condition is null where true or false is needed."""
    raise SqlValueError("a condition is null")


def like(value: str | None, pattern: str | None, escape: str | None) -> bool:
    """Return whether a text is like a pattern that is known only now."""
    if value is None or pattern is None:
        raise SqlValueError("an operand of LIKE is null")
    return like_pattern(pattern, escape).fullmatch(value) is not None


@lru_cache(maxsize=512)
def like_pattern(pattern: str, escape: str | None) -> re.Pattern[str]:
    r"""Return the regular expression of a LIKE pattern, for a full match; ``%`` and ``_`` match no line breaks.

    >>> bool(like_pattern("a!%b%", "!").fullmatch("a%bc")), bool(like_pattern("a%", None).fullmatch("a\n"))
    (True, False)
    """
    parts = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            parts.append(re.escape(next(letters, "")))
        elif letter == "%":
            parts.append(f"{ANY}*")
        elif letter == "_":
            parts.append(ANY)
        else:
            parts.append(re.escape(letter))
    return re.compile("".join(parts))


# Expressions

HEIGHT = 12  # levels of a tree in one function: Python limits how deep brackets, blocks and indentation go
ON_THEIR_OWN = (n.Call, n.TypedField)  # as arguments of calls
SAFE = (n.TypedColumn, n.Constant, n.Parameter)  # cannot fail
NEVER_NULL = (n.Comparison, n.Between, n.In, n.Like, n.IsNull, n.Not, n.Logical)
INLINE_BRANCHES = 8
SIGNS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
EQUALITY = ("=", "<>")
WHOLE = (INTEGER, BIGINT)
ORDERED = (BYTES, DATE, TIME, TIMESTAMP)
LIMITS = {INTEGER: ("-2147483648", "2147483647", "wrap_int"), BIGINT: (f"{-(2**63)}", f"{2**63 - 1}", "wrap_long")}


def parts(node: n.Typed) -> tuple[n.Typed, ...]:
    """Return the expressions right below one."""
    match node:
        case n.Lambda(body=body):
            return (body,)
        case n.Call(arguments=children) | n.Logical(operands=children) | n.MakeArray(items=children):
            return children
        case n.MakeStruct(values=children):
            return children
        case n.MakeMap(entries=entries):
            return tuple(part for entry in entries for part in (entry.key, entry.value))
        case n.TypedField(base=base):
            return (base,)
        case n.Element(base=base, index=index):
            return (base, index)
        case n.Arithmetic(left=left, right=right) | n.Comparison(left=left, right=right):
            return (left, right)
        case n.Between(operand=operand, low=low, high=high):
            return (operand, low, high)
        case n.In(operand=operand, items=items):
            return (operand, *items)
        case n.Like(operand=operand, pattern=pattern):
            return (operand, pattern)
        case n.Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case n.TypedCast(operand=operand) | n.Convert(operand=operand) | n.Negative(operand=operand):
            return (operand,)
        case n.IsNull(operand=operand) | n.Not(operand=operand):
            return (operand,)
    return ()


class ModuleWriter:
    """A writer of expressions into a module.

    Args:
        module: The module.
        report: The name in it of the function that notes an error: it takes a place and an exception.
        errors: The name in it of the exceptions that make a value null.
    """

    def __init__(self, module: Module, report: str, errors: str) -> None:
        self.module, self._report, self._errors = module, report, errors
        self._heights: dict[int, int] = {}

    # Blocks ---------------------------------------------------------------------------------------------------------

    def guarded(self, node: n.Typed, block: Block, label: str, target: str) -> None:
        """Write the lines that put an expression's value into a variable, or null and a report of the error."""
        with block.nested("try:"):
            block.add(f"{target} = {self.value(node, block)}")
        with block.nested(f"except {self._errors} as error:"):
            block.add(f"{self._report}({label!r}, error)")
            block.add(f"{target} = None")

    def alone(self, node: n.Typed, block: Block) -> str:
        """Return the text of an expression that is evaluated on its own.

        An error in it makes it null, and nothing else.
        """
        if is_safe(node):
            return self.value(node, block)
        target = self.module.fresh("v")
        self.guarded(node, block, place_of(node), target)
        return target

    def _needs_lines(self, node: n.Typed) -> bool:
        """Return whether an expression has parts that must be computed before the line that uses it."""
        if isinstance(node, n.Case | n.Logical) or self._is_tall(node):
            return False  # these become functions
        if isinstance(node, n.Lambda) or not all(map(is_safe, parts_alone(node))):
            return True
        return any(map(self._needs_lines, parts(node)))

    def function(self, node: n.Typed, write: Callable[[Block], None]) -> str:
        """Return the text of a call of a new function that computes an expression; ``write`` writes its lines."""
        name = self.module.fresh("part_")
        free = sorted(f"p_{parameter.number}" for parameter in _free(node))
        body = Block(self.module)
        write(body)
        arguments = ", ".join(["row", *free])
        self.module.functions.append("\n".join([f"def {name}({arguments}):", *body.lines]))
        return f"{name}({arguments})"

    # Expressions ----------------------------------------------------------------------------------------------------

    def value(self, node: n.Typed, block: Block) -> str:
        """Return the text of an expression; an error in it is raised."""
        if self._is_tall(node):
            return self.function(node, lambda body: body.add(f"return {self._written(node, body)}"))
        return self._written(node, block)

    def _written(self, node: n.Typed, block: Block) -> str:
        return RULES[type(node)](self, node, block)

    def _is_tall(self, node: n.Typed) -> bool:
        return not isinstance(node, n.Lambda) and self._height(node) % HEIGHT == 0

    def _height(self, node: n.Typed) -> int:
        height = self._heights.get(id(node))
        if height is None:
            height = 1 + max((self._height(part) for part in parts(node)), default=0)
            self._heights[id(node)] = height
        return height

    def condition(self, node: n.Typed, block: Block) -> str:
        """Return the text of a condition; a null is an error."""
        text = self.value(node, block)
        if isinstance(node, NEVER_NULL) or (isinstance(node, n.Constant) and node.value is not None):
            return text
        name = self.module.fresh("t")
        return f"({name} if ({name} := {text}) is not None else no_condition())"

    def column(self, node: n.TypedColumn, _: Block) -> str:
        return f"row[{node.index}]"

    def constant(self, node: n.Constant, _: Block) -> str:
        return self.module.constant(node.value)

    def parameter(self, node: n.Parameter, _: Block) -> str:
        return f"p_{node.number}"

    def field(self, node: n.TypedField, block: Block) -> str:
        name = self.module.fresh("t")
        return f"(None if ({name} := {self.value(node.base, block)}) is None else {name}.get({node.name!r}))"

    def element(self, node: n.Element, block: Block) -> str:
        base, index = self.value(node.base, block), self.value(node.index, block)
        if isinstance(node.base.type, MapType):
            name = self.module.fresh("t")
            return f"(None if ({name} := {base}) is None else {name}.get({index}))"
        return f"element({base}, {index})"

    def call(self, node: n.Call, block: Block) -> str:
        texts = [self.argument(part, block) for part in node.arguments]
        return f"{self.module.constant(node.function.call)}({', '.join(texts)})"

    def argument(self, node: n.Typed, block: Block) -> str:
        if isinstance(node, n.Lambda):
            return self.lambda_(node, block)
        return self.alone(node, block) if isinstance(node, ON_THEIR_OWN) else self.value(node, block)

    def lambda_(self, node: n.Lambda, block: Block) -> str:
        parameters = ", ".join(f"p_{parameter.number}" for parameter in node.parameters)
        name = self.module.fresh("f")
        with block.nested(f"def {name}({parameters}):"):
            block.add(f"return {self.value(node.body, block)}")
        return name

    def make_array(self, node: n.MakeArray, block: Block) -> str:
        return f"[{', '.join([self.alone(item, block) for item in node.items])}]"

    def make_map(self, node: n.MakeMap, block: Block) -> str:
        pairs = []
        for entry in node.entries:
            name = self.module.fresh("t")
            key = f"('null' if ({name} := {self.alone(entry.key, block)}) is None else {name})"
            pairs.append(f"{key}: {self.alone(entry.value, block)}")
        return f"{{{', '.join(pairs)}}}"

    def make_struct(self, node: n.MakeStruct, block: Block) -> str:
        fields = node.type.fields if isinstance(node.type, StructType) else ()
        pairs = zip(fields, node.values, strict=True)
        return f"{{{', '.join([f'{field.name!r}: {self.alone(value, block)}' for field, value in pairs])}}}"

    def cast(self, node: n.TypedCast, block: Block) -> str:
        operand = self.alone(node.operand, block)
        return self._converted(operand, node.operand.type, node.type)

    def convert(self, node: n.Convert, block: Block) -> str:
        return self._converted(self.value(node.operand, block), node.operand.type, node.type)

    def _converted(self, text: str, source: SqlType, target: SqlType) -> str:
        if source in (target, NULL):
            return text
        return f"{self.module.constant(cast_function(source, target))}({text})"

    def negative(self, node: n.Negative, block: Block) -> str:
        return f"{self.module.constant(negation(node.type))}({self.value(node.operand, block)})"

    def arithmetic(self, node: n.Arithmetic, block: Block) -> str:
        left, right = self.value(node.left, block), self.value(node.right, block)
        return arithmetic_text(self.module, node, left, right)

    def comparison(self, node: n.Comparison, block: Block) -> str:
        left, right = self.value(node.left, block), self.value(node.right, block)
        return compare_text(self.module, (node.operator, node.left.type, node.right.type), left, right)

    def between(self, node: n.Between, block: Block) -> str:
        held = self.module.fresh("t")
        operand = f"({held} := {self.value(node.operand, block)})"
        low, high = self.value(node.low, block), self.value(node.high, block)
        kind = node.operand.type
        least = compare_text(self.module, (">=", kind, node.low.type), operand, low)
        return f"({least} and {compare_text(self.module, ('<=', kind, node.high.type), held, high)})"

    def in_(self, node: n.In, block: Block) -> str:
        operand = self.value(node.operand, block)
        constants = [item.value for item in node.items if isinstance(item, n.Constant)]
        if len(constants) == len(node.items) and isinstance(node.operand.type, Primitive):
            items = self.module.constant(frozenset(value for value in constants if value is not None))
            return f"({operand} in {items})"
        listed = ", ".join([self.value(item, block) for item in node.items])
        return f"contains(({listed},), {operand})"

    def like(self, node: n.Like, block: Block) -> str:
        operand = self.value(node.operand, block)
        pattern = node.pattern
        if isinstance(pattern, n.Constant) and pattern.value is not None:
            matches = self.module.constant(like_pattern(pattern.value, node.escape).fullmatch)
            return f"({matches}({operand}) is not None)"
        return f"like({operand}, {self.value(pattern, block)}, {node.escape!r})"

    def is_null(self, node: n.IsNull, block: Block) -> str:
        operand = self.value(node.operand, block)
        if (
            not operand.isidentifier()
        ):  # Python warns of `1 is None`, and of `1 + 1 is None`, which it knows as a number
            operand = f"({self.module.fresh('t')} := {operand})"
        return f"({operand} is None)"

    def not_(self, node: n.Not, block: Block) -> str:
        return f"(not {self.condition(node.operand, block)})"

    def logical(self, node: n.Logical, block: Block) -> str:
        if not any(self._needs_lines(part) for part in node.operands):
            texts = [self.condition(part, block) for part in node.operands]
            return f"({f' {node.operator.lower()} '.join(texts)})"
        decided = node.operator == "OR"

        def write(body: Block) -> None:
            for part in node.operands:
                text = self.condition(part, body)
                with body.nested(f"if {text}:" if decided else f"if not {text}:"):
                    body.add(f"return {decided}")
            body.add(f"return {not decided}")

        return self.function(node, write)

    def case(self, node: n.Case, block: Block) -> str:
        if len(node.branches) <= INLINE_BRANCHES and not any(map(self._needs_lines, parts(node))):
            texts = [(self.condition(test, block), self.value(result, block)) for test, result in node.branches]
            chain = " else ".join(f"{result} if {test}" for test, result in texts)
            return f"({chain} else {self.value(node.otherwise, block)})"

        def write(body: Block) -> None:
            for test, result in node.branches:
                with body.nested(f"if {self.condition(test, body)}:"):
                    body.add(f"return {self.value(result, body)}")
            body.add(f"return {self.value(node.otherwise, body)}")

        return self.function(node, write)


def parts_alone(node: n.Typed) -> tuple[n.Typed, ...]:
    """Return the parts of an expression that are evaluated on their own."""
    if isinstance(node, n.Call):
        return tuple(part for part in node.arguments if isinstance(part, ON_THEIR_OWN))
    return parts(node) if isinstance(node, n.MakeArray | n.MakeMap | n.MakeStruct | n.TypedCast) else ()


def is_safe(node: n.Typed) -> bool:
    """Return whether an expression cannot fail."""
    return isinstance(node, SAFE) or (isinstance(node, n.TypedField) and is_safe(node.base))


def place_of(node: n.Typed) -> str:
    """Return the name under which errors of an expression are counted."""
    return node.name if isinstance(node, n.Call | n.TypedField) else type(node).__name__.removeprefix("Typed").upper()


def _free(node: n.Typed) -> set[n.Parameter]:
    if isinstance(node, n.Parameter):
        return {node}
    parameters: set[n.Parameter] = set().union(*(_free(part) for part in parts(node)))
    return parameters - set(node.parameters) if isinstance(node, n.Lambda) else parameters


RULES: dict[type, Callable[[ModuleWriter, Any, Block], str]] = {
    n.TypedColumn: ModuleWriter.column,
    n.Constant: ModuleWriter.constant,
    n.Parameter: ModuleWriter.parameter,
    n.TypedField: ModuleWriter.field,
    n.Element: ModuleWriter.element,
    n.Call: ModuleWriter.call,
    n.MakeArray: ModuleWriter.make_array,
    n.MakeMap: ModuleWriter.make_map,
    n.MakeStruct: ModuleWriter.make_struct,
    n.TypedCast: ModuleWriter.cast,
    n.Convert: ModuleWriter.convert,
    n.Negative: ModuleWriter.negative,
    n.Arithmetic: ModuleWriter.arithmetic,
    n.Comparison: ModuleWriter.comparison,
    n.Between: ModuleWriter.between,
    n.In: ModuleWriter.in_,
    n.Like: ModuleWriter.like,
    n.IsNull: ModuleWriter.is_null,
    n.Not: ModuleWriter.not_,
    n.Logical: ModuleWriter.logical,
    n.Case: ModuleWriter.case,
}


def compare_text(module: Module, how: tuple[str, SqlType, SqlType], left: str, right: str) -> str:
    """Return the text of a comparison (``how``: the operator and the types of both sides) that is false for null."""
    operator, one, two = how
    if operator.startswith("IS"):
        text = f"{module.constant(distinct(one, two))}({left}, {right})"
        return text if operator == "IS DISTINCT FROM" else f"(not {text})"
    if not _inline(operator, one, two):
        return f"{module.constant(comparison(operator, one, two))}({left}, {right})"
    tests, names = [], []
    for text, kind, other in ((left, one, two), (right, two, one)):
        test, name = _held(module, text)
        tests += [f"{test} is not None"] if test else []
        names.append(f"float({name})" if kind == BIGINT and other == DOUBLE else name)
    return f"({' and '.join([*tests, f'{names[0]} {SIGNS[operator]} {names[1]}'])})"


def _inline(operator: str, left: SqlType, right: SqlType) -> bool:
    numbers = (*WHOLE, DOUBLE)
    if left in numbers and right in numbers:
        return True
    return left == right and (left in ORDERED or (left in (STRING, BOOLEAN) and operator in EQUALITY))


def _held(module: Module, text: str) -> tuple[str, str]:
    """Return the text of the first use of a value, empty if it cannot be null, and of the next."""
    if text[0] in "'\"-0123456789" or text in ("True", "False"):
        return "", text
    if text.isidentifier():
        return text, text
    name = module.fresh("t")
    return f"({name} := {text})", name


def arithmetic_text(module: Module, node: Arithmetic, left: str, right: str) -> str:
    """Return the text of an operation. Python refuses None as an operand, which makes it an error as it has to be."""
    kind = node.type
    if kind == STRING:
        return f"({_spelled(module, left)} + {_spelled(module, right)})"
    if node.operator in ("+", "-", "*"):
        if kind in LIMITS:
            least, most, wrap = LIMITS[kind]
            name = module.fresh("t")
            text = f"({name} := {left} {node.operator} {right})"
            return f"({name} if {least} <= {text} <= {most} else {wrap}({name}))"
        if kind == DOUBLE:
            texts = [
                text if side.type in (DOUBLE, INTEGER, BIGINT) else f"float({text})"
                for text, side in ((left, node.left), (right, node.right))
            ]
            return f"({texts[0]} {node.operator} {texts[1]})"
    apply = arithmetic(node.operator, node.left.type, node.right.type).apply
    return f"{module.constant(apply)}({left}, {right})"


def _spelled(module: Module, text: str) -> str:
    """Return a text, of which null is the word."""
    if text[0] in "'\"":
        return text
    name = module.fresh("t")
    return f"('null' if ({name} := {text}) is None else {name})"


# Compilation

Row = tuple[Any, ...]
NAMES: dict[str, Any] = {
    "ERRORS": COMPUTATION_ERRORS,
    "wrap_int": wrap_int,
    "wrap_long": wrap_long,
    "contains": contains,
    "element": element,
    "like": like,
    "no_condition": no_condition,
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
