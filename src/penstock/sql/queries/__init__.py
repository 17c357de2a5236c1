"""SELECT without CREATE or INSERT: pull queries of tables and streams, and push queries (EMIT CHANGES).

A session passes a parsed SELECT on to `select`. A walk along one: `analyse` makes a frozen plan of `plans` (with
`lookups` for WHERE of a pull query); `pull` answers over the rows of `tables`, which reads `stores`; `push` runs a
transient topology over records, which `follow` reads from the log; `ordering` sorts and cuts.
"""

from __future__ import annotations

from penstock.sql.queries.analyse import plan_query
from penstock.sql.queries.answer import answer
from penstock.sql.queries.host import QueryHost, RunningQuery
from penstock.sql.queries.plans import PullPlan, PushPlan, ResultRow, Results, TransientPlan
from penstock.sql.queries.pull import pulled
from penstock.sql.queries.push import TransientTask, results_of_records
from penstock.sql.queries.select import select
from penstock.sql.queries.stores import SqlStoreAccess, StoreAccess
from penstock.sql.queries.tables import TableRows

__all__ = [
    "PullPlan",
    "PushPlan",
    "SqlStoreAccess",
    "QueryHost",
    "ResultRow",
    "Results",
    "RunningQuery",
    "StoreAccess",
    "TableRows",
    "TransientPlan",
    "TransientTask",
    "answer",
    "plan_query",
    "pulled",
    "results_of_records",
    "select",
]
