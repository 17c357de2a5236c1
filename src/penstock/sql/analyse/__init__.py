"""Statements to plans: names, keys, joins, groups and windows are resolved against a catalog, or refused with a place.

`apply` takes one statement and changes the catalog; a query that runs on comes back as a `QueryPlan`, a frozen tree of
steps that has a JSON form. Nothing here knows how a plan is run.
"""

from __future__ import annotations

from penstock.sql.analyse.plans import QueryPlan
from penstock.sql.analyse.statement_errors import located, refusal
from penstock.sql.analyse.statements import Applied, InsertedRow, apply, apply_script, steps_of

__all__ = ["Applied", "InsertedRow", "QueryPlan", "apply", "apply_script", "located", "refusal", "steps_of"]
