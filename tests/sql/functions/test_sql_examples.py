"""Every function has a meaning, and examples that are true."""

import pytest
from sql_expressions import evaluate

from penstock.sql.functions import scalar_functions

FUNCTIONS = list(scalar_functions())
EXAMPLES = [(function.name, example) for function in FUNCTIONS for example in function.examples]


@pytest.mark.parametrize(
    ("name", "example"), EXAMPLES, ids=[f"{name}-{number}" for number, (name, _) in enumerate(EXAMPLES)]
)
def test_examples(name, example):
    found, expected = evaluate(example.call), evaluate(example.result)
    assert (found, type(found)) == (expected, type(expected))
    assert str(found) == str(expected)
    assert name in example.call


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_every_function_is_documented(function):
    assert function.meaning.endswith(".")
    assert "\n" not in function.meaning
    assert function.examples


def test_functions_and_their_number():
    assert len(FUNCTIONS) == 129
    assert scalar_functions().get("arraycontains").name == "ARRAY_CONTAINS"
    assert scalar_functions().get("NO_SUCH") is None
