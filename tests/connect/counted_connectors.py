"""A source of counted records in several partitions, which move between its tasks when their number changes."""

import time

from penstock.connect.api import SourceConnector, SourceTask
from penstock.connect.config import ConfigDef, Kind, Setting
from penstock.connect.data import STRING, SourceRecord

PARTITIONS = 6
BATCH = 10


class CountedTask(SourceTask):
    """Makes the records ``PARTITION-NUMBER`` of its partitions, up to the setting ``records``."""

    java_class = "CountedTask"

    def start(self, settings):
        self.topic, self.records = settings["topic"], int(settings["records"])
        self.pause_s = float(settings["pause.s"])
        places = [int(part) for part in settings["places"].split(",") if part]
        stored = self.context.offset_reader.offsets([{"place": place} for place in places])
        self.next = {place: at["next"] if at else 0 for place, at in zip(places, stored, strict=True)}

    def poll(self):
        made = []
        for place, at in self.next.items():
            following = min(at + BATCH, self.records)
            made += [
                SourceRecord(
                    topic=self.topic, value=f"{place}-{number}", value_schema=STRING,
                    source_partition={"place": place}, source_offset={"next": number + 1},
                )
                for number in range(at, following)
            ]  # fmt: skip
            self.next[place] = following
        if made:
            time.sleep(self.pause_s)
        return made or None


class CountedConnector(SourceConnector):
    """Deals the partitions out to its tasks."""

    java_class = "CountedConnector"
    version = "1.0"
    config = ConfigDef(
        [
            Setting(name="topic", kind=Kind.STRING),
            Setting(name="records", kind=Kind.INT, default="0"),
            Setting(name="pause.s", kind=Kind.DOUBLE, default="0.02"),
        ]
    )
    task_class = CountedTask

    def start(self, settings):
        self.settings = {"records": "0", "pause.s": "0.02", **settings}

    def task_configs(self, max_tasks):
        shares = [range(number, PARTITIONS, max_tasks) for number in range(min(max_tasks, PARTITIONS))]
        return [{**self.settings, "places": ",".join(map(str, share))} for share in shares]
