"""Warn when it gets hot: Kafka's TemperatureDemo.

The highest temperature of each five seconds, as soon as it is above 20 degrees.
"""

from __future__ import annotations

from penstock import Produced, Serdes, StreamsBuilder, TimeWindows

config = {
    "application.id": "streams-temperature",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "statestore.cache.max.bytes": 0,
}
THRESHOLD = 20
WINDOW = TimeWindows.of("5 seconds", grace="24 hours")

builder = StreamsBuilder()
maximum = (
    builder.stream("iot-temperature")
    # Temperatures come without a key; to be grouped they need one.
    .select_key(lambda _: "temp")
    .group_by_key()
    .windowed_by(WINDOW)
    .reduce(lambda one, other: one if int(one) > int(other) else other)
    .to_stream()
    .filter(lambda value: int(value) > THRESHOLD)
)
windowed = Serdes.time_windowed("string", "5 seconds")
maximum.to("iot-temperature-max", Produced(key_serde=windowed, value_serde="string"))
topology = builder.build()

RECORDS = [
    ("iot-temperature", None, "10", 0),
    ("iot-temperature", None, "25", 1000),
    ("iot-temperature", None, "22", 2000),
    ("iot-temperature", None, "15", 6000),
    ("iot-temperature", None, "30", 7000),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
