"""Expressions, types, statements and scripts as canonical text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.expression_nodes import ArrayTypeNode, Expression, MapTypeNode, StructTypeNode, TypeNode
from penstock.sql.parse.expressions import NOT, POSTFIX, POWERS, PREDICATE, SIGN, SUM
from penstock.sql.parse.scripts import Parsed
from penstock.sql.parse.statement_nodes import (
    AllColumns,
    AllFields,
    Duration,
    GroupingClause,
    JoinClause,
    Ordering,
    Query,
    Relation,
    SelectItem,
    Subquery,
    WindowClause,
    Within,
)
from penstock.sql.parse.tokens import quoted

__all__ = ["format_expression", "format_script", "format_statement", "format_type", "quoted_string"]

# Expressions and types

PRIMARY = POSTFIX + 1


def format_expression(node: x.Expression | x.LambdaNode | x.Star, floor: int = 0) -> str:
    """Return an expression, in brackets if it binds less than ``floor``.

    >>> from penstock.sql.parse import parse_expression
    >>> format_expression(parse_expression("((a+b))*c != 1 and not (d is null)"))
    '(A + B) * C <> 1 AND NOT D IS NULL'
    """
    text = _EXPRESSION_RULES[type(node)](node)
    return f"({text})" if floor and _power(node) < floor else text


def format_type(node: TypeNode) -> str:
    """Return a type."""
    if isinstance(node, ArrayTypeNode):
        return f"ARRAY<{format_type(node.item)}>"
    if isinstance(node, MapTypeNode):
        return f"MAP<{format_type(node.key)}, {format_type(node.value)}>"
    if isinstance(node, StructTypeNode):
        return f"STRUCT<{', '.join(f'{quoted(f.name)} {format_type(f.type)}' for f in node.fields)}>"
    parameters = f"({', '.join(map(str, node.parameters))})" if node.parameters else ""
    return quoted(node.name) + parameters


def quoted_string(text: str) -> str:
    """Return a string as it is written in a statement.

    >>> quoted_string("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def _power(node: x.Expression | x.LambdaNode | x.Star) -> int:
    if isinstance(node, x.ArithmeticNode):
        return POWERS[node.operator]
    if isinstance(node, x.LogicalNode):
        return POWERS[node.operator]
    if isinstance(node, x.IntegerLiteral):
        return SIGN if node.value < 0 else PRIMARY
    if isinstance(node, x.DecimalLiteral | x.DoubleLiteral):
        return SIGN if node.text.startswith("-") else PRIMARY
    return _POWERS.get(type(node), PRIMARY)


def _null(_: x.NullLiteral) -> str:
    return "NULL"


def _boolean(node: x.BooleanLiteral) -> str:
    return "TRUE" if node.value else "FALSE"


def _integer(node: x.IntegerLiteral) -> str:
    return str(node.value)


def _number(node: x.DecimalLiteral | x.DoubleLiteral) -> str:
    return node.text


def _string(node: x.StringLiteral) -> str:
    return quoted_string(node.value)


def _column_name(node: x.ColumnNode) -> str:
    return f"{quoted(node.source)}.{quoted(node.name)}" if node.source is not None else quoted(node.name)


def _subscript(node: x.Subscript) -> str:
    return f"{format_expression(node.base, POSTFIX)}[{format_expression(node.index)}]"


def _field_access(node: x.FieldAccess) -> str:
    return f"{format_expression(node.base, POSTFIX)}->{quoted(node.name)}"


def _star(_: x.Star) -> str:
    return "*"


def _lambda(node: x.LambdaNode) -> str:
    names = ", ".join(map(quoted, node.parameters))
    return f"{names if len(node.parameters) == 1 else f'({names})'} => {format_expression(node.body)}"


def _call(node: x.CallNode) -> str:
    return f"{quoted(node.name)}({', '.join(map(format_expression, node.arguments))})"


def _array(node: x.ArrayLiteral) -> str:
    return f"ARRAY[{', '.join(map(format_expression, node.items))}]"


def _map(node: x.MapLiteral) -> str:
    return f"MAP({', '.join(f'{format_expression(e.key)} := {format_expression(e.value)}' for e in node.entries)})"


def _struct(node: x.StructLiteral) -> str:
    return f"STRUCT({', '.join(f'{quoted(f.name)} := {format_expression(f.value)}' for f in node.fields)})"


def _cast(node: x.CastNode) -> str:
    return f"CAST({format_expression(node.operand)} AS {format_type(node.type)})"


def _case(node: x.CaseNode) -> str:
    parts = [f"WHEN {format_expression(b.condition)} THEN {format_expression(b.result)}" for b in node.branches]
    if node.otherwise is not None:
        parts.append(f"ELSE {format_expression(node.otherwise)}")
    return f"CASE {' '.join(parts)} END"


def _unary(node: x.Unary) -> str:
    # Two signs could read as a comment, and a sign before a number belongs to the number.
    signed = isinstance(node.operand, x.Unary | x.IntegerLiteral | x.DecimalLiteral | x.DoubleLiteral)
    return node.operator + format_expression(node.operand, PRIMARY + 1 if signed else SIGN)


def _arithmetic(node: x.ArithmeticNode) -> str:
    power = POWERS[node.operator]
    return f"{format_expression(node.left, power)} {node.operator} {format_expression(node.right, power + 1)}"


def _comparison(node: x.ComparisonNode) -> str:
    return f"{_operand(node.left)} {node.operator} {_operand(node.right)}"


def _between(node: x.BetweenNode) -> str:
    return f"{_operand(node.operand)} {_not(node.negated)}BETWEEN {_operand(node.low)} AND {_operand(node.high)}"


def _in(node: x.InNode) -> str:
    return f"{_operand(node.operand)} {_not(node.negated)}IN ({', '.join(map(format_expression, node.items))})"


def _like(node: x.LikeNode) -> str:
    escape = f" ESCAPE {quoted_string(node.escape)}" if node.escape is not None else ""
    return f"{_operand(node.operand)} {_not(node.negated)}LIKE {_operand(node.pattern)}{escape}"


def _is_null(node: x.IsNullNode) -> str:
    return f"{_operand(node.operand)} IS {_not(node.negated)}NULL"


def _operand(node: x.Expression) -> str:
    return format_expression(node, SUM)


def _not(negated: object) -> str:
    return "NOT " if negated else ""


def _negation(node: x.NotNode) -> str:
    return f"NOT {format_expression(node.operand, NOT)}"


def _logical(node: x.LogicalNode) -> str:
    power = POWERS[node.operator]
    return f" {node.operator} ".join(format_expression(operand, power + 1) for operand in node.operands)


_POWERS: dict[type, int] = {
    x.Unary: SIGN,
    x.ComparisonNode: PREDICATE,
    x.BetweenNode: PREDICATE,
    x.InNode: PREDICATE,
    x.LikeNode: PREDICATE,
    x.IsNullNode: PREDICATE,
    x.NotNode: NOT,
    x.Subscript: POSTFIX,
    x.FieldAccess: POSTFIX,
}
_EXPRESSION_RULES: dict[type, Callable[[Any], str]] = {
    x.NullLiteral: _null,
    x.BooleanLiteral: _boolean,
    x.IntegerLiteral: _integer,
    x.DecimalLiteral: _number,
    x.DoubleLiteral: _number,
    x.StringLiteral: _string,
    x.ColumnNode: _column_name,
    x.Subscript: _subscript,
    x.FieldAccess: _field_access,
    x.Star: _star,
    x.LambdaNode: _lambda,
    x.CallNode: _call,
    x.ArrayLiteral: _array,
    x.MapLiteral: _map,
    x.StructLiteral: _struct,
    x.CastNode: _cast,
    x.CaseNode: _case,
    x.Unary: _unary,
    x.ArithmeticNode: _arithmetic,
    x.ComparisonNode: _comparison,
    x.BetweenNode: _between,
    x.InNode: _in,
    x.LikeNode: _like,
    x.IsNullNode: _is_null,
    x.NotNode: _negation,
    x.LogicalNode: _logical,
}


# Queries

WIDTH = 100  # a list that is longer has an item on each line


def format_query(query: Query, indent: int = 0) -> str:
    """Return a query whose lines behind the first begin with so many blanks."""
    lines = []
    for index, cte in enumerate(query.ctes):
        begin = "WITH " if index == 0 else ""
        comma = "," if index < len(query.ctes) - 1 else ""
        lines.append(f"{begin}{quoted(cte.name)} AS {_bracketed(cte.query, indent)}{comma}")
    lines.append(joined("SELECT ", [_item(item) for item in query.items], indent))
    lines.append(f"FROM {_relation(query.source, indent)}")
    lines += [_join(join, indent) for join in query.joins]
    if query.window is not None:
        lines.append(_window(query.window))
    if query.where is not None:
        lines.append(f"WHERE {format_expression(query.where)}")
    if query.group_by is not None:
        lines.append(f"GROUP BY {_grouping(query.group_by)}")
    if query.partition_by is not None:
        lines.append(f"PARTITION BY {_grouping(query.partition_by)}")
    if query.having is not None:
        lines.append(f"HAVING {format_expression(query.having)}")
    if query.order_by:
        lines.append(f"ORDER BY {', '.join(map(_ordering, query.order_by))}")
    if query.emit is not None:
        idle = "" if query.idle is None else f" AFTER {format_duration(query.idle)} IDLE"
        lines.append(f"EMIT {query.emit}{idle}")
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit}")
    if query.offset is not None:
        lines.append(f"OFFSET {query.offset}")
    return f"\n{' ' * indent}".join(lines)


def joined(start: str, items: Sequence[str], indent: int, end: str = "") -> str:
    """Return items with commas between them, in one line if they fit, else each on a line of its own."""
    line = f"{start}{', '.join(items)}{end}"
    if indent + len(line) <= WIDTH or len(items) == 1:
        return line
    deeper = f"\n{' ' * (indent + 2)}"
    last = f"\n{' ' * indent}{end}" if end else ""
    return f"{start.rstrip()}{deeper}{f',{deeper}'.join(items)}{last}"


def format_duration(duration: Duration) -> str:
    """Return a duration."""
    return f"{duration.amount} {duration.unit}{'' if duration.amount == 1 else 'S'}"


def _bracketed(query: Query, indent: int) -> str:
    blanks = " " * indent
    return f"(\n{blanks}  {format_query(query, indent + 2)}\n{blanks})"


def _item(item: SelectItem) -> str:
    if isinstance(item, AllColumns):
        return "*" if item.source is None else f"{quoted(item.source)}.*"
    if isinstance(item, AllFields):
        return f"{format_expression(item.base)}->*"
    return format_expression(item.expression) + _alias(item.alias)


def _alias(alias: str | None) -> str:
    return "" if alias is None else f" AS {quoted(alias)}"


def _relation(relation: Relation, indent: int) -> str:
    if isinstance(relation, Subquery):
        return f"{_bracketed(relation.query, indent)} AS {quoted(relation.alias)}"
    return quoted(relation.name) + _alias(relation.alias)


def _join(join: JoinClause, indent: int) -> str:
    kind = "" if join.kind == "INNER" else f"{join.kind} "
    within = f" {_within(join.within)}" if join.within is not None else ""
    return f"{kind}JOIN {_relation(join.right, indent)}{within} ON {format_expression(join.condition)}"


def _within(within: Within) -> str:
    before, after = format_duration(within.before), format_duration(within.after)
    span = before if before == after else f"({before}, {after})"
    return f"WITHIN {span}{'' if within.grace is None else f' GRACE PERIOD {format_duration(within.grace)}'}"


def _window(window: WindowClause) -> str:
    parts = [("" if window.kind == "SESSION" else "SIZE ") + format_duration(window.size)]
    if window.advance is not None:
        parts.append(f"ADVANCE BY {format_duration(window.advance)}")
    if window.retention is not None:
        parts.append(f"RETENTION {format_duration(window.retention)}")
    if window.grace is not None:
        parts.append(f"GRACE PERIOD {format_duration(window.grace)}")
    return f"WINDOW {window.kind} ({', '.join(parts)})"


def _grouping(grouping: GroupingClause) -> str:
    return ", ".join(format_expression(item, SUM) for item in grouping.expressions)


def _ordering(ordering: Ordering) -> str:
    nulls = f" NULLS {ordering.nulls}" if ordering.nulls else ""
    return f"{format_expression(ordering.expression)}{' DESC' if ordering.descending else ''}{nulls}"


# Statements and scripts


def format_statement(statement: s.Statement) -> str:
    """Return a statement without its semicolon; parsed again, it is equal to this one.

    >>> from penstock.sql.parse import parse_statement
    >>> print(format_statement(parse_statement("create stream s as select a, b x from t where a>1 emit changes;")))
    CREATE STREAM S AS
      SELECT A, B AS X
      FROM T
      WHERE A > 1
      EMIT CHANGES
    """
    return _STATEMENT_RULES[type(statement)](statement)


def format_script(script: Iterable[Parsed]) -> str:
    """Return a script: each statement with its comments before it, and an empty line between them."""
    return "\n\n".join(
        "\n".join([*(comment.rstrip() for comment in parsed.comments), f"{format_statement(parsed.statement)};"])
        for parsed in script
    )


def _create_source(node: s.CreateSource) -> str:
    columns = [_column(column) for column in node.columns]
    read_only = "SOURCE " if node.read_only else ""
    head = f"{_create(node)}{read_only}{node.kind} {_named(node)}"
    if columns:
        head = joined(f"{head} (", columns, 0, ")")
    return head + _properties(node.properties)


def _create_as(node: s.CreateAs) -> str:
    head = f"{_create(node)}{node.kind} {_named(node)}{_properties(node.properties)} AS"
    return f"{head}\n  {format_query(node.query, 2)}"


def _create(node: s.CreateSource | s.CreateAs) -> str:
    return "CREATE OR REPLACE " if node.or_replace else "CREATE "


def _named(node: s.CreateSource | s.CreateAs | s.CreateType | s.CreateConnector) -> str:
    return ("IF NOT EXISTS " if node.if_not_exists else "") + quoted(node.name)


def _dropped(node: s.DropSource | s.DropType | s.DropConnector) -> str:
    return ("IF EXISTS " if node.if_exists else "") + quoted(node.name)


def _column(column: s.ColumnDefinition) -> str:
    role = "" if column.role == "VALUE" else f" {column.role}"
    header = f"({quoted_string(column.header)})" if column.header is not None else ""
    return f"{quoted(column.name)} {format_type(column.type)}{role}{header}"


def _properties(properties: Sequence[s.Property]) -> str:
    if not properties:
        return ""
    return joined(" WITH (", [f"{_property_name(p.name)} = {format_expression(p.value)}" for p in properties], 0, ")")


def _property_name(name: str) -> str:
    text = quoted(name)
    return text if text == name else quoted_string(name)


def _insert_into(node: s.InsertInto) -> str:
    return f"INSERT INTO {quoted(node.name)}{_properties(node.properties)}\n  {format_query(node.query, 2)}"


def _insert_values(node: s.InsertValues) -> str:
    return f"INSERT INTO {quoted(node.name)}{_names(node.columns)} VALUES {_values(node.values)}"  # noqa: S608 (nothing runs it)


def _names(names: Sequence[str]) -> str:
    return f" ({', '.join(map(quoted, names))})" if names else ""


def _values(values: Sequence[Expression]) -> str:
    return f"({', '.join(map(format_expression, values))})"


def _drop_source(node: s.DropSource) -> str:
    return f"DROP {node.kind} {_dropped(node)}{' DELETE TOPIC' if node.delete_topic else ''}"


def _alter_source(node: s.AlterSource) -> str:
    added = [f"ADD COLUMN {quoted(column.name)} {format_type(column.type)}" for column in node.columns]
    return joined(f"ALTER {node.kind} {quoted(node.name)} ", added, 0)


def _alter_system(node: s.AlterSystem) -> str:
    return f"ALTER SYSTEM {quoted_string(node.name)} = {quoted_string(node.value)}"


def _create_type(node: s.CreateType) -> str:
    return f"CREATE TYPE {_named(node)} AS {format_type(node.type)}"


def _drop_type(node: s.DropType) -> str:
    return f"DROP TYPE {_dropped(node)}"


def _create_connector(node: s.CreateConnector) -> str:
    return f"CREATE {node.kind} CONNECTOR {_named(node)}{_properties(node.properties) or ' WITH ()'}"


def _drop_connector(node: s.DropConnector) -> str:
    return f"DROP CONNECTOR {_dropped(node)}"


def _steer(node: s.Steer) -> str:
    return f"{node.action} {'ALL' if node.query_id is None else quoted(node.query_id)}"


def _show(node: s.Show) -> str:
    return f"SHOW {'ALL ' if node.internal else ''}{node.what}{_extended(node)}"


def _describe(node: s.Describe) -> str:
    name = f"`{node.name}`" if node.kind == "SOURCE" and node.name == "TABLES" else quoted(node.name)
    return f"DESCRIBE {'' if node.kind == 'SOURCE' else f'{node.kind} '}{name}{_extended(node)}"


def _describe_all(node: s.DescribeAll) -> str:
    return f"DESCRIBE {node.what}{_extended(node)}"


def _extended(node: s.Show | s.Describe | s.DescribeAll) -> str:
    return " EXTENDED" if node.extended else ""


def _explain(node: s.Explain) -> str:
    subject = node.subject
    return f"EXPLAIN {quoted(subject) if isinstance(subject, str) else format_statement(subject)}"


def _topic(name: str) -> str:
    return name if quoted(name.upper()) == name.upper() and name.isascii() else quoted_string(name)


def _print(node: s.Print) -> str:
    text = f"PRINT {_topic(node.topic)}{' FROM BEGINNING' if node.from_beginning else ''}"
    interval = "" if node.interval is None else f" INTERVAL {node.interval}"
    return text + interval + ("" if node.limit is None else f" LIMIT {node.limit}")


def _set(node: s.SetProperty) -> str:
    return f"SET {quoted_string(node.name)} = {quoted_string(node.value)}"


def _unset(node: s.UnsetProperty) -> str:
    return f"UNSET {quoted_string(node.name)}"


def _define(node: s.Define) -> str:
    return f"DEFINE {quoted(node.name)} = {quoted_string(node.value)}"


def _undefine(node: s.Undefine) -> str:
    return f"UNDEFINE {quoted(node.name)}"


def _assert(node: s.AssertTopic | s.AssertSchema) -> str:
    return "ASSERT " if node.exists else "ASSERT NOT EXISTS "


def _timeout(timeout: Duration | None) -> str:
    return "" if timeout is None else f" TIMEOUT {format_duration(timeout)}"


def _assert_topic(node: s.AssertTopic) -> str:
    return f"{_assert(node)}TOPIC {_topic(node.topic)}{_properties(node.properties)}{_timeout(node.timeout)}"


def _assert_schema(node: s.AssertSchema) -> str:
    subject = "" if node.subject is None else f" SUBJECT {_topic(node.subject)}"
    schema_id = "" if node.schema_id is None else f" ID {node.schema_id}"
    return f"{_assert(node)}SCHEMA{subject}{schema_id}{_timeout(node.timeout)}"


def _assert_values(node: s.AssertValues) -> str:
    return f"ASSERT VALUES {quoted(node.name)}{_names(node.columns)} VALUES {_values(node.values)}"


def _assert_tombstone(node: s.AssertTombstone) -> str:
    return f"ASSERT NULL VALUES {quoted(node.name)}{_names(node.columns)} KEY {_values(node.values)}"


def _assert_source(node: s.AssertSource) -> str:
    columns = f" ({', '.join(map(_column, node.columns))})" if node.columns else ""
    return f"ASSERT {node.kind} {quoted(node.name)}{columns}{_properties(node.properties)}"


def _run_script(node: s.RunScript) -> str:
    return f"RUN SCRIPT {quoted_string(node.path)}"


_STATEMENT_RULES: dict[type, Callable[[Any], str]] = {
    Query: format_query,
    s.CreateSource: _create_source,
    s.CreateAs: _create_as,
    s.InsertInto: _insert_into,
    s.InsertValues: _insert_values,
    s.DropSource: _drop_source,
    s.AlterSource: _alter_source,
    s.AlterSystem: _alter_system,
    s.CreateType: _create_type,
    s.DropType: _drop_type,
    s.CreateConnector: _create_connector,
    s.DropConnector: _drop_connector,
    s.Steer: _steer,
    s.Show: _show,
    s.Describe: _describe,
    s.DescribeAll: _describe_all,
    s.Explain: _explain,
    s.Print: _print,
    s.SetProperty: _set,
    s.UnsetProperty: _unset,
    s.Define: _define,
    s.Undefine: _undefine,
    s.AssertTopic: _assert_topic,
    s.AssertSchema: _assert_schema,
    s.AssertValues: _assert_values,
    s.AssertTombstone: _assert_tombstone,
    s.AssertSource: _assert_source,
    s.RunScript: _run_script,
}
