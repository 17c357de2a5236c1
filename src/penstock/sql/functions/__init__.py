"""The functions of the language: a registry with documentation, and pure Python functions over values by family."""

from penstock.sql.functions.builtin import scalar_functions
from penstock.sql.functions.errors import EvaluationErrors
from penstock.sql.functions.patterns import LambdaArgument
from penstock.sql.functions.registry import Bound, Registry, ScalarFunction

__all__ = ["scalar_functions", "Registry", "ScalarFunction", "Bound", "LambdaArgument", "EvaluationErrors"]
