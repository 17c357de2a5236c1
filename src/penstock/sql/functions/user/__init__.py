"""Functions of SQL that are written in Python: declared by decorators, loaded from modules, files and entry points."""

from penstock.sql.functions.user.declarations import udaf, udf, udtf
from penstock.sql.functions.user.user_functions import UserFunctions, load_functions

__all__ = ["UserFunctions", "load_functions", "udaf", "udf", "udtf"]
