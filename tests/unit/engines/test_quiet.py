"""PySpark's warnings are kept from users, also when applications start side by side."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from penstock.engines.spark import pyspark_warnings as quiet
from penstock.engines.spark.pyspark_warnings import quiet_pyspark


@pytest.fixture(autouse=True)
def _nobody_is_inside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests' own Spark session is, as long as there is one in this process."""
    monkeypatch.setattr(quiet, "_inside", 0)
    with warnings.catch_warnings():
        warnings.filters[:] = [each for each in warnings.filters if not any(each is mine for mine in quiet._added)]
        yield


def test_another_start_that_ends_leaves_the_warnings_off() -> None:
    first, second = quiet_pyspark(), quiet_pyspark()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    warnings.warn("a new pandas", FutureWarning, stacklevel=1)
    second.__exit__(None, None, None)
    with pytest.raises(FutureWarning):
        warnings.warn("a new pandas", FutureWarning, stacklevel=1)


def test_the_filters_of_others_stay() -> None:
    before = list(warnings.filters)
    with quiet_pyspark():
        warnings.simplefilter("ignore", UserWarning)
        mine = warnings.filters[0]
    assert list(warnings.filters) == [mine, *before]


def test_one_that_begins_after_the_filters_were_put_back_is_quiet() -> None:
    """As a test's are put back at its end while Spark's session goes on to the next."""
    outer = quiet_pyspark()
    with warnings.catch_warnings():
        outer.__enter__()
    with quiet_pyspark():
        warnings.warn("a new pandas", FutureWarning, stacklevel=1)
    outer.__exit__(None, None, None)
    with pytest.raises(FutureWarning):
        warnings.warn("a new pandas", FutureWarning, stacklevel=1)
