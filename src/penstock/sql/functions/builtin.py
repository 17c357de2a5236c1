"""All scalar functions."""

from __future__ import annotations

from functools import cache

from penstock.sql.functions.arrays import ARRAYS
from penstock.sql.functions.bytes_ import BYTES_FUNCTIONS
from penstock.sql.functions.conditional import CONDITIONAL
from penstock.sql.functions.dates import DATES
from penstock.sql.functions.geo import GEO
from penstock.sql.functions.json_functions import JSON_FUNCTIONS
from penstock.sql.functions.lambdas import LAMBDAS
from penstock.sql.functions.maps import MAPS
from penstock.sql.functions.masks import MASKS
from penstock.sql.functions.maths import MATHS
from penstock.sql.functions.regex import REGEX
from penstock.sql.functions.registry import FunctionRegistry
from penstock.sql.functions.strings import STRINGS
from penstock.sql.functions.urls import URLS

__all__ = ["scalar_functions"]

FAMILIES = (
    ARRAYS,
    BYTES_FUNCTIONS,
    CONDITIONAL,
    DATES,
    GEO,
    JSON_FUNCTIONS,
    LAMBDAS,
    MAPS,
    MASKS,
    MATHS,
    REGEX,
    STRINGS,
    URLS,
)


@cache
def scalar_functions() -> FunctionRegistry:
    """Return the registry of all built-in scalar functions.

    >>> from penstock.sql.types import INTEGER, STRING
    >>> bound = scalar_functions().resolve("lpad", [STRING, INTEGER, STRING])
    >>> str(bound.type), bound.call("7", 3, "0")
    ('STRING', '007')
    """
    return FunctionRegistry(FAMILIES)
