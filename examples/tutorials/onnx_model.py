"""Score records with an ONNX model, by column.

A model that was trained anywhere (scikit-learn, PyTorch) and exported to ONNX runs here without its library. It is
called in a Polars expression: once for each batch, with all rows as one matrix. `model_of` makes a small model, a
logistic regression with two inputs; in production you would read a file. It needs `pip install onnx onnxruntime`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import polars as pl
from onnx import TensorProto, helper

from penstock import Consumed, Produced, Serdes, StreamsBuilder, TopologyTestDriver

config = {"application.id": "onnx-model", "default.key.serde": "string"}
FEATURES = ["amount", "hour"]
batches: list[int] = []


def model_of(weights: list[float], bias: float) -> bytes:
    """Return a model whose score is the sigmoid of weights times features, plus a bias."""
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["features", "weights", "bias"], ["sum"]),
            helper.make_node("Sigmoid", ["sum"], ["score"]),
        ],
        "fraud",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, len(weights)])],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, [None, 1])],
        [
            helper.make_tensor("weights", TensorProto.FLOAT, [len(weights), 1], weights),
            helper.make_tensor("bias", TensorProto.FLOAT, [1], [bias]),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


MODEL = model_of([0.01, -0.5], 2.0)  # large amounts at night


@cache
def session() -> Any:
    """Open the model once in each process, not where the topology is built: a session cannot be sent to workers."""
    return onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])


def score(features: pl.Series) -> pl.Series:
    batches.append(len(features))
    matrix = features.struct.unnest().to_numpy().astype(np.float32)
    return pl.Series(session().run(["score"], {"features": matrix})[0][:, 0], dtype=pl.Float32)


builder = StreamsBuilder()
scored = pl.struct(*FEATURES).map_batches(score, return_dtype=pl.Float32, is_elementwise=True).alias("score")
(
    builder.stream("payments", Consumed(value_serde=Serdes.json({"amount": float, "hour": int})))
    .filter(pl.col("amount").is_not_null() & pl.col("hour").is_between(0, 23))
    .map_values(pl.struct(pl.col("amount"), scored))
    .filter(pl.col("score") > 0.99)
    .to("suspicious", Produced(value_serde="json"))
)
topology = builder.build()

PAYMENTS: list[tuple[str, Any]] = [
    ("1", {"amount": 20.0, "hour": 12}),
    ("2", {"amount": 900.0, "hour": 3}),
    ("3", {"amount": 900.0, "hour": 15}),
    ("4", {"amount": 15.0, "hour": 2}),
    ("5", {"hour": 4}),  # wrong: without an amount
    ("6", {"amount": 5_000.0, "hour": 20}),
    ("7", {"amount": 80.0, "hour": 99}),  # wrong: no hour of a day
    ("8", {"amount": 60.0, "hour": 9}),
    ("9", {"amount": 400.0, "hour": 1}),
    ("10", {"amount": 30.0, "hour": 18}),
]


def test_large_payments_at_night_are_suspicious() -> None:
    batches.clear()
    with TopologyTestDriver(topology, config, batch_size=100) as driver:
        driver.input_topic("payments").pipe_many(PAYMENTS)
        driver.flush()
        assert [key for key, _ in driver.output_topic("suspicious").read_key_values_to_list()] == ["2", "6", "9"]
    assert batches == [8]  # one call of the model for the whole batch


if __name__ == "__main__":
    test_large_payments_at_night_are_suspicious()
