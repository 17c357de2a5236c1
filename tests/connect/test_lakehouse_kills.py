"""A process with a sink to a lakehouse is killed again and again: each record is a row once."""

import pytest

from lakehouse_soak import killed
from lakehouses import KINDS, Lakehouse


@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_that_is_killed_three_times_writes_each_record_once(kind, tmp_path):
    killed(Lakehouse(kind, tmp_path), tmp_path, 3, seed=1)


@pytest.mark.whole
@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_that_is_killed_fifty_times_writes_each_record_once(kind, mode, tmp_path):
    killed(Lakehouse(kind, tmp_path), tmp_path, 50, seed=2, mode=mode)
