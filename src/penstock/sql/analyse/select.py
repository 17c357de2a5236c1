"""The columns of SELECT: stars written out, names, and which of them are the key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.sql.analyse.expressions import Library, typed_expression
from penstock.sql.analyse.fields import ClauseScope, FieldRole, RowField, qualified
from penstock.sql.analyse.plans import PlanStep
from penstock.sql.analyse.statement_errors import named, refusal
from penstock.sql.catalog import RESERVED_COLUMNS
from penstock.sql.parse import expression_nodes as x
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.formatting import format_expression
from penstock.sql.parse.tokens import TextPosition
from penstock.sql.types import StructType

__all__ = ["Item", "Selecting", "keys_of", "select_items"]


@dataclass(frozen=True, slots=True)
class Item:
    """A column of the result.

    Attributes:
        node: Its expression, with qualified columns.
        is_named: Whether the query names it.
    """

    name: str
    node: Any
    at: TextPosition
    is_named: bool = False


@dataclass(frozen=True, slots=True)
class Selecting:
    """The rules of a projection.

    Attributes:
        reserved: Names that no column of the result may have.
        bounds: Whether a star stands for the bounds of windows too, behind the key.
    """

    reserved: frozenset[str] = RESERVED_COLUMNS
    bounds: bool = False


@dataclass(slots=True)
class _Naming:
    """Names for columns that have none: KSQL_COL_n, fields of structs, columns of joins."""

    taken: set[str]
    joined: bool
    names: ClauseScope
    count: int = 0

    def of(self, node: Any) -> str:
        """Return the name of an expression."""
        if isinstance(node, x.ColumnNode):
            alone = sum(field.name == node.name for field in self.names.fields) == 1
            return node.name if alone or not self.joined or node.source is None else f"{node.source}_{node.name}"
        if isinstance(node, x.FieldAccess):
            name, number = node.name, 0
            while name in self.taken:
                number += 1
                name = f"{node.name}_{number}"
            self.taken.add(name)
            return name
        while True:
            name = f"KSQL_COL_{self.count}"
            self.count += 1
            if name not in self.taken:
                return name


def select_items(
    query: s.Query,
    step: PlanStep,
    names: ClauseScope,
    moved: Sequence[Any] | None,
    library: Library,
    rules: Selecting = Selecting(),
) -> list[Item]:
    """Return the columns of SELECT in order, each with a name.

    Args:
        query: The query.
        step: The rows that it reads.
        names: Their columns.
        moved: The qualified expressions of PARTITION BY; None without that.
        library: The functions, for the types of structs that a star opens.
        rules: The rules of the projection.
    """
    sources = tuple(dict.fromkeys(field.source for field in names.fields if field.source))
    naming = _Naming({field.name for field in names.fields}, len(sources) > 1, names)
    items: list[Item] = []
    for item in query.items:
        match item:
            case s.AllColumns():
                items += _star(item, step, naming, moved, rules)
            case s.AllFields():
                items += _fields_of(item, names, library)
            case s.Selected():
                node = qualified(item.expression, names)
                items.append(_selected(item, node, naming))
    for each in items:
        _check_name(each, moved or (), rules.reserved)
    seen: dict[str, Item] = {}
    for each in items:
        if each.name in seen:
            raise refusal(each.at, f"The projection contains duplicate column names: {each.name}", "Alias one of them.")
        seen[each.name] = each
    return items


def _selected(item: s.Selected, node: Any, naming: _Naming) -> Item:
    if item.alias is not None:
        return Item(item.alias, node, item.at, is_named=True)
    return Item(naming.of(node), node, item.at)


def _check_name(item: Item, moved: Sequence[Any], reserved: frozenset[str]) -> None:
    if item.name not in reserved or (item.node in moved and not item.is_named):
        return
    plain = isinstance(item.node, x.ColumnNode) and item.node.name == item.name
    if item.is_named and not plain:
        raise refusal(item.at, f"`{item.name}` is reserved, and cannot be the alias of a column.")
    raise refusal(
        item.at, f"SELECT returns a column under the reserved name `{item.name}`.", "Name it with AS, or drop it."
    )


def _star(
    item: s.AllColumns, step: PlanStep, naming: _Naming, moved: Sequence[Any] | None, rules: Selecting
) -> Iterator[Item]:
    fields = naming.names.fields
    if item.source is not None and item.source not in naming.names.sources:
        raise refusal(item.at, f"No stream, table or alias of this query has the name '{item.source}'.")
    joined = naming.joined

    def one(field: RowField) -> Item:
        name = f"{field.source}_{field.name}" if joined and field.source else field.name
        return Item(name, x.ColumnNode(field.name, field.source, at=item.at), item.at)

    if moved is None or item.source is not None:
        if joined and item.source is None and step.key_names:
            own = [name for name in step.key_names[0] if isinstance(name, x.ColumnNode) and name.source is None]
            yield from (Item(name.name, name, item.at) for name in own)
        for source in naming.names.sources:
            if item.source in (None, source):
                own_fields = [field for field in fields if field.source == source]
                yield from map(one, _in_order(own_fields, bounds=joined or rules.bounds))
        return
    for node in moved:
        if isinstance(node, x.ColumnNode) and joined:
            yield Item(f"{node.source}_{node.name}" if node.source else node.name, node, item.at)
        elif not isinstance(node, x.NullLiteral):
            yield Item(naming.of(node), node, item.at)
    for source in naming.names.sources:
        own_fields = [field for field in fields if field.source == source]
        keys = [field for field in own_fields if field.role == "KEY"]
        rest = [field for field in own_fields if field.role in ("VALUE", "HEADER")]
        pseudo = [field for field in own_fields if field.role == "PSEUDO"] if joined else []
        for field in (*rest, *pseudo, *keys):
            if x.ColumnNode(field.name, field.source) not in moved:
                yield one(field)


def _in_order(fields: Sequence[RowField], *, bounds: bool) -> list[RowField]:
    """Return the columns of a source that a star stands for.

    Its key, the bounds of its windows if asked for, the others.
    """
    roles: tuple[tuple[FieldRole, ...], ...] = (("KEY",), ("BOUND",) if bounds else (), ("VALUE", "HEADER"))
    return [field for role_group in roles for field in fields if field.role in role_group]


def _fields_of(item: s.AllFields, names: ClauseScope, library: Library) -> Iterator[Item]:
    base = qualified(item.base, names)
    kind = typed_expression(base, names, library).type
    if not isinstance(kind, StructType):
        raise refusal(item.at, f"Cannot select the fields of {format_expression(base)}: it is {kind}, not a STRUCT")
    for field in kind.fields:
        yield Item(field.name, x.FieldAccess(base, field.name, at=item.at), item.at)


def keys_of(items: Sequence[Item], step: PlanStep, sink: str, at: TextPosition) -> list[Item]:
    """Return the columns that are the key, in the key's order.

    Raises:
        SqlError: A column of the key is missing from the projection, or in it more than once.
    """
    keys: list[Item] = []
    missing: list[Sequence[Any]] = []
    for names in step.key_names:
        alternatives = _selectable(names, step)
        chosen = next((node for node in alternatives if any(item.node == node for item in items)), None)
        if chosen is None:
            missing.append(alternatives)
            continue
        same = [item for item in items if item.node == chosen]
        if len(same) > 1:
            raise refusal(
                same[1].at,
                f"The key column {format_expression(chosen)} is more than once in the projection: as "
                f"{named(sorted(item.name for item in same))}.",
                "AS_VALUE(column) copies a key column into the value.",
            )
        keys.append(same[0])
    if missing:
        raise _missing(step, missing, sink, at)
    return keys


def _selectable(names: Sequence[Any], step: PlanStep) -> Sequence[Any]:
    """Return the expressions that can be the key: behind a join its columns, or the synthetic one that it made."""
    if step.key_word != "join expression":
        return names
    synthetic = [node for node in names if isinstance(node, x.ColumnNode) and node.source is None]
    return synthetic or [node for node in names if isinstance(node, x.ColumnNode)]


def _missing(step: PlanStep, missing: Sequence[Sequence[Any]], sink: str, at: TextPosition) -> Exception:
    if step.key_word == "foreign-key join":
        plural = "s" if len(missing) > 1 else ""
        every = named([format_expression(node) for node in _flat(step.key_names)])
        return refusal(
            at,
            f"The projection of a foreign-key join of tables lacks primary key column{plural} of the left table, which "
            f"are {every}.",
        )
    nodes = _flat(step.key_names if step.key_word == "key column" else missing)
    words = [format_expression(node) for node in nodes]
    plural = "s" if len(words) > 1 else ""
    last = "or" if step.key_word == "join expression" else "and"
    example = words[0] if last == "or" else ", ".join(words)
    hint = f"For example SELECT {example}, ..."
    if step.key_word == "join expression" and any(isinstance(n, x.ColumnNode) and n.source is None for n in nodes):
        hint += f" {words[0]} is the synthetic key column of the join; no column of the sources has its value."
    reason = (
        f"The key of `{sink}` is missing: the projection of its query lacks the {step.key_word}{plural} "
        f"{named(words, last)}."
    )
    return refusal(at, reason, hint)


def _flat(nodes: Iterable[Sequence[Any]]) -> list[Any]:
    return [node for alternatives in nodes for node in alternatives]
