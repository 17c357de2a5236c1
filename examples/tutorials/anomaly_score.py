"""Score each reading by its distance from what its sensor usually sends.

For each sensor a store keeps the count, the mean and the sum of squared differences (Welford's method), which are
enough for a running mean and variance: no readings are kept. The score is the distance from the mean in standard
deviations. A reading that is far out does not change the mean, so that one fault does not hide the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from penstock import FixedKeyProcessor, ProcessorContext, Produced, Record, Stores, StreamsBuilder, TopologyTestDriver

WARM_UP, FAR_OUT = 5, 4.0
config = {
    "application.id": "anomaly-score",
    "default.key.serde": "string",
    "default.value.serde": "double",
    "deserialization.exception.handler": "continue",
}


class Score(FixedKeyProcessor[str, float]):
    @classmethod
    def stores(cls) -> Iterable[Any]:
        return [Stores.key_value("statistics", key_serde="string", value_serde="json")]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.statistics: Any = context.get_state_store("statistics")

    def process(self, record: Record[str, float]) -> None:
        count, mean, squares = self.statistics.get(record.key) or (0, 0.0, 0.0)
        score = 0.0
        if count >= WARM_UP and squares > 0:
            score = abs(record.value - mean) / math.sqrt(squares / (count - 1))
        if score < FAR_OUT:
            from_old_mean = record.value - mean
            mean += from_old_mean / (count + 1)
            self.statistics.put(record.key, [count + 1, mean, squares + from_old_mean * (record.value - mean)])
        self.context.forward(record.with_value({"reading": record.value, "score": round(score, 1)}))


builder = StreamsBuilder()
(
    builder.stream("readings")
    .process_values(Score, name="score")
    .filter(lambda scored: scored["score"] >= FAR_OUT)
    .to("anomalies", Produced(value_serde="json"))
)
topology = builder.build()

READINGS = [20.0, 21.0, 19.0, 20.5, 19.5, 20.2, 35.0, 20.1, 19.8, 36.0, 20.4, 19.9]


def test_readings_that_are_far_out_are_found() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for time, reading in enumerate(READINGS):
            driver.input_topic("readings").pipe(reading, "oven", time)
            driver.input_topic("readings").pipe(reading + 15.0, "kiln", time)  # 35 is usual here
        driver.pipe_raw("readings", b"oven", b"hot!", 99, ())  # not eight bytes: skipped, and counted
        anomalies = driver.output_topic("anomalies").read_key_values_to_list()
        found = [(sensor, scored["reading"]) for sensor, scored in anomalies]
        assert found == [("oven", 35.0), ("kiln", 50.0), ("oven", 36.0), ("kiln", 51.0)]
        assert driver.store("statistics").get("oven")[0] == len(READINGS) - 2
        assert driver.dropped_records == 1


if __name__ == "__main__":
    test_readings_that_are_far_out_are_found()
