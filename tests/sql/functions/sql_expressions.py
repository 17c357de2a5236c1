"""A small evaluator of SQL expressions over the function registry, for these tests only."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from penstock.sql.functions import EvaluationErrors, LambdaArgument, scalar_functions
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
    STRING,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    Primitive,
    SqlType,
    SqlTypeError,
    SqlValueError,
    StructType,
    sql_type,
)
from penstock.sql.types.conversions import cast_function, common_type_of, widening
from penstock.sql.types.operators import arithmetic, comparison, distinct, negation

TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![A-Za-z_]))"
    r"|(?P<name>[A-Za-z_0-9]+|`[^`]*`)|(?P<op>->|=>|:=|<>|!=|<=|>=|\|\||[-+*/%=<>(),.\[\]]))"
)
PRIMITIVES = {str(kind): kind for kind in vars(sql_type).values() if isinstance(kind, Primitive)} | {
    "INT": INTEGER,
    "VARCHAR": STRING,
}
UNITS = {"DAYS", "HOURS", "MINUTES", "SECONDS", "MILLISECONDS", "MONTHS", "YEARS", "WEEKS"}
LEVELS = {
    "OR": 1,
    "AND": 2,
    "=": 4,
    "<>": 4,
    "!=": 4,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "IS": 4,
    "+": 5,
    "-": 5,
    "||": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}


class Unsupported(Exception):  # noqa: N818
    """What this evaluator cannot read."""


class Expression:
    """A type, a function of a row, and whether it is a literal."""

    def __init__(
        self, type_: SqlType, value: Callable[[dict], object], *, literal: bool = False, own: bool = False
    ) -> None:
        self.type, self.value, self.literal, self.own = type_, value, literal, own
        self.column: str | None = None


class Reader:
    def __init__(self, text: str, columns: dict[str, SqlType], errors: EvaluationErrors | None = None) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            if found is None:
                raise Unsupported(text[at : at + 20])
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self.at, self.columns, self.errors = 0, columns, errors or EvaluationErrors()

    def peek(self, ahead: int = 0) -> str:
        kind, text = self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ("", "")
        return text.upper() if kind == "name" and text[0] != "`" else text

    def take(self, expected: str | None = None) -> str:
        found = self.peek()
        if not found or (expected and found != expected):
            raise Unsupported(f"{found!r} in place of {expected!r}")
        self.at += 1
        return found

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def name(self) -> str:
        kind, _ = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind not in ("name", "number"):
            raise Unsupported(self.peek())
        return self.take().strip("`")

    def type(self) -> SqlType:
        name = self.name()
        if name == "ARRAY":
            self.take("<")
            kind = ArrayType(self.type())
            self.take(">")
            return kind
        if name == "MAP":
            self.take("<")
            key = self.type()
            self.take(",")
            kind = MapType(key, self.type())
            self.take(">")
            return kind
        if name == "STRUCT":
            self.take("<")
            fields = [(self.name(), self.type())]
            while self.accept(","):
                fields.append((self.name(), self.type()))
            self.take(">")
            return StructType.of(fields)
        if name == "DECIMAL":
            self.take("(")
            precision = int(self.take())
            self.take(",")
            scale = int(self.take())
            self.take(")")
            return DecimalType(precision, scale)
        if name not in PRIMITIVES:
            raise Unsupported(f"the type {name}")
        return PRIMITIVES[name]

    def expression(self, level: int = 0) -> Expression:
        left = self.prefix()
        while (found := LEVELS.get(self.peek(), -1)) > level:
            left = self.infix(left, found)
        return left

    def infix(self, left: Expression, level: int) -> Expression:
        op = self.take()
        if op == "IS":
            negated = self.accept("NOT")
            if self.accept("NULL"):
                return Expression(BOOLEAN, lambda row: (left.value(row) is None) != negated)
            self.take("DISTINCT")
            self.take("FROM")
            right = self.expression(level)
            apart = distinct(left.type, right.type)
            return Expression(BOOLEAN, lambda row: apart(left.value(row), right.value(row)) != negated)
        right = self.expression(level)
        if op == "AND":
            return Expression(BOOLEAN, lambda row: bool(left.value(row)) and bool(right.value(row)))
        if op == "OR":
            return Expression(BOOLEAN, lambda row: bool(left.value(row)) or bool(right.value(row)))
        if level == 4:
            compare = comparison("<>" if op == "!=" else op, left.type, right.type)
            return Expression(BOOLEAN, lambda row: compare(left.value(row), right.value(row)))
        found = arithmetic("+" if op == "||" else op, left.type, right.type)
        text = found.type == STRING

        def compute(row: dict) -> object:
            one, two = left.value(row), right.value(row)
            if text:
                one, two = "null" if one is None else one, "null" if two is None else two
            if one is None or two is None:
                raise SqlValueError("arithmetic with null")
            return found.apply(one, two)

        return Expression(found.type, compute)

    def prefix(self) -> Expression:
        found = self.primary()
        while self.peek() in ("[", "->"):
            if self.accept("->"):
                found = self.field(found, self.name())
            else:
                self.take("[")
                index = self.expression()
                self.take("]")
                found = self.element(found, index)
        return found

    def field(self, struct: Expression, name: str) -> Expression:
        kind = struct.type.field(name) if isinstance(struct.type, StructType) else None
        if kind is None:
            raise Unsupported(f"field {name}")
        return Expression(kind, lambda row: None if (found := struct.value(row)) is None else found.get(name), own=True)

    def element(self, container: Expression, index: Expression) -> Expression:
        if isinstance(container.type, MapType):
            return Expression(
                container.type.value, lambda row: (container.value(row) or {}).get(index.value(row)), own=True
            )

        def get(row: dict) -> object:
            values, at = container.value(row), index.value(row)
            if values is None or not at or abs(at) > len(values):
                return None
            return values[at - 1 if at > 0 else at]

        return Expression(container.type.element, get, own=True)

    def primary(self) -> Expression:
        kind, raw = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        word = self.peek()
        if kind == "string":
            self.at += 1
            text = raw[1:-1].replace("''", "'")
            return Expression(STRING, lambda _: text, literal=True)
        if kind == "number":
            self.at += 1
            return number(raw)
        if self.accept("("):
            inner = self.expression()
            self.take(")")
            return inner
        if self.accept("-"):
            inner = self.prefix()
            flip = negation(inner.type)
            return Expression(
                inner.type, lambda row: None if (v := inner.value(row)) is None else flip(v), literal=inner.literal
            )
        if word == "NOT":
            self.at += 1
            inner = self.expression(3)
            return Expression(BOOLEAN, lambda row: not inner.value(row))
        if word in ("TRUE", "FALSE", "NULL"):
            self.at += 1
            return Expression(
                NULL if word == "NULL" else BOOLEAN, lambda _: {"TRUE": True, "FALSE": False}.get(word), literal=True
            )
        if word == "CASE" or (word in ("CAST", "ARRAY", "MAP", "STRUCT") and self.peek(1) in ("(", "[")):
            return getattr(self, word.lower())()
        name = self.name()
        if self.accept("("):
            return self.call(name)
        if self.accept("."):
            name = self.name()
        if name in self.columns:
            return Expression(self.columns[name], lambda row: row[name])
        if name in UNITS:
            return Expression(INTERVAL_UNIT, lambda _: name)
        raise Unsupported(f"column {name}")

    def case(self) -> Expression:
        self.take("CASE")
        branches, otherwise = [], Expression(NULL, lambda _: None)
        while self.accept("WHEN"):
            condition = self.expression()
            self.take("THEN")
            branches.append((condition, self.expression()))
        if self.accept("ELSE"):
            otherwise = self.expression()
        self.take("END")

        def choose(row: dict) -> object:
            return next((value for condition, value in branches if condition.value(row)), otherwise).value(row)

        return Expression(branches[0][1].type, choose)

    def cast(self) -> Expression:
        self.take("CAST")
        self.take("(")
        inner = self.expression()
        self.take("AS")
        target = self.type()
        self.take(")")
        convert = cast_function(inner.type, target)
        return Expression(target, lambda row: convert(self.alone(inner)(row)), own=True)

    def array(self) -> Expression:
        self.take("ARRAY")
        self.take("[")
        items = self.listed("]")
        kind, values = united(items)
        return Expression(ArrayType(kind), lambda row: [self.alone(value)(row) for value in values], own=True)

    def map(self) -> Expression:
        self.take("MAP")
        self.take("(")
        pairs = [self.pair(self.expression)]
        while self.accept(","):
            pairs.append(self.pair(self.expression))
        self.take(")")
        key, keys = united([one for one, _ in pairs])
        kind, values = united([two for _, two in pairs])
        return Expression(
            MapType(key, kind),
            lambda row: {
                "null" if (name := k.value(row)) is None else name: self.alone(v)(row)
                for k, v in zip(keys, values, strict=True)
            },
            own=True,
        )

    def struct(self) -> Expression:
        self.take("STRUCT")
        self.take("(")
        pairs = [self.pair(self.name)]
        while self.accept(","):
            pairs.append(self.pair(self.name))
        self.take(")")
        kind = StructType.of([(name, value.type) for name, value in pairs])
        return Expression(kind, lambda row: {name: self.alone(value)(row) for name, value in pairs}, own=True)

    def pair(self, left: Callable) -> tuple:
        first = left()
        self.take(":=")
        return first, self.expression()

    def listed(self, end: str) -> list:
        found = []
        while not self.accept(end):
            found.append(self.argument())
            if self.peek() != end:
                self.take(",")
        return found

    def argument(self) -> object:
        names = self.lambda_names()
        if names is None:
            return self.expression()
        start, self_ = self.at, self
        end = self.skipped()

        def body(kinds: list[SqlType]) -> Expression:
            inner = Reader("", {**self_.columns, **dict(zip(names, kinds, strict=True))}, self_.errors)
            inner.tokens = self_.tokens[start:end]
            return inner.expression()

        self.at = end
        return names, body

    def lambda_names(self) -> list[str] | None:
        if self.peek(1) == "=>":
            names = [self.name()]
        else:
            ahead = 1
            while self.peek() == "(" and self.peek(ahead) not in (")", "(", ""):
                ahead += 1
            if self.peek() != "(" or self.peek(ahead) != ")" or self.peek(ahead + 1) != "=>":
                return None
            self.take("(")
            names = [self.name()]
            while self.accept(","):
                names.append(self.name())
            self.take(")")
        self.take("=>")
        return names

    def skipped(self) -> int:
        depth, at = 0, self.at
        while at < len(self.tokens):
            text = self.tokens[at][1] if self.tokens[at][0] == "op" else ""
            if depth == 0 and text in (",", ")", "]"):
                return at
            depth += (text in ("(", "[")) - (text in (")", "]"))
            at += 1
        return at

    def call(self, name: str) -> Expression:
        arguments = self.listed(")")
        if name in ("GREATEST", "LEAST"):
            first = next((a.type for a in arguments if a.type != NULL), NULL)
            arguments = [
                adapted(a, first) if a.type == STRING and a.literal and first != STRING else a for a in arguments
            ]
        bodies: dict[int, Expression] = {}
        kinds: list = []
        for index, argument in enumerate(arguments):
            if isinstance(argument, Expression):
                kinds.append(argument.type)
            else:
                names, body = argument

                def infer(given: list[SqlType], index: int = index, body: Callable = body) -> SqlType:
                    bodies[index] = body(given)
                    return bodies[index].type

                kinds.append(LambdaArgument(len(names), infer))
        bound = scalar_functions().resolve(name, kinds)
        call = bound.safe(self.errors)

        def run(row: dict) -> object:
            values = []
            for index, argument in enumerate(arguments):
                if isinstance(argument, Expression):
                    values.append((self.alone(argument) if argument.own else argument.value)(row))
                else:
                    names, inner = argument[0], bodies[index]
                    values.append(
                        lambda *given, names=names, inner=inner: inner.value(
                            {**row, **dict(zip(names, given, strict=True))}
                        )
                    )
            return call(*values)

        return Expression(bound.type, run, own=True)

    def alone(self, inner: Expression) -> Callable[[dict], object]:
        def run(row: dict) -> object:
            try:
                return inner.value(row)
            except (SqlValueError, ArithmeticError) as error:
                self.errors.report("expression", error)
                return None

        return run


def number(raw: str) -> Expression:
    if "e" in raw.lower():
        return Expression(DOUBLE, lambda _: float(raw), literal=True)
    if "." in raw:
        value = Decimal(raw)
        digits = value.as_tuple()
        scale = -digits.exponent
        return Expression(
            DecimalType(max(len(digits.digits), scale + (value < 1)), scale), lambda _: value, literal=True
        )
    whole = int(raw)
    return Expression(INTEGER if whole < 2**31 else BIGINT, lambda _: whole, literal=True)


def adapted(text: Expression, kind: SqlType) -> Expression:
    convert = cast_function(STRING, kind)
    if kind in (INTEGER, BIGINT):
        convert = lambda value: int(Decimal(value))  # noqa: E731
    return Expression(kind, lambda row: convert(text.value(row)), literal=True)


def united(items: list[Expression]) -> tuple[SqlType, list[Expression]]:
    family = common_type_of([item.type for item in items if not (item.type == STRING and item.literal)])
    if family in (NULL, STRING):
        kind = common_type_of([item.type for item in items])
    else:
        items = [adapted(item, family) if item.type == STRING else item for item in items]
        kind = family
    steps = [(item, widening(item.type, kind)) for item in items]
    return kind, [
        Expression(kind, (lambda row, i=item, s=step: s(i.value(row))) if step else item.value) for item, step in steps
    ]


def evaluate(
    text: str,
    columns: dict[str, SqlType] | None = None,
    row: dict | None = None,
    errors: EvaluationErrors | None = None,
) -> object:
    """The value of an expression; null where it cannot be computed."""
    reader = Reader(text, columns or {}, errors)
    expression = reader.expression()
    if reader.at != len(reader.tokens):
        raise Unsupported(f"{reader.peek()!r} after the expression")
    return reader.alone(expression)(row or {})


__all__ = ["TIMESTAMP", "Expression", "Reader", "SqlTypeError", "Unsupported", "evaluate"]
