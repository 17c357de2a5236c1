"""The measurements of sensors, and the groups that the sensors are in, by seed.

Every sensor sends an Avro record a second: its identifier, the time in milliseconds, the power in watts. The powers are eighths,
so their sums are exact in any order. Ten sensors make a group, ten groups make one of the next level, up to the one of all; every
seventh sensor is in the group "special" too, and half-way every tenth moves to the next group. ``slow_by`` stretches the times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock import Serdes

RECORD = {
    "type": "record", "name": "Power",
    "fields": [
        {"name": "identifier", "type": "string"}, {"name": "timestamp", "type": "long"}, {"name": "valueInW", "type": "double"},
    ],
}  # fmt: skip
AVRO = Serdes.avro(RECORD, framing="none")
BASE_MS = 1_790_812_800_000  # a whole day
OF_GROUP = 10
MOVING, SPECIAL = 10, 7  # every so-manieth sensor


@dataclass(frozen=True, slots=True)
class Plant:
    """So many records of so many sensors."""

    count: int
    sensors: int = 1_000
    slow_by: int = 1
    seed: int = 1

    def frame(self) -> pl.DataFrame:
        """Identifier, timestamp and valueInW, in the order of time."""
        number = np.arange(self.count)
        second, sensor = number // self.sensors, number % self.sensors
        time = BASE_MS + (second * 1_000 + sensor * 1_000 // self.sensors // 2 * 2) * self.slow_by
        watts = np.random.default_rng(self.seed).integers(0, 16_000, self.count) / 8
        frame = pl.DataFrame({"sensor": sensor, "timestamp": time, "valueInW": watts})
        return frame.select(pl.format("sensor-{}", "sensor").alias("identifier"), "timestamp", "valueInW")

    def records(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, value and timestamp."""
        for row in self.frame().iter_rows(named=True):
            yield row["identifier"].encode(), AVRO.serialize(row), row["timestamp"]

    @property
    def half_way_ms(self) -> int:
        """When sensors move: an odd number, as no record has."""
        return BASE_MS + self.count // self.sensors // 2 * 1_000 * self.slow_by + 501

    @property
    def depth(self) -> int:
        """The levels of groups."""
        return len(self._levels())

    def _levels(self) -> list[int]:
        sizes = [self.sensors]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // OF_GROUP))
        return sizes[1:]

    def groups(self) -> pl.DataFrame:
        """What is directly in which groups since when: child, parents, timestamp."""
        levels, rows = self._levels(), []
        for sensor in range(self.sensors):
            group = sensor // OF_GROUP
            special = ["special"] if sensor % SPECIAL == 0 else []
            rows.append((f"sensor-{sensor}", [f"group-1-{group}", *special], BASE_MS - 1))
            if sensor % MOVING == 0:
                rows.append((f"sensor-{sensor}", [f"group-1-{(group + 1) % levels[0]}", *special], self.half_way_ms))
        for level, size in enumerate(levels[:-1], 1):
            rows += [(f"group-{level}-{n}", [f"group-{level + 1}-{n // OF_GROUP}"], BASE_MS - 1) for n in range(size)]
        frame = pl.DataFrame(rows, schema=["child", "parents", "timestamp"], orient="row")
        return frame.sort("timestamp", maintain_order=True)

    def group_records(self) -> Iterator[tuple[bytes, bytes, int]]:
        for child, parents, timestamp in self.groups().iter_rows():
            yield child.encode(), json.dumps(parents).encode(), timestamp
