"""Count by minute, wait for records that come a little late, and keep those that come too late.

A window takes records until stream time, the largest timestamp so far, has passed its end by `grace`. Later records
are dropped and counted in the metric `dropped-records-total`. To look at them, or to add them by another way,
`TooLate` sends copies to a topic of their own.
"""

from __future__ import annotations

from typing import Any

from penstock import Processor, Produced, Record, Serdes, StreamsBuilder, TimeWindows, TopologyTestDriver

MINUTE, GRACE = 60_000, 30_000
config = {
    "application.id": "late-data",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "__emit.interval.ms.kstreams.windowed.aggregation__": 0,  # look for closed windows at each record, not each second
}


class TooLate(Processor[str, str]):
    def process(self, record: Record[str, str]) -> None:
        window_end = record.timestamp - record.timestamp % MINUTE + MINUTE
        if window_end + GRACE <= self.context.current_stream_time_ms():
            self.context.forward(record)


builder = StreamsBuilder()
clicks: Any = builder.stream("clicks")
(
    clicks.group_by_key()
    .windowed_by(TimeWindows.of(MINUTE, grace=GRACE))
    .emit_strategy("on_window_close")  # one final result for each window
    .count("clicks-by-minute")
    .to_stream()
    .to("counts", Produced(key_serde=Serdes.time_windowed("string", MINUTE), value_serde="long"))
)
clicks.process(TooLate, name="too-late").to("late-clicks")
topology = builder.build()

SECOND = 1_000
CLICKS = [
    ("home", "a", 5 * SECOND),
    ("home", "b", 20 * SECOND),
    ("help", "c", 50 * SECOND),
    ("home", "d", 65 * SECOND),  # the next minute
    ("home", "e", 55 * SECOND),  # late, within the grace
    ("help", "f", 80 * SECOND),
    ("home", "g", 91 * SECOND),  # the first minute closes
    ("home", "h", 58 * SECOND),  # too late
    ("help", "i", 62 * SECOND),  # its minute is open
    ("help", "j", 200 * SECOND),  # the second minute closes
]


def test_late_clicks_count_until_their_minute_closes() -> None:
    with TopologyTestDriver(topology, config) as driver:
        for page, visitor, time in CLICKS:
            driver.input_topic("clicks").pipe(visitor, page, time)
        counts = [(k.key, k.window.start, n) for k, n in driver.output_topic("counts").read_key_values_to_list()]
        assert counts == [("help", 0, 1), ("home", 0, 3), ("help", MINUTE, 2), ("home", MINUTE, 2)]
        late = driver.output_topic("late-clicks").read_key_values_to_list()
        assert late == [("home", "h")]
        assert driver.dropped_records == 1


if __name__ == "__main__":
    test_late_clicks_count_until_their_minute_closes()
