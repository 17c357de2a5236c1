"""The queries that write DataFrames into topics: their progress, and how their errors end the application."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engines.dataframes import DataFrameQuery, dataframe_queries, spark_location
from penstock.engines.threads.hosting.crashes import is_passing
from penstock.errors import CheckpointMismatchError, FencedError, LogUnavailableError, PenstockError, UnknownTopicError
from penstock.log.base import Lease, TopicLog
from penstock.log.open import open_log
from penstock.serde.primitives import StringSerde
from penstock.state.checkpoint import write_document
from penstock.topology.dataframe_source import DataFrameSource
from penstock.topology.topology import Topology

TOPIC = "app-orders-dataframe"


class SparksFrame:
    """One batch of Spark with one row."""

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.table({"key": ["pen"], "value": ["2"], "timestamp": pa.array([0], pa.int64())})


class SparksQuery:
    """A query of Spark that a Python function has ended: Spark passes on only its text."""

    isActive = False  # noqa: N815 - Spark's name

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        raise RuntimeError(f"an exception in foreachBatch, waited {timeout}")


@pytest.fixture
def log() -> Iterator[TopicLog]:
    with open_log(f"memory://{uuid.uuid4().hex}") as opened:
        opened.create_topic(TOPIC, 2)
        yield opened


@pytest.fixture(params=["directory", "object store"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint") if request.param == "directory" else f"memory://{uuid.uuid4().hex}/app"


def queries(log: TopicLog, lease: Lease, checkpoint: str) -> list[DataFrameQuery]:
    frame: Any = object()  # Spark is not asked for it before the start
    sources = [DataFrameSource(name, TOPIC, StringSerde(), StringSerde(), frame=frame) for name in ("orders", "others")]
    return dataframe_queries(Topology(dataframes={each.name: each for each in sources}), log, lease, checkpoint, {})


def note(checkpoint: str, name: str, *batches: int) -> None:
    for batch in batches:
        write_document(f"{checkpoint}/dataframes/{name}", f"offsets/{batch}", 'v1\n{}\n{"logOffset":0}')


def write(query: DataFrameQuery, batch: int) -> None:
    query._write(SparksFrame(), batch)  # type: ignore[arg-type] # what Spark calls it with


def test_a_batch_in_the_log_needs_spark_s_note_of_it(log: TopicLog, checkpoint: str) -> None:
    lease = log.acquire_lease("app", "me")
    orders, _ = queries(log, lease, checkpoint)  # nothing is written yet, nothing is lost
    for batch in (8, 9, 10):
        note(checkpoint, "orders", batch)
        write(orders, batch)
        assert len(queries(log, lease, checkpoint)) == 2
    elsewhere = f"{checkpoint}-elsewhere"
    for kept in ((), (0,), (8, 9)):  # none, begun anew, from an older copy of the checkpoint
        note(elsewhere, "orders", *kept)
        note(elsewhere, "others", 10)
        with pytest.raises(
            CheckpointMismatchError, match="progress of DataFrame 'orders' is lost: its batch 10"
        ) as caught:
            queries(log, lease, elsewhere)
        assert "penstock app reset app.py:topology --without-checkpoint" in caught.value.hint
        assert not is_passing(caught.value)
    note(elsewhere, "orders", 11)  # Spark drops old notes
    assert len(queries(log, lease, elsewhere)) == 2


@pytest.mark.parametrize("location", ["/data/a b", "file:///data/a%20b"])
def test_spark_notes_the_progress_where_it_is_looked_for(location: str) -> None:
    session: Any = None  # it is asked for object stores only
    assert spark_location(session, location) == "file:///data/a b"


def ended(query: DataFrameQuery) -> PenstockError:
    """Return the error of a query that Spark has ended."""
    query._query = SparksQuery()  # type: ignore[assignment] # Spark's
    with pytest.raises(PenstockError) as caught:
        query.check()
    return caught.value


def test_a_newer_instance_that_fences_a_dataframe_s_query_ends_the_application(log: TopicLog, tmp_path: Path) -> None:
    checkpoint = str(tmp_path)
    orders, _ = queries(log, log.acquire_lease("app", "me"), checkpoint)
    note(checkpoint, "orders", 0)
    log.acquire_lease("app", "another", force=True)
    with pytest.raises(FencedError):
        write(orders, 0)
    error = ended(orders)
    assert isinstance(error, FencedError)
    assert error.hint
    assert not is_passing(error)
    assert is_passing(FencedError("a thread that was taken for lost"))


def test_a_topic_of_a_dataframe_that_is_gone_ends_the_application(log: TopicLog, tmp_path: Path) -> None:
    orders, _ = queries(log, log.acquire_lease("app", "me"), str(tmp_path))
    log.delete_topic(TOPIC)
    with pytest.raises(UnknownTopicError):
        write(orders, 0)
    error = ended(orders)
    assert isinstance(error, UnknownTopicError)
    assert not is_passing(error)


def test_a_log_that_was_away_may_be_there_again(tmp_path: Path) -> None:
    with open_log(f"memory://{uuid.uuid4().hex}") as log:
        orders, _ = queries(log, log.acquire_lease("app", "me"), str(tmp_path))
    orders._error = LogUnavailableError("no broker answers")
    assert is_passing(ended(orders))
