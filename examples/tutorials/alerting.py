"""Raise an alert when a machine is hot, clear it when it has cooled down, and say when it is silent.

One limit alone would raise and clear an alert at every small change. So there are two: an alert is raised at 80
degrees and cleared below 60 (hysteresis). A machine that has sent nothing for five minutes is silent. That is seen on
the clock (`wall_clock_time`), because stream time does not move if all of them are silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import Processor, ProcessorContext, Produced, Record, Stores, StreamsBuilder, TopologyTestDriver

RAISE_AT, CLEAR_BELOW = 80.0, 60.0
SILENT_AFTER_MS = 300_000
config = {"application.id": "alerting", "default.key.serde": "string", "default.value.serde": "double"}


class Alerts(Processor[str, float]):
    @classmethod
    def stores(cls) -> Iterable[Any]:
        return [Stores.key_value("machines", key_serde="string", value_serde="json")]

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.machines: Any = context.get_state_store("machines")
        context.schedule("1 minute", "wall_clock_time", self.look_for_silence)

    def process(self, record: Record[str, float]) -> None:
        machine = self.machines.get(record.key) or {"hot": False, "silent": False, "at": -1}
        if record.timestamp < machine["at"]:
            return  # late: a newer reading has decided already
        if machine["silent"]:
            self.context.forward(record.with_value("is back"))
        hot = record.value >= (CLEAR_BELOW if machine["hot"] else RAISE_AT)
        if hot != machine["hot"]:
            self.context.forward(record.with_value("is hot" if hot else "has cooled down"))
        seen = self.context.current_system_time_ms()
        self.machines.put(record.key, {"hot": hot, "silent": False, "at": record.timestamp, "seen": seen})

    def look_for_silence(self, now_ms: int) -> None:
        for name, machine in list(self.machines.all()):
            if not machine["silent"] and now_ms - machine["seen"] >= SILENT_AFTER_MS:
                self.machines.put(name, {**machine, "silent": True})
                self.context.forward(Record(name, "is silent", now_ms))


builder = StreamsBuilder()
builder.stream("temperatures").process(Alerts, name="alerts").to("alerts", Produced(value_serde="string"))
topology = builder.build()

READINGS = [
    ("mill", 71.0, 1_000),
    ("pump", 40.0, 1_500),
    ("mill", 81.0, 2_000),  # raised
    ("mill", 79.0, 3_000),  # between the limits: nothing changes
    ("mill", 82.0, 4_000),
    ("mill", 61.0, 5_000),
    ("mill", 55.0, 6_000),  # cleared
    ("mill", 99.0, 4_500),  # late
    ("mill", 62.0, 7_000),  # between the limits again
    ("pump", 85.0, 8_000),  # raised
]


def test_an_alert_is_raised_and_cleared_once() -> None:
    with TopologyTestDriver(topology, config) as driver:
        temperatures, alerts = driver.input_topic("temperatures"), driver.output_topic("alerts")
        for machine, degrees, time in READINGS:
            temperatures.pipe(degrees, machine, time)
        assert alerts.read_key_values_to_list() == [
            ("mill", "is hot"),
            ("mill", "has cooled down"),
            ("pump", "is hot"),
        ]
        driver.advance_wall_clock_time("4 minutes")
        temperatures.pipe(84.0, "pump", 250_000)
        driver.advance_wall_clock_time("1 minute")
        driver.advance_wall_clock_time("1 minute")
        temperatures.pipe(50.0, "mill", 370_000)
        assert alerts.read_key_values_to_list() == [("mill", "is silent"), ("mill", "is back")]


if __name__ == "__main__":
    test_an_alert_is_raised_and_cleared_once()
