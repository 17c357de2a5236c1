"""Whatever is asked, and whenever: the answer is the state at the end of the newest committed batch, of all tasks."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.engines.committed_state import task_state as tasks_module
from penstock.query import StoreQueryParameters
from penstock.query.stores import open_store

from .conftest import Checkpoint

KEYS = st.sampled_from(["", "a", "ab", "b", "c" * 600, "c" * 600 + "d", "ÿ"])
CHANGES = st.dictionaries(KEYS, st.none() | st.text(max_size=3), max_size=4)
BATCHES = st.lists(st.tuples(CHANGES, CHANGES, st.integers(0, 7)), max_size=12)
BOUNDS = st.none() | KEYS


@pytest.fixture(params=["few layers", "many layers"])
def folding(request, monkeypatch):
    if request.param == "few layers":
        monkeypatch.setattr(tasks_module, "_MOST_LAYERS", 2)


def matches(state, model, low, high):
    store = open_store(state, StoreQueryParameters("plain"))
    merged = sorted(((k.encode(), k, v) for part in model for k, v in part.items()))
    expected = [
        (k, v) for b, k, v in merged if (low is None or b >= low.encode()) and (high is None or b <= high.encode())
    ]
    assert sorted(store.range(low, high)) == sorted(expected)
    assert [k for k, _ in store.range(low, high)] == [k for k, _ in expected]
    assert [k for k, _ in store.reverse_range(low, high)] == [k for k, _ in expected[::-1]]
    assert store.approximate_num_entries() == len(merged)
    for number, part in enumerate(model):
        one = open_store(state, StoreQueryParameters("plain", partition=number))
        for key in ("", "a", "ab", "b", "c" * 600):
            assert one.get(key) == part.get(key)
        assert dict(one.prefix_scan("a")) == {k: v for k, v in part.items() if k.startswith("a")}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, BOUNDS, BOUNDS)
def test_a_query_sees_a_committed_batch(folding, batches, low, high):
    follow(batches, low, high)


def follow(batches, low, high):
    """``asked`` has a bit for a question before the first task, between the tasks, and before the commit."""
    with tempfile.TemporaryDirectory() as root:
        checkpoint = Checkpoint(Path(root))
        checkpoint.snapshot_every = 4
        state = checkpoint.state()
        model: list[dict[str, str]] = [{}, {}]
        try:
            for number, (*changes, asked) in enumerate(batches):
                for task, change in enumerate(changes):
                    if asked >> task & 1:
                        matches(state, model, low, high)
                    checkpoint.run(
                        task, number, lambda store, c=change: [store("plain").put(*item) for item in c.items()]
                    )
                if asked >> 2 & 1:
                    matches(state, model, low, high)
                checkpoint.commit(number)
                for part, change in zip(model, changes, strict=True):
                    part.update({k: v for k, v in change.items() if v is not None})
                    for key in (k for k, v in change.items() if v is None):
                        part.pop(key, None)
            matches(state, model, low, high)
        finally:
            state.close()
            checkpoint.close()
