"""SELECT without CREATE or INSERT: pull queries of tables and streams, and push queries (EMIT CHANGES).

A session passes a parsed SELECT on to `answer`. A walk along one: `analyse` makes a frozen plan of `plans`, which
also sorts and cuts rows; `pull` answers over the rows of tables, which it reads by `host`; `push` runs a transient
topology over records.
"""

from __future__ import annotations

from penstock.sql.queries.analyse import plan_query
from penstock.sql.queries.answer import answer, select
from penstock.sql.queries.host import QueryHost, RunningQuery, SqlStoreAccess, StoreAccess
from penstock.sql.queries.plans import PullPlan, PushPlan, ResultRow, Results, TransientPlan
from penstock.sql.queries.pull import TableRows, pulled
from penstock.sql.queries.push import TransientTask, results_of_records

__all__ = [
    "PullPlan",
    "PushPlan",
    "QueryHost",
    "ResultRow",
    "Results",
    "RunningQuery",
    "SqlStoreAccess",
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
