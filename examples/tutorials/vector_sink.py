"""Turn texts into vectors by column, and send them to an index.

A model is fast with many texts at once, so it is called for a column, in a Polars expression: once for each batch,
not once for each record; `is_elementwise` says that the result of a row depends on that row alone. The vectors go to
a topic, and from there to the index of your choice: `WebhookSink` posts lists of records to any HTTP server,
`ElasticsearchSinkConnector` writes to OpenSearch. `embed` stands for a model here: it counts letters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from penstock import Consumed, Produced, Serdes, StreamsBuilder, TopologyTestDriver
from penstock.connect import sink
from penstock.connect.testing import ConnectTestDriver

SIZE = 26
config = {"application.id": "vector-sink", "default.key.serde": "string"}
calls: list[int] = []


def embed(texts: pl.Series) -> pl.Series:
    """Make a vector of length one of each text."""
    calls.append(len(texts))
    vectors = np.zeros((len(texts), SIZE), dtype=np.float32)
    for row, text in enumerate(texts):
        for letter in (text or "").lower():
            if "a" <= letter <= "z":
                vectors[row, ord(letter) - ord("a")] += 1
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return pl.Series((vectors / np.maximum(lengths, 1)).tolist(), dtype=pl.List(pl.Float32))


builder = StreamsBuilder()
(
    builder.stream("texts", Consumed(value_serde=Serdes.json({"title": str, "text": str})))
    .filter(pl.col("text").str.strip_chars().str.len_chars() > 0)
    .map_values(
        pl.struct(
            pl.col("title"),
            pl.col("text").map_batches(embed, return_dtype=pl.List(pl.Float32), is_elementwise=True).alias("vector"),
        )
    )
    .to("vectors", Produced(value_serde="json"))
)
topology = builder.build()

TEXTS: list[tuple[str, Any]] = [
    ("1", {"title": "zoo", "text": "a zebra and a lizard"}),
    ("2", {"title": "sea", "text": "sea and seals and eels"}),
    ("3", {"title": "gap", "text": "   "}),  # nothing to embed
    ("4", {"title": "bees", "text": "bees see trees"}),
    ("5", {"title": "lama", "text": "a lama, a llama"}),
    ("6", {"title": "none"}),  # wrong: without a text
    ("7", {"title": "jazz", "text": "jazz, fuzz, buzz"}),
    ("8", {"title": "moon", "text": "moon, noon, soon"}),
    ("9", {"title": "kiwi", "text": "kiwi, ski, skin"}),
    ("10", {"title": "hill", "text": "hill, will, still"}),
]


def test_texts_are_embedded_by_column_and_found() -> None:
    calls.clear()
    with TopologyTestDriver(topology, config, batch_size=100) as driver:
        driver.input_topic("texts").pipe_many(TEXTS)
        driver.flush()
        vectors = driver.output_topic("vectors").read_values_to_list()
    assert calls == [8]  # one call for the whole batch
    index: dict[str, np.ndarray[Any, Any]] = {}

    @sink("Index")
    def to_index(_: Any, batch: Any) -> None:
        index.update({record.value["title"]: np.array(record.value["vector"]) for record in batch})

    driver_of_sink = ConnectTestDriver(to_index, {"topics": "vectors"})
    driver_of_sink.produce("vectors", *vectors)
    assert driver_of_sink.put_all() == 8
    query = np.array(embed(pl.Series(["buzz of jazz"])).to_list()[0])
    assert max(index, key=lambda title: float(query @ index[title])) == "jazz"


if __name__ == "__main__":
    test_texts_are_embedded_by_column_and_found()
