"""Plans as JSON, scripts that are applied whole or not at all, and errors that show their place."""

import json

import pytest

from penstock.errors import SqlError
from penstock.sql.analyse import apply_script
from penstock.sql.catalog import Catalog

SOURCE = "CREATE STREAM s (k INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON');\n"


def test_a_plan_is_json_that_names_its_steps():
    script = SOURCE + "CREATE TABLE t AS SELECT k, COUNT(*) AS n FROM s WHERE v > 1 GROUP BY k HAVING COUNT(*) > 2;"
    _, effects = apply_script(script, Catalog())
    plan = effects[-1].query.to_json()
    assert json.loads(json.dumps(plan)) == plan
    steps, step = [], plan["root"]
    while step:
        steps.append(step["step"])
        step = step.get("above")
    assert steps == ["Project", "Filter", "Aggregate", "Filter", "Read"]
    assert plan["reads"] == ["S"]


def test_plans_of_one_statement_are_equal():
    script = SOURCE + "CREATE STREAM t AS SELECT k, v + 1 AS w FROM s;"
    one, two = (apply_script(script, Catalog())[1][-1].query for _ in range(2))
    assert one.to_json() == two.to_json()


def test_a_script_is_applied_whole_or_not_at_all():
    before = Catalog()
    with pytest.raises(SqlError):
        apply_script(SOURCE + "CREATE STREAM t AS SELECT nothing FROM s;", before)
    assert not before.sources
    after, _ = apply_script(SOURCE, before)
    assert list(after.sources) == ["S"]
    assert not before.sources


def test_an_error_has_its_line_in_the_script_and_a_caret():
    with pytest.raises(SqlError) as caught:
        apply_script(SOURCE + "CREATE STREAM t AS\n  SELECT k,\n    vv\n  FROM s;", Catalog())
    error = caught.value
    assert error.message == "line 4:5: SELECT names the column 'VV', which no source has\n      vv\n      ^"
    assert (error.line, error.column) == (4, 5)
    assert error.hint == "Did you mean V?"
