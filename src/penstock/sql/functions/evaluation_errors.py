"""Errors of evaluation: values that cannot be computed become null, are counted, and the first are logged."""

from __future__ import annotations

from collections import Counter

from penstock.base.log_lines import own_logger
from penstock.runtime.error_reporting import report
from penstock.sql.types import SqlValueError

__all__ = ["EvaluationErrors", "FunctionFailed"]

LOGGER = own_logger("penstock.sql")
LOGGED_EACH = 10  # of one function; all are counted


class FunctionFailed(SqlValueError):  # noqa: N818
    """A function of a user has raised, or returned what is not a value of its type."""


class EvaluationErrors:
    """Counts of the errors of expressions, by the function or column in which they happened.

    Here are those of one copy in one process; the task that they happen in has its own as the metric
    ``function-errors-total``.

    The first ten of each go to the logger ``penstock.sql`` as warnings; ksqlDB's processing log has the same lines.

    >>> errors = EvaluationErrors()
    >>> errors.report("CHR", ValueError("not a character"))
    >>> errors.counts
    {'CHR': 1}
    """

    def __init__(self, query: str = "") -> None:
        self._query = query
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> dict[str, int]:
        """The number of errors by function or column."""
        return dict(self._counts)

    def report(self, where: str, error: Exception, times: int = 1) -> None:
        """Count an error, and log it if it is one of the first; ``times`` is for those that a column has at once."""
        seen = self._counts[where] + 1
        self._counts[where] += times
        if self._query:
            report(where, times)  # to the task that runs the query
        if seen <= LOGGED_EACH:
            last = "; further ones are only counted" if seen == LOGGED_EACH else ""
            LOGGER.warning("%sin %s: %s; the value is null%s", self._query and f"{self._query}: ", where, error, last)
