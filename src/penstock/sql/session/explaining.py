"""EXPLAIN: the topology of a query, and the back end of each of its expressions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.api.builder import StreamsBuilder
from penstock.base.nearest_name import did_you_mean
from penstock.base.terminal.human_numbers import counted
from penstock.sql.analyse import QueryPlan, apply, refusal
from penstock.sql.analyse.plans import Derived, Expression, FlattenStep, PlanStep, Read, plain
from penstock.sql.analyse.walking import expressions_below, steps_below
from penstock.sql.compile import compile_results
from penstock.sql.compile.origins import names_origins
from penstock.sql.evaluate import vectorised
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.parse import Parsed
from penstock.sql.parse import command_nodes as c
from penstock.sql.parse import statement_nodes as s
from penstock.sql.parse.query_nodes import Query as QueryNode
from penstock.sql.queries.analyse import plan_query
from penstock.sql.queries.plans import KeyLookup, PullPlan, PushPlan, RangeLookup
from penstock.sql.results import Explained
from penstock.sql.session.listing import errors_of
from penstock.sql.session.running import topology_of
from penstock.sql.session.workspace import Workspace

__all__ = ["explain", "explained"]

_BY_COLUMN = ("JSON", "DELIMITED", "KAFKA", "NONE")  # formats whose rows come as columns


def explain(parsed: Parsed, work: Workspace) -> Explained:
    """Answer EXPLAIN of a running query, of a SELECT, or of a statement with a query; the latter are not run.

    Raises:
        SqlError: There is no such query, or the statement is refused.
    """
    statement = parsed.statement
    assert isinstance(statement, c.Explain)  # noqa: S101 - dispatched by this type
    subject = statement.subject
    if isinstance(subject, QueryNode):
        plan = plan_query(subject, work.catalog.copy(), parsed.text)
        explanation = _pushed(plan) if isinstance(plan, PushPlan) else _pulled(plan)
        return replace(explanation, statement=parsed.text)
    if not isinstance(subject, str):
        return replace(explained(_plan_of(subject, work)), statement=parsed.text)
    query = work.queries.get(subject)
    if query is None:
        hint = did_you_mean(subject, work.queries) or "SHOW QUERIES lists the queries."
        raise refusal(statement.at, f"Query with id:{subject} does not exist", hint)
    facts = (("state", query.state), ("errors", errors_of(query)))
    return replace(explained(query.plan), id=subject, facts=facts, statement=parsed.text)


def _plan_of(statement: c.Statement, work: Workspace) -> QueryPlan:
    if not isinstance(statement, s.CreateAs | s.InsertInto):
        raise refusal(statement.at, "EXPLAIN takes a statement with a query, or the id of a running query")
    applied = apply(statement, work.catalog.copy())
    if applied.query is None:
        raise refusal(statement.at, applied.message)
    return applied.query


def explained(plan: QueryPlan) -> Explained:
    """Return the topology of a plan, and the back end of each of its expressions."""
    return Explained(
        "", str(topology_of(plan).describe()), _back_ends(expressions_below(plan.root), plan.root), plan.to_json()
    )


def _pushed(plan: PushPlan) -> Explained:
    builder = StreamsBuilder()
    compile_results(plan.root, builder, EvaluationErrors())
    kind = "push query: rows as they come" if plan.until == "never" else "pull query: a stream up to its present end"
    facts = (("kind", kind), ("reads", ", ".join(f"{each.name} (topic {each.topic})" for each in plan.reads)))
    document = {"reads": [each.name for each in plan.reads], "root": plain(plan.root)}
    return Explained(
        "", str(builder.build().describe()), _back_ends(expressions_below(plan.root), plan.root), document, facts
    )


def _pulled(plan: PullPlan) -> Explained:
    match plan.lookup:
        case KeyLookup(keys=keys):
            lookup = counted(len(keys), "key")
        case RangeLookup():
            lookup = "a range of keys"
        case _:
            lookup = "all rows"
    kept = f"the state of {plan.writer.id}" if plan.writer is not None else f"the topic {plan.source.topic}"
    used = (plan.where, *plan.values) if plan.where is not None else plan.values
    document = {"reads": [plan.source.name], "lookup": lookup}
    facts = (("kind", "pull query of a table"), ("reads", f"{lookup} of {kept}"))
    return Explained("", "", _back_ends(used, None), document, facts)


def _back_ends(expressions: Iterable[Expression], root: PlanStep | None) -> tuple[tuple[str, str, str], ...]:
    return tuple((each.text, str(each.type), _back_end(each, root)) for each in expressions)


def _back_end(expression: Expression, root: PlanStep | None) -> str:
    """Return the back end of an expression in batches of some size.

    Polars if rows come by the column, and it has its form.

    Rows that have columns of their origin (ROWTIME, headers), keys of windowed sources, schemas in a registry, and the
    results of table functions and subqueries come one by one.

    Args:
        expression: The expression.
        root: The last step of its query; None where rows of a table are looked up, which come one by one.
    """
    return vectorised.back_end(expression.typed) if root is not None and _by_column(root) else "Python"


def _by_column(root: PlanStep) -> bool:
    if names_origins(root):
        return False
    for step in steps_below(root):
        if isinstance(step, Derived | FlattenStep):
            return False
        if isinstance(step, Read):
            source = step.source
            if source.window is not None or {source.key_format.name, source.value_format.name} - set(_BY_COLUMN):
                return False
    return True
