"""The end of Spark's queries: an error is not taken for a good end."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engines.spark.own_session import has_ended


class FailsMeanwhile:
    """Spark's query, which fails after Spark has looked for an error, and before it looks whether the query runs."""

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        assert timeout > 0
        return True

    def exception(self) -> Exception | None:
        return ValueError("Python worker failed to connect back")


def test_an_error_between_two_looks_of_spark_is_no_good_end() -> None:
    query: Any = FailsMeanwhile()
    with pytest.raises(ValueError, match="failed to connect back"):
        has_ended(query, 0.1)
