"""Parsed expressions to typed ones: columns are found, functions bound, types checked, resolved and widened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any, TypeVar

from penstock.base.nearest_name import did_you_mean
from penstock.errors import SqlError
from penstock.sql.evaluate import typed as n
from penstock.sql.evaluate.typed import Constant, Convert, Entry, MakeArray, MakeMap, MakeStruct, Typed
from penstock.sql.functions import LambdaArgument
from penstock.sql.functions.aggregates import aggregate_functions
from penstock.sql.functions.patterns import Argument
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse.dialects import OTHER_FUNCTIONS, OTHER_TYPES
from penstock.sql.parse.expression_nodes import Node, children
from penstock.sql.parse.formatting import format_expression
from penstock.sql.parse.statement_nodes import UNIT_WORDS
from penstock.sql.parse.tokens import NOWHERE, TextPosition
from penstock.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL_UNIT,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    ArrayType,
    DecimalType,
    MapType,
    SqlType,
    SqlTypeError,
    SqlValueError,
    StructType,
)
from penstock.sql.types.conversions import cast, cast_function, common_type_of, parse_boolean
from penstock.sql.types.numbers import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN, parse_decimal
from penstock.sql.types.operators import arithmetic, comparison, distinct, java_name, negation
from penstock.sql.types.sql_type import base_name, is_numeric
from penstock.sql.types.texts import parse_timestamp, to_text

__all__ = [
    "aggregates_in",
    "calls_in",
    "columns_in",
    "nodes_in",
    "refused",
    "sql_type",
    "substitute",
    "type_expression",
]

Parsed = TypeVar("Parsed", bound=Node)


def nodes_in(expression: Node) -> Iterator[Node]:
    """Yield all nodes of a tree, each before those below it, from left to right."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(list(children(node)))


def calls_in(expression: Node, accepts: Callable[[str], bool]) -> tuple[x.CallNode, ...]:
    """Return the calls of functions of certain names, in the order of the text; each once, however often it is written.

    >>> from penstock.sql.parse import parse_expression
    >>> [call.name for call in calls_in(parse_expression("f(g(1)) + g(1)"), lambda name: name == "G")]
    ['G']
    """
    calls = {node: None for node in nodes_in(expression) if isinstance(node, x.CallNode) and accepts(node.name)}
    return tuple(calls)


def aggregates_in(
    expression: Node, is_aggregate: Callable[[str], bool] = lambda name: aggregate_functions().get(name) is not None
) -> tuple[x.CallNode, ...]:
    """Return the calls of aggregate functions in an expression, in the order of the text, each once.

    >>> from penstock.sql.parse import format_expression, parse_expression
    >>> [format_expression(call) for call in aggregates_in(parse_expression("SUM(a) / COUNT(*) + SUM(a)"))]
    ['SUM(A)', 'COUNT(*)']
    """
    return calls_in(expression, is_aggregate)


def columns_in(expression: Node) -> tuple[x.ColumnNode, ...]:
    """Return the columns that an expression names, each once, in the order of the text, without lambdas' parameters."""
    columns: dict[x.ColumnNode, None] = {}
    waiting: list[tuple[Node, frozenset[str]]] = [(expression, frozenset())]
    while waiting:
        node, bound = waiting.pop()
        if isinstance(node, x.ColumnNode) and (node.source or node.name not in bound):
            columns[node] = None
        if isinstance(node, x.LambdaNode):
            bound |= set(node.parameters)
        waiting += [(child, bound) for child in reversed(list(children(node)))]
    return tuple(columns)


def substitute(expression: Parsed, by: Mapping[Any, Node]) -> Parsed:
    """Return the expression with other nodes in place of certain subtrees, which are found by what they say.

    A replacement is not searched again, and takes the place (`at`) of the subtree.

    >>> from penstock.sql.parse import format_expression, parse_expression
    >>> total = parse_expression("SUM(a)")
    >>> format_expression(substitute(parse_expression("1 + SUM(a)"), {total: parse_expression("agg_0")}))
    '1 + AGG_0'
    """
    tree: Parsed = _substituted(expression, by)
    return tree


def _substituted(node: Any, by: Mapping[Any, Node]) -> Any:
    if isinstance(node, tuple):
        items = tuple(_substituted(item, by) for item in node)
        return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
    if not isinstance(node, Node):
        return node
    if (replacement := by.get(node)) is not None:
        return replace(replacement, at=node.at)
    old = {part.name: getattr(node, part.name) for part in fields(node) if part.name != "at"}
    new = {name: _substituted(value, by) for name, value in old.items()}
    return replace(node, **new) if any(new[name] is not old[name] for name in old) else node


# Errors with their place


def refused(message: str, at: TextPosition, hint: str = "") -> SqlError:
    """Return the error for a part of a statement, with the facts ``line``, ``column`` and ``offset``.

    >>> print(refused("Unknown column X.", TextPosition(2, 7, 30)))
    line 2:7: Unknown column X.
    """
    if at == NOWHERE:
        return SqlError(message, hint=hint)
    return SqlError(
        f"line {at.line}:{at.column}: {message}", hint=hint, line=at.line, column=at.column, offset=at.offset
    )


# Names of types

NAMES: dict[str, SqlType] = {
    "BOOLEAN": BOOLEAN,
    "INT": INTEGER,
    "INTEGER": INTEGER,
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "STRING": STRING,
    "VARCHAR": STRING,
    "BYTES": BYTES,
    "DATE": DATE,
    "TIME": TIME,
    "TIMESTAMP": TIMESTAMP,
}
DECIMALS = ("DECIMAL", "DEC", "NUMERIC")


def sql_type(node: x.TypeNode, custom: Mapping[str, SqlType] | None = None) -> SqlType:
    """Return the SQL type of a type as it is written.

    Args:
        node: The type.
        custom: The types of CREATE TYPE, by their names.

    Raises:
        SqlError: There is no type of a name, or its parameters are out of range.
    """
    custom_types = custom or {}
    try:
        return _resolved(node, custom_types)
    except SqlTypeError as error:
        raise refused(str(error), node.at) from error


def _resolved(node: x.TypeNode, custom: Mapping[str, SqlType]) -> SqlType:
    match node:
        case x.ArrayTypeNode(item):
            return ArrayType(_resolved(item, custom))
        case x.MapTypeNode(key, value):
            return MapType(_resolved(key, custom), _resolved(value, custom))
        case x.StructTypeNode(fields):
            return StructType.of([(field.name, _resolved(field.type, custom)) for field in fields])
    name = node.name.upper()
    if name in DECIMALS and len(node.parameters) == 2:
        precision, scale = node.parameters
        if isinstance(precision, int) and isinstance(scale, int):
            return DecimalType(precision, scale)
    if name in NAMES:
        return NAMES[name]
    if node.name in custom:
        return custom[node.name]
    if name in DECIMALS:
        raise refused(f"{name} takes a precision and a scale, such as DECIMAL(10, 2)", node.at)
    hint = OTHER_TYPES.get(name) or did_you_mean(node.name, (*NAMES, *DECIMALS, *custom))
    raise refused(f"Cannot resolve unknown type: {node.name}", node.at, hint)


# Types that are widened

Shown = Callable[[Typed], str]  # the text of an item, for messages
BOOLEANS = ("true", "yes", "false", "no")
HINT = "CAST one side to the type of the other."


def united(items: Sequence[Typed], shown: Shown) -> tuple[SqlType, tuple[Typed, ...]]:
    """Return the common type of items, and the items converted to it.

    Texts that are literals become what the first item is that is not null; numbers widen; structs unite their fields.

    Raises:
        SqlError: An item cannot have the type of the others.
    """
    first = next((item.type for item in items if item.type != NULL), NULL)
    fitted = [_fitted(item, first, shown) for item in items]
    kind = common_type_of(item.type for item in fitted)
    return kind, tuple(converted(item, kind) for item in fitted)


def converted(item: Typed, kind: SqlType) -> Typed:
    """Return the item as one of a type to which its own widens, or that unites its fields with others."""
    if item.type in (kind, NULL):
        return item
    if isinstance(item, Constant):
        return Constant(kind, cast(item.value, item.type, kind), at=item.at)
    return Convert(kind, item, at=item.at)


def fixed(item: Typed, kind: SqlType, shown: Shown) -> Typed:
    """Return a literal text as a constant of a type; all else as it is."""
    is_text = isinstance(item, Constant) and item.type == STRING and kind not in (STRING, NULL)
    return _fitted(item, kind, shown) if is_text else item


def _fitted(item: Typed, target: SqlType, shown: Shown) -> Typed:
    if item.type in (NULL, target):
        return item
    if isinstance(item, Constant) and STRING in (item.type, target):
        literal = _literal(item, target)
        if literal is not None:
            return literal
    match item, target:
        case MakeArray(), ArrayType(element):
            items = tuple(_fitted(part, element, shown) for part in item.items)
            kind, parts = _common(items)
            return replace(item, type=ArrayType(kind), items=parts)
        case MakeMap(), MapType(key, value):
            key_kind, keys = _common([_fitted(entry.key, key, shown) for entry in item.entries])
            kind, values = _common([_fitted(entry.value, value, shown) for entry in item.entries])
            entries = tuple(Entry(*pair) for pair in zip(keys, values, strict=True))
            return replace(item, type=MapType(key_kind, kind), entries=entries)
        case MakeStruct(StructType(fields)), StructType():
            parts = tuple(
                _fitted(part, target.field(field.name) or part.type, shown)
                for field, part in zip(fields, item.values, strict=True)
            )
            names = [field.name for field in fields]
            kind = StructType.of([(name, part.type) for name, part in zip(names, parts, strict=True)])
            item = replace(item, type=kind, values=parts)
    try:
        common_type_of((target, item.type))
    except SqlTypeError as error:
        raise refused(
            f"= does not compare {target} with {item.type}, the type of {shown(item)}", item.at, HINT
        ) from error
    return item


def _common(items: Sequence[Typed]) -> tuple[SqlType, tuple[Typed, ...]]:
    kind = common_type_of(item.type for item in items)
    return kind, tuple(converted(item, kind) for item in items)


def _literal(item: Constant, target: SqlType) -> Constant | None:
    """Return a literal as another type; ``None`` if there is no such adaptation."""
    if target == STRING:
        plain = is_numeric(item.type) or item.type == BOOLEAN
        return Constant(STRING, to_text(item.value, item.type), at=item.at) if plain else None
    try:
        type_and_value = _parsed(item.value, target)
    except SqlValueError as error:
        raise refused(f'the text "{item.value}" is not a value of type {target}.', item.at) from error
    return type_and_value and Constant(*type_and_value, at=item.at)


def _parsed(text: str, target: SqlType) -> tuple[SqlType, Any] | None:
    if target == BOOLEAN:
        if not text or not any(word.startswith(text.strip().lower()) for word in BOOLEANS):
            raise SqlValueError(f"{text!r} is not a boolean")
        return BOOLEAN, parse_boolean(text)
    if is_numeric(target):
        return _number(text)
    if target in (DATE, TIME, TIMESTAMP):
        return target, cast(text, STRING, target)
    return None


def _number(text: str) -> tuple[SqlType, Any]:
    number = parse_decimal(text)
    if text.strip().lstrip("+-").isdigit():
        whole = int(number)
        if INT_MIN <= whole <= INT_MAX:
            return INTEGER, whole
        if LONG_MIN <= whole <= LONG_MAX:
            return BIGINT, whole
    _, digits, exponent = number.as_tuple()
    scale = max(0, -int(exponent))
    whole_digits = max(1, len(digits) + int(exponent))
    return DecimalType(whole_digits + scale, scale), number.quantize(Decimal(1).scaleb(-scale))


def decimal_of(text: str) -> Constant:
    """Return a literal with a point: its digits are precision and scale, with at least one digit before the point.

    >>> str(decimal_of("0.005").type), str(decimal_of("-1.50").type)
    ('DECIMAL(4, 3)', 'DECIMAL(3, 2)')
    """
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale + 1)
    return Constant(DecimalType(precision, scale), number or abs(number))


# Expressions

# Columns of milliseconds that a text of a date compares with.
TIME_COLUMNS = frozenset({"ROWTIME", "WINDOWSTART", "WINDOWEND"})
TIMES = (DATE, TIME, TIMESTAMP)
ADAPTING = ("GREATEST", "LEAST")


def type_expression(
    expression: x.Expression,
    scope: n.Scope,
    functions: n.Functions,
    custom: Mapping[str, SqlType] | None = None,
) -> n.Typed:
    """Type an expression.

    Args:
        expression: The expression as it is parsed; aggregates and table functions in it are replaced by columns before.
        scope: Its columns.
        functions: The scalar functions.
        custom: The types of CREATE TYPE, by name.

    Raises:
        SqlError: A column, function or field is not there, or types do not fit; its facts name the place.
    """
    return _Typer(scope, functions, custom or {}).typed(expression)


class _Typer:
    def __init__(self, scope: n.Scope, functions: n.Functions, custom: Mapping[str, SqlType]) -> None:
        self._scope, self._functions, self._custom = scope, functions, custom
        self._parameters: dict[str, n.Parameter] = {}
        self._numbered = 0
        self._texts: dict[TextPosition, str] = {}

    def typed(self, node: Any) -> n.Typed:
        try:
            typed: n.Typed = _RULES[type(node)](self, node)
        except SqlTypeError as error:
            raise refused(f"{error}", node.at) from error
        if typed.at == NOWHERE:
            typed = replace(typed, at=node.at)
        self._texts[typed.at] = _text(node)
        return typed

    def all(self, nodes: Sequence[Any]) -> tuple[n.Typed, ...]:
        return tuple(self.typed(node) for node in nodes)

    def shown(self, item: n.Typed) -> str:
        return self._texts.get(item.at, "")

    def condition(self, node: Any, what: str) -> n.Typed:
        typed = self.typed(node)
        if typed.type != BOOLEAN:
            raise refused(f"{what} must be BOOLEAN, and {_text(node)} is {typed.type}", node.at)
        return typed

    def column(self, node: x.ColumnNode) -> n.Typed:
        if node.source is None and node.name in self._parameters:
            return self._parameters[node.name]
        return self._scope.column(node.source, node.name, node.at)

    # Operators ------------------------------------------------------------------------------------------------------

    def arithmetic(self, node: x.ArithmeticNode) -> n.Typed:
        if node.operator == "||":
            return self.call(x.CallNode("CONCAT", (node.left, node.right), at=node.at))
        left, right = self.all((node.left, node.right))
        try:
            kind = arithmetic(node.operator, left.type, right.type).type
        except SqlTypeError as error:
            raise refused(f"Error processing expression: ({_text(node)}). {error}", node.at) from error
        return n.Arithmetic(kind, node.operator, left, right, at=node.at)

    def unary(self, node: x.Unary) -> n.Typed:
        operand = self.typed(node.operand)
        if not is_numeric(operand.type):
            raise refused(f"The sign {node.operator} does not take {base_name(operand.type)}", node.at)
        if node.operator == "+":
            return operand
        negation(operand.type)
        return n.Negative(operand.type, operand, at=node.at)

    def comparison(self, node: x.ComparisonNode) -> n.Typed:
        left, right = self.sides(node.left, node.right)
        self.check(node.operator, (node.left, left), (node.right, right))
        return n.Comparison(BOOLEAN, node.operator, left, right, at=node.at)

    def sides(self, left: Any, right: Any) -> tuple[n.Typed, n.Typed]:
        """Return both sides of a comparison; a literal text becomes what it is compared with."""
        for one, two in ((left, right), (right, left)):
            if isinstance(one, x.ColumnNode) and one.name in TIME_COLUMNS and isinstance(two, x.StringLiteral):
                column, moment = self.typed(one), self.moment(two)
                return (column, moment) if one is left else (moment, column)
        first, second = self.typed(left), self.typed(right)
        return _as_time(first, second.type), _as_time(second, first.type)

    def moment(self, node: x.StringLiteral) -> n.Typed:
        try:
            return n.Constant(BIGINT, parse_timestamp(node.value), at=node.at)
        except SqlValueError as error:
            raise refused(f"Failed to parse timestamp '{node.value}': {error}", node.at) from error

    def check(self, operator: str, left: tuple[Any, n.Typed], right: tuple[Any, n.Typed]) -> None:
        (one, first), (two, second) = left, right
        try:
            if operator.startswith("IS"):
                distinct(first.type, second.type)
            else:
                comparison(operator, first.type, second.type)
        except SqlTypeError as error:
            if NULL in (first.type, second.type):
                message = f"NULL cannot be compared: {_text(one)} {operator} {_text(two)}"
                raise refused(message, one.at, "IS NULL tests for null, IS NOT NULL for the rest.") from error
            named = f"{_text(one)} ({first.type}) and {_text(two)} ({second.type})"
            raise refused(f"{java_name(operator)} does not compare {named}.", one.at) from error

    def between(self, node: x.BetweenNode) -> n.Typed:
        operand, low = self.sides(node.operand, node.low)
        _, high = self.sides(node.operand, node.high)
        self.check(">=", (node.operand, operand), (node.low, low))
        self.check("<=", (node.operand, operand), (node.high, high))
        return _maybe_not(n.Between(BOOLEAN, operand, low, high, at=node.at), negated=node.negated)

    def in_(self, node: x.InNode) -> n.Typed:
        if isinstance(node.operand, x.NullLiteral):
            raise refused("NULL cannot be compared: NULL IN (...)", node.at)
        _, (operand, *items) = united(self.all((node.operand, *node.items)), self.shown)
        return _maybe_not(n.In(BOOLEAN, operand, tuple(items), at=node.at), negated=node.negated)

    def like(self, node: x.LikeNode) -> n.Typed:
        operand, pattern = self.all((node.operand, node.pattern))
        for part, typed_part in ((node.operand, operand), (node.pattern, pattern)):
            if typed_part.type != STRING:
                raise refused(f"LIKE takes STRING, and {_text(part)} is {typed_part.type}", part.at)
        return _maybe_not(n.Like(BOOLEAN, operand, pattern, node.escape, at=node.at), negated=node.negated)

    def is_null(self, node: x.IsNullNode) -> n.Typed:
        return _maybe_not(n.IsNull(BOOLEAN, self.typed(node.operand), at=node.at), negated=node.negated)

    def not_(self, node: x.NotNode) -> n.Typed:
        return n.Not(BOOLEAN, self.condition(node.operand, "The operand of NOT"), at=node.at)

    def logical(self, node: x.LogicalNode) -> n.Typed:
        operands = tuple(self.condition(part, f"An operand of {node.operator}") for part in node.operands)
        return n.Logical(BOOLEAN, node.operator, operands, at=node.at)

    def case(self, node: x.CaseNode) -> n.Typed:
        branches = [(self.condition(when.condition, "WHEN"), self.typed(when.result)) for when in node.branches]
        otherwise = n.Constant(NULL, None) if node.otherwise is None else self.typed(node.otherwise)
        kinds = [result.type for _, result in branches]
        distinct_kinds = list(dict.fromkeys(kind for kind in kinds if kind != NULL))
        if not distinct_kinds and otherwise.type == NULL:
            raise refused("Every branch of this CASE is NULL, so it has no type", node.at)
        if len(distinct_kinds) > 1:
            message = "CASE has 'THEN' clauses of several types."
            raise refused(f"{message} Found {', '.join(map(str, distinct_kinds))}", node.at, "Use CAST.")
        kind = distinct_kinds[0] if distinct_kinds else otherwise.type
        if otherwise.type not in (kind, NULL):
            message = "Invalid Case expression. Type for the default clause should be the same as for 'THEN' clauses."
            raise refused(f"{message} THEN type: {kind}. DEFAULT type: {otherwise.type}.", node.at, "Use CAST.")
        return n.Case(kind, tuple(branches), otherwise, at=node.at)

    # Values of several parts ----------------------------------------------------------------------------------------

    def cast(self, node: x.CastNode) -> n.Typed:
        operand, kind = self.typed(node.operand), sql_type(node.type, self._custom)
        cast_function(operand.type, kind)
        return n.TypedCast(kind, operand, at=node.at)

    def array(self, node: x.ArrayLiteral) -> n.Typed:
        if not node.items:
            raise refused("The constructor of an ARRAY is empty and needs an element", node.at)
        kind, items = united(self.all(node.items), self.shown)
        if kind == NULL:
            raise refused("All elements of the ARRAY are NULL", node.at, "Cast one to the type meant.")
        return n.MakeArray(ArrayType(kind), items, at=node.at)

    def map(self, node: x.MapLiteral) -> n.Typed:
        if not node.entries:
            raise refused("The constructor of a MAP is empty and needs a pair of key and value", node.at)
        key, keys = united(self.all([entry.key for entry in node.entries]), self.shown)
        kind, values = united(self.all([entry.value for entry in node.entries]), self.shown)
        for united_type, what in ((key, "keys"), (kind, "values")):
            if united_type == NULL:
                raise refused(f"Cannot construct a map with all NULL {what}", node.at, "Cast one to the type meant.")
        entries = tuple(n.Entry(*pair) for pair in zip(keys, values, strict=True))
        return n.MakeMap(MapType(key, kind), entries, at=node.at)

    def struct(self, node: x.StructLiteral) -> n.Typed:
        values = self.all([field.value for field in node.fields])
        kind = StructType.of([(field.name, value.type) for field, value in zip(node.fields, values, strict=True)])
        return n.MakeStruct(kind, values, at=node.at)

    def subscript(self, node: x.Subscript) -> n.Typed:
        base = self.typed(node.base)
        index = self.typed(node.index)
        match base.type:
            case ArrayType(kind) if index.type in (INTEGER, BIGINT):
                return n.Element(kind, base, index, at=node.at)
            case MapType(key, kind) if index.type in (key, NULL):
                return n.Element(kind, base, index, at=node.at)
            case ArrayType() | MapType():
                raise refused(f"{_text(node.base)} is {base.type}, which takes no index of {index.type}", node.index.at)
        raise refused(f"{_text(node.base)} is {base.type}: only arrays and maps take an index", node.at)

    def field(self, node: x.FieldAccess) -> n.Typed:
        base = self.typed(node.base)
        if not isinstance(base.type, StructType):
            raise refused(f"{_text(node.base)} is {base.type}: only structs have fields", node.at)
        kind = base.type.field(node.name)
        if kind is None:
            hint = did_you_mean(node.name, [field.name for field in base.type.fields]) or f"It is {base.type}."
            raise refused(f"Could not find field '{node.name}' in '{_text(node.base)}'.", node.at, hint)
        return n.TypedField(kind, base, node.name, at=node.at)

    # Calls ----------------------------------------------------------------------------------------------------------

    def call(self, node: x.CallNode) -> n.Typed:
        nodes = [part for part in node.arguments if not isinstance(part, x.Star)]
        units = self.unit_places(node.name)
        arguments: list[n.Typed | x.LambdaNode] = [
            part
            if isinstance(part, x.LambdaNode)
            else _unit(part)
            if at in units and _is_unit(part)
            else self.typed(part)
            for at, part in enumerate(nodes)
        ]
        if node.name.upper() in ADAPTING:
            first = next((part.type for part in arguments if isinstance(part, n.Typed) and part.type != NULL), NULL)
            arguments = [fixed(part, first, self.shown) if isinstance(part, n.Typed) else part for part in arguments]
        bodies: dict[int, n.Lambda] = {}
        kinds = [self.argument(at, part, bodies) for at, part in enumerate(arguments)]
        try:
            bound = self._functions.resolve(node.name, kinds)
        except SqlTypeError as error:
            hint = ""
            if self._functions.get(node.name) is None:
                hint = OTHER_FUNCTIONS.get(node.name.upper()) or did_you_mean(node.name, self._functions.names)
            raise refused(str(error), node.at, hint) from error
        parts = tuple(part if isinstance(part, n.Typed) else bodies[at] for at, part in enumerate(arguments))
        return n.Call(bound.type, bound.name, parts, bound, at=node.at)

    def argument(self, at: int, part: n.Typed | x.LambdaNode, bodies: dict[int, n.Lambda]) -> Argument:
        if isinstance(part, n.Typed):
            return part.type

        def infer(kinds: Sequence[SqlType]) -> SqlType:
            bodies[at] = self.lambda_(part, kinds)
            return bodies[at].type

        return LambdaArgument(len(part.parameters), infer)

    def lambda_(self, node: x.LambdaNode, kinds: Sequence[SqlType]) -> n.Lambda:
        if len(set(node.parameters)) < len(node.parameters):
            raise refused("A lambda has two parameters of one name", node.at)
        outer = self._parameters
        parameters = tuple(self.parameter(*pair) for pair in zip(node.parameters, kinds, strict=True))
        self._parameters = outer | {parameter.name: parameter for parameter in parameters}
        try:
            body = self.typed(node.body)
        finally:
            self._parameters = outer
        return n.Lambda(body.type, parameters, body, at=node.at)

    def parameter(self, name: str, kind: SqlType) -> n.Parameter:
        self._numbered += 1
        return n.Parameter(kind, name, self._numbered)

    def unit_places(self, name: str) -> frozenset[int]:
        """Return the places among a function's arguments where words such as DAYS are not columns."""
        function = self._functions.get(name)
        signatures = () if function is None else function.signatures
        pairs = (pair for signature in signatures for pair in enumerate(signature.parameters))
        return frozenset(at for at, parameter in pairs if parameter.type == INTERVAL_UNIT)

    def misplaced(self, node: Any) -> n.Typed:
        raise refused(f"{type(node).__name__.removesuffix('Node').lower()} stands where a value is expected", node.at)


def _text(node: Any) -> str:
    return "*" if isinstance(node, x.Star) else format_expression(node)


def _is_unit(node: Any) -> bool:
    return isinstance(node, x.ColumnNode) and node.source is None and node.name in UNIT_WORDS


def _unit(node: Any) -> n.Typed:
    return n.Constant(INTERVAL_UNIT, node.name, at=node.at)


def _maybe_not(typed: n.Typed, *, negated: bool) -> n.Typed:
    return n.Not(BOOLEAN, typed, at=typed.at) if negated else typed


def _as_time(item: n.Typed, other: SqlType) -> n.Typed:
    """Return a literal text that is compared with a time as such a time; one that is none fails row by row."""
    if not (isinstance(item, n.Constant) and item.type == STRING and other in TIMES):
        return item
    try:
        return n.Constant(other, cast(item.value, STRING, other), at=item.at)
    except SqlValueError:
        return item


def _whole(_: _Typer, node: x.IntegerLiteral) -> n.Typed:
    return n.Constant(INTEGER if INT_MIN <= node.value <= INT_MAX else BIGINT, node.value, at=node.at)


def _decimal(_: _Typer, node: x.DecimalLiteral) -> n.Typed:
    number = decimal_of(node.text)
    return n.Constant(number.type, number.value, at=node.at)


_RULES: dict[type, Callable[[_Typer, Any], n.Typed]] = {
    x.NullLiteral: lambda _, node: n.Constant(NULL, None, at=node.at),
    x.BooleanLiteral: lambda _, node: n.Constant(BOOLEAN, node.value, at=node.at),
    x.IntegerLiteral: _whole,
    x.DecimalLiteral: _decimal,
    x.DoubleLiteral: lambda _, node: n.Constant(DOUBLE, float(node.text), at=node.at),
    x.StringLiteral: lambda _, node: n.Constant(STRING, node.value, at=node.at),
    x.ColumnNode: _Typer.column,
    x.Subscript: _Typer.subscript,
    x.FieldAccess: _Typer.field,
    x.CallNode: _Typer.call,
    x.ArrayLiteral: _Typer.array,
    x.MapLiteral: _Typer.map,
    x.StructLiteral: _Typer.struct,
    x.CastNode: _Typer.cast,
    x.CaseNode: _Typer.case,
    x.Unary: _Typer.unary,
    x.ArithmeticNode: _Typer.arithmetic,
    x.ComparisonNode: _Typer.comparison,
    x.BetweenNode: _Typer.between,
    x.InNode: _Typer.in_,
    x.LikeNode: _Typer.like,
    x.IsNullNode: _Typer.is_null,
    x.NotNode: _Typer.not_,
    x.LogicalNode: _Typer.logical,
    x.LambdaNode: _Typer.misplaced,
    x.Star: _Typer.misplaced,
}
