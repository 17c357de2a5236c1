"""Loading of functions: from a module, a file, or the entry points of installed packages."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from penstock.base.user_code import load_module
from penstock.errors import PenstockError, SqlFunctionError
from penstock.sql.functions.user.user_functions import UserFunctions

__all__ = ["ENTRY_POINTS", "load_functions"]

ENTRY_POINTS = "penstock.sql.functions"


def load_functions(*places: str, installed: bool = False) -> UserFunctions:
    """Load the functions of modules and files.

    Args:
        places: Names of modules (``shop.functions``) or paths of files (``functions.py``).
        installed: Whether to load those of installed packages too: modules, functions or classes that are entry points
            of the group ``penstock.sql.functions``.

    Raises:
        PenstockError: A module cannot be loaded, or a function in it is none of SQL.
    """
    functions = UserFunctions()
    for module_or_file in places:
        functions.add(load_module(module_or_file))
    if installed:
        for point in entry_points(group=ENTRY_POINTS):
            functions.add(_loaded(point))
    return functions


def _loaded(point: Any) -> Any:
    try:
        return point.load()
    except PenstockError:
        raise
    except Exception as error:
        raise SqlFunctionError(
            f"the entry point {point.name} = {point.value} of {ENTRY_POINTS} cannot be loaded: "
            f"{type(error).__name__}: {error}"
        ) from error
