"""Texts of one statement or many: cut at semicolons, variables put in, parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.base.nearest_name import did_you_mean
from penstock.sql.parse import statements as grammar
from penstock.sql.parse.dialects import OTHER_STATEMENTS
from penstock.sql.parse.expression_nodes import Expression, Node, children
from penstock.sql.parse.expressions import expression
from penstock.sql.parse.queries import query
from penstock.sql.parse.statement_nodes import Define, Explain, Statement, Undefine
from penstock.sql.parse.statements import alter, create, drop, insert
from penstock.sql.parse.tokens import (
    START,
    Comment,
    Cursor,
    Snag,
    SqlToken,
    TextPosition,
    TokenKind,
    excerpt,
    listed,
    parsed,
    syntax_error,
    tokenize,
)

__all__ = [
    "MAX_HEIGHT",
    "Parsed",
    "parse_expression",
    "parse_script",
    "parse_statement",
    "statement",
    "substitute",
    "test_statement",
]

MAX_HEIGHT = 160  # of a tree, in which each operator of a + b + c is a level
_REFERENCE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
Rule = Callable[[Cursor], Statement]


@dataclass(frozen=True, slots=True)
class Parsed:
    """A statement of a script.

    Attributes:
        statement: The statement.
        text: Its text without the semicolon, variables put in.
        at: Its first character in the script.
        comments: The comments before and in it.
    """

    statement: Statement
    text: str
    at: TextPosition
    comments: tuple[str, ...] = ()


def parse_statement(text: str, variables: Mapping[str, str] | None = None, *, tests: bool = False) -> Statement:
    """Parse one statement, with or without a semicolon at its end.

    Args:
        text: The statement.
        variables: What stands for ``${name}``, by names in upper case.
        tests: Whether RUN SCRIPT and the kinds of ASSERT that test files have are statements.

    Raises:
        SqlSyntaxError: It is none, or more than one.

    >>> parse_statement("drop stream clicks delete topic")
    DropSource(kind='STREAM', name='CLICKS', if_exists=False, delete_topic=True)
    """
    statements = parse_script(text, variables, tests=tests)
    if len(statements) == 1:
        return statements[0].statement
    if not statements:
        raise syntax_error(text, Snag(START, "expected a statement, found nothing"))
    raise syntax_error(text, Snag(statements[1].at, "expected one statement, found another after it"))


def parse_script(text: str, variables: Mapping[str, str] | None = None, *, tests: bool = False) -> tuple[Parsed, ...]:
    """Parse statements with semicolons between them.

    DEFINE and UNDEFINE hold for the statements behind them. The place that an error names is exact; in a statement
    with variables it is that in the text with their values.

    Args:
        text: The statements.
        variables: What stands for ``${name}`` at the start, by names in upper case.
        tests: Whether RUN SCRIPT and the kinds of ASSERT that test files have are statements.

    Raises:
        SqlSyntaxError: Any of them cannot be parsed.
    """
    defined = dict(variables or {})
    statements = []
    for piece in _pieces(text):
        source, tokens = text, piece.tokens
        begin, end = tokens[0].at.offset, tokens[-1].at.offset
        if defined and "${" in text[begin:end]:
            source = substitute(text[begin:end], defined)
            begin, end = 0, len(source)
            tokens = tokenize(source, tokens[0].at).tokens
        node = parsed(source, tokens, test_statement if tests else statement)
        _check_height(source, node, len(tokens))
        if isinstance(node, Define):
            defined[node.name] = node.value
        elif isinstance(node, Undefine):
            defined.pop(node.name, None)
        statements.append(Parsed(node, source[begin:end].rstrip(), tokens[0].at, tuple(c.text for c in piece.comments)))
    return tuple(statements)


def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Raises:
        SqlSyntaxError: It is none.

    >>> parse_expression("a->b")
    FieldAccess(base=ColumnNode(name='A', source=None), name='B')
    """
    tokens = tokenize(text).tokens
    node: Expression = parsed(text, tokens, _expression)
    _check_height(text, node, len(tokens))
    return node


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with values for ``${name}``, in strings too.

    ``$${name}`` becomes ``${name}``, unknown names stay.

    >>> substitute("SELECT '${place}', '$${place}' FROM ${other};", {"PLACE": "Oslo"})
    "SELECT 'Oslo', '${place}' FROM ${other};"
    """

    def value(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        return match.group()[1:] if escaped else variables.get(name.upper(), match.group())

    return _REFERENCE.sub(value, text)


@dataclass(frozen=True, slots=True)
class _Piece:
    tokens: list[SqlToken]
    comments: list[Comment]


def _pieces(text: str) -> Iterator[_Piece]:
    """Yield the tokens of each statement, with its semicolon as their end; comments behind the last one are dropped."""
    tokens, comments = tokenize(text)
    first = said = 0
    for index, token in enumerate(tokens):
        if token.key != ";" and token.kind is not TokenKind.END:
            continue
        if index > first:
            until = said
            while until < len(comments) and comments[until].at.offset < token.at.offset:
                until += 1
            end = SqlToken(TokenKind.END.value, TokenKind.END, "", token.at, token.end)
            yield _Piece([*tokens[first:index], end], comments[said:until])
            said = until
        first = index + 1


def _expression(cursor: Cursor) -> Expression:
    return expression(cursor)


def _check_height(text: str, root: Node, tokens: int) -> None:
    """Refuse a tree so high that a function which calls itself for each level could not walk it."""
    if tokens <= MAX_HEIGHT:
        return
    waiting = [(root, 1)]
    while waiting:
        node, height = waiting.pop()
        if height > MAX_HEIGHT:
            hint = "Split the expression, for example over the queries of WITH."
            raise syntax_error(text, Snag(node.at, f"an expression of more than {MAX_HEIGHT} levels", hint=hint))
        waiting += [(child, height + 1) for child in children(node)]


def statement(cursor: Cursor) -> Statement:
    """Read a statement."""
    return _read(cursor, _RULES)


def test_statement(cursor: Cursor) -> Statement:
    """Read a statement as prompts and test files have it: with RUN SCRIPT and all kinds of ASSERT."""
    return _read(cursor, _TEST_RULES)


def _read(cursor: Cursor, rules: dict[str, Rule]) -> Statement:
    rule = rules.get(cursor.token.key)
    if rule is None:
        if cursor.token.kind is TokenKind.END:
            cursor.note("a statement")
            raise cursor.unexpected()
        word = cursor.source(cursor.token)
        hint = OTHER_STATEMENTS.get(word.upper()) or did_you_mean(word, rules)
        hint = hint or f"A statement begins with {listed(rules)}."
        raise cursor.refused(cursor.token.at, f"unknown statement {excerpt(word)}", hint)
    return rule(cursor)


def _explain(cursor: Cursor) -> Statement:
    at = cursor.expect("EXPLAIN").at
    if cursor.following() == TokenKind.END.value and cursor.at_name():
        return Explain(cursor.name(), at=at)
    cursor.enter()
    node = Explain(statement(cursor), at=at)
    cursor.leave()
    return node


_RULES: dict[str, Rule] = {
    "CREATE": create,
    "SELECT": query,
    "WITH": query,
    "INSERT": insert,
    "DROP": drop,
    "ALTER": alter,
    "TERMINATE": grammar.steer,
    "PAUSE": grammar.steer,
    "RESUME": grammar.steer,
    "SHOW": grammar.show,
    "LIST": grammar.show,
    "DESCRIBE": grammar.describe,
    "EXPLAIN": _explain,
    "PRINT": grammar.print_topic,
    "SET": grammar.set_property,
    "UNSET": grammar.set_property,
    "DEFINE": grammar.define,
    "UNDEFINE": grammar.define,
    "ASSERT": grammar.assertion,
}
_TEST_RULES: dict[str, Rule] = {**_RULES, "ASSERT": grammar.test_assertion, "RUN": grammar.run_script}
