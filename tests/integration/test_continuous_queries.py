"""Interactive queries of an application in continuous mode on Spark, over the embedded log and over Kafka."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from penstock import Materialized, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.engines.committed_state.opening import open_committed
from penstock.engines.kafka_streams import State
from penstock.log.base import TopicPartition
from penstock.query import KeyQuery, Position, PositionBound, StateQueryRequest, StoreQueryParameters
from penstock.query.stores import open_store

from .conftest import Place
from .test_continuous import kill_a_worker

STORE = "word-counts"


class Counts(Place):
    """A place with a topic of words, which are counted."""

    def __init__(self, root: Path, spark: Any, url: str = "") -> None:
        super().__init__(root, spark, url)
        self.source = self.topic("words")

    def config(self, **more: Any) -> dict[str, Any]:
        return super().config(**{"commit.interval.ms": 10, **more})

    def topology(self) -> Any:
        builder = StreamsBuilder()
        builder.stream(self.source).group_by(lambda _, value: value).count(Materialized(STORE))
        return builder.build()

    def words(self, *words: str) -> None:
        self.write(self.source, [("k", word, at) for at, word in enumerate(words)], 0)


@pytest.fixture
def place(log_url: str, tmp_path: Path, spark: Any) -> Iterator[Counts]:
    made = Counts(tmp_path, spark, log_url)
    yield made
    made.log.close()


def test_stores_of_a_running_application_and_of_a_stopped_one(place: Counts) -> None:
    topology = place.topology()
    with place.app(topology, **{"penstock.http.port": 0}) as app:
        eventually(lambda: app.state is State.RUNNING, facts=lambda: app.error)
        with urllib.request.urlopen(f"{app.query_url}/ready") as response:
            assert json.load(response)["state"] == "RUNNING"
        place.words("a", "b", "a")
        store = app.store(STORE)
        eventually(lambda: dict(store.all()) == {"a": 2, "b": 1}, facts=lambda: (dict(store.all()), app.error))
        bound = PositionBound.at(Position({place.source: {0: 2}}))
        request = StateQueryRequest.in_store(STORE).with_query(KeyQuery.with_key("a")).with_position_bound(bound)

        def answers() -> list[Any]:
            found = app.query(request.enable_execution_info()).partition_results.values()
            return [each for each in found if each.is_success and each.get() is not None]

        (answer,) = eventually(answers)
        assert answer.get() == 2
        assert "from: worker" in answer.execution_info[0]
        partition = app.query_metadata_for_key(STORE, "a").partition
        with urllib.request.urlopen(f"{app.query_url}/stores/{STORE}/keys/a") as response:
            found = json.load(response)
        assert (found["value"], found["partition"], found["role"]) == (2, partition, "active")
        before = 0
        for rounds in range(1, 61):  # while commits go on, also those of a thread that is killed
            place.words("a")
            if rounds == 30:
                kill_a_worker(app)
            now = store.get("a")
            assert before <= now <= 2 + rounds
            before = now
        eventually(lambda: store.get("a") == 62, facts=lambda: (store.get("a"), app.error))
    shutil.rmtree(place.root / "state" / f"{place.prefix}app" / "replicas")
    state = open_committed(topology, StreamsConfig(place.config()))
    assert dict(open_store(state, StoreQueryParameters(STORE)).all()) == {"a": 62, "b": 1}
    with state.reading(STORE) as reading:
        assert set(reading.sources.values()) == {"own"}
        committed = place.log.committed_offsets(f"{place.prefix}app")
        assert reading.position.offset(place.source, 0) == committed[TopicPartition(place.source, 0)] - 1
    state.close()
