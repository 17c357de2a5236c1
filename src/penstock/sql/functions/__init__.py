"""The functions of the language: a registry with documentation, pure Python functions by family, those of users.

`udf`, `udaf` and `udtf` make Python functions and classes functions of SQL; `load_functions` finds them in modules.
"""

from penstock.sql.functions.builtin import scalar_functions
from penstock.sql.functions.evaluation_errors import EvaluationErrors
from penstock.sql.functions.patterns import LambdaArgument
from penstock.sql.functions.registry import Bound, FunctionRegistry, ScalarFunction
from penstock.sql.functions.user import UserFunctions, load_functions, udaf, udf, udtf

__all__ = [
    "Bound",
    "EvaluationErrors",
    "FunctionRegistry",
    "LambdaArgument",
    "ScalarFunction",
    "UserFunctions",
    "load_functions",
    "scalar_functions",
    "udaf",
    "udf",
    "udtf",
]
