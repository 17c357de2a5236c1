"""Flink SQL from Python: Nexmark's queries. Flink has this environment for itself; settings.py says what it holds.

Two slots in one process, state on the heap, small batches of changes and reused objects, as its vendors set it for this
benchmark; a checkpoint every ten seconds, and Kafka's transactions with it. A query reads what is there and ends. How many records
its sources have read, and when anything was processed last, comes from Flink's own metrics.

Not in SQL: q6 (an OVER aggregate of an updating table). q12 counts by ten seconds of the clock without a window, as windows of the
clock that are still open are lost where the input ends.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from settings import ENV, EXACTLY_ONCE, OUT, WORKLOAD, mark

LOOK_S, QUIET_S = 0.2, 2.0
HEAP = "-Xmx2g"
LONGEST_S = int(ENV.get("LONGEST_AUCTION_MS", "0")) // 1_000 + 1

BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` BIGINT, extra STRING"
FIELDS = "auction, bidder, price, channel, url, `dateTime`, extra"
PERSON = "id BIGINT, name STRING, `emailAddress` STRING, `creditCard` STRING, city STRING, state STRING, `dateTime` BIGINT, extra STRING"
OF_AUCTION = "`itemName` STRING, description STRING, `initialBid` BIGINT, reserve BIGINT, expires BIGINT, seller BIGINT, category BIGINT"
AUCTION = f"id BIGINT, {OF_AUCTION}, `dateTime` BIGINT, extra STRING"
TABLES = {"bid": BID, "person": PERSON, "auction": AUCTION}
TIMED = {"q4", "q5", "q7", "q8", "q9", "q11", "q13", "q18", "q20"}  # that need the time of the events

START = "UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')) * 1000"
DAY = "DATE_FORMAT(TO_TIMESTAMP_LTZ(`dateTime`, 3), 'yyyy-MM-dd')"
DOLLARS = "CAST(price AS DOUBLE) * 0.908E0"
BANDS = ("TRUE", "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
NUMBERS = ", ".join(
    f"COUNT(*) FILTER (WHERE {band}) AS bids{at}, COUNT(DISTINCT auction) FILTER (WHERE {band}) AS auctions{at}, "
    f"COUNT(DISTINCT bidder) FILTER (WHERE {band}) AS bidders{at}"
    for at, band in enumerate(BANDS)
)
NUMBER_TYPES = ", ".join(f"bids{at} BIGINT, auctions{at} BIGINT, bidders{at} BIGINT" for at in range(4))
IN_TIME = (
    "SELECT b.k AS k, a.seller AS seller, a.category AS category, a.expires AS expires, b.auction AS auction, b.bidder AS bidder, "
    "b.price AS price, b.channel AS channel, b.url AS url, b.`dateTime` AS `dateTime`, b.extra AS extra "
    "FROM auction a JOIN bid b ON a.k = b.k "
    f"AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '{LONGEST_S}' SECOND AND b.`dateTime` <= a.expires"
)
TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
BY_WINDOW = (
    "SELECT auction, COUNT(*) AS bids, window_start, window_end "
    "FROM TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end"
)
CHANNEL_ID = (
    "CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' "
    "ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END"
)

# Columns of the results behind the key k, whether a key's last one counts, and the query.
QUERIES: dict[str, tuple[str, bool, str]] = {
    "q0": (BID, False, f"SELECT k, {FIELDS} FROM bid"),
    "q1": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, `dateTime` BIGINT, extra STRING", False,
        f"SELECT k, auction, bidder, {DOLLARS}, `dateTime`, extra FROM bid",
    ),
    "q2": ("auction BIGINT, price BIGINT", False, "SELECT k, auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": (
        "name STRING, city STRING, state STRING, id BIGINT", False,
        ("SELECT a.k, p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
        "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')"),
    ),
    "q4": (
        "category BIGINT, average DOUBLE", True,
        ("SELECT CAST(category AS STRING), category, AVG(CAST(price AS DOUBLE)) FROM "
        f"(SELECT k, category, MAX(price) AS price FROM ({IN_TIME}) GROUP BY k, category) GROUP BY category"),
    ),
    "q5": (
        "`start` BIGINT, auction BIGINT, bids BIGINT", False,
        (f"SELECT CAST({START.replace('window', 'c.window')} AS STRING), {START.replace('window', 'c.window')}, c.auction, c.bids "
        f"FROM ({BY_WINDOW}) c JOIN (SELECT MAX(bids) AS most, window_start, window_end FROM ({BY_WINDOW}) GROUP BY window_start, window_end) m "
        "ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.most"),
    ),
    "q7": (
        "`start` BIGINT, auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` BIGINT, extra STRING", False,
        (f"SELECT CAST({START.replace('window', 'b.window')} AS STRING), {START.replace('window', 'b.window')}, "
        f"b.auction, b.price, b.bidder, b.`dateTime`, b.extra FROM (SELECT * FROM {TUMBLE.format('bid')}) b "
        f"JOIN (SELECT MAX(price) AS highest, window_start, window_end FROM {TUMBLE.format('bid')} GROUP BY window_start, window_end) m "
        "ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.highest"),
    ),
    "q8": (
        "id BIGINT, name STRING, `start` BIGINT", False,
        ("SELECT p.k, p.id, p.name, p.`dateTime` - MOD(p.`dateTime`, 10000) "
        f"FROM (SELECT * FROM {TUMBLE.format('person')}) p "
        f"JOIN (SELECT seller, window_start, window_end FROM {TUMBLE.format('auction')} GROUP BY seller, window_start, window_end) a "
        "ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end"),
    ),
    "q9": (
        f"seller BIGINT, category BIGINT, expires BIGINT, {BID}", True,
        (f"SELECT k, seller, category, expires, {FIELDS} FROM (SELECT *, ROW_NUMBER() OVER "
        f"(PARTITION BY k ORDER BY price DESC, `dateTime` ASC, bidder ASC) AS place FROM ({IN_TIME})) WHERE place = 1"),
    ),
    "q10": (
        f"{BID}, `day` STRING, `minute` STRING", False,
        f"SELECT k, {FIELDS}, {DAY}, DATE_FORMAT(TO_TIMESTAMP_LTZ(`dateTime`, 3), 'HH:mm') FROM bid",
    ),
    "q11": (
        "bids BIGINT", False,
        ("SELECT CAST(bidder AS STRING) || '@' || CAST(MIN(`dateTime`) AS STRING) || '-' || CAST(MAX(`dateTime`) AS STRING), COUNT(*) "
        "FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end"),
    ),
    "q12": (
        "bids BIGINT", True,
        ("SELECT CAST(bidder AS STRING) || '@' || CAST(began AS STRING), COUNT(*) FROM "
        "(SELECT bidder, UNIX_TIMESTAMP() / 10 * 10000 AS began FROM bid) GROUP BY bidder, began"),
    ),
    "q13": (
        "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` BIGINT, side STRING", False,
        ("SELECT b.k, b.auction, b.bidder, b.price, b.`dateTime`, s.`value` FROM bid b "
        "JOIN side FOR SYSTEM_TIME AS OF b.ts AS s ON CAST(MOD(b.auction, 10000) AS STRING) = s.k"),
    ),
    "q14": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, `time` STRING, `dateTime` BIGINT, extra STRING, c BIGINT", False,
        (f"SELECT k, auction, bidder, {DOLLARS}, CASE WHEN `hour` BETWEEN 8 AND 18 THEN 'day' WHEN `hour` <= 6 OR `hour` >= 20 THEN 'night' "
        "ELSE 'other' END, `dateTime`, extra, CAST(CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS BIGINT) "
        "FROM (SELECT *, HOUR(TO_TIMESTAMP_LTZ(`dateTime`, 3)) AS `hour` FROM bid) "
        f"WHERE {DOLLARS} > 1000000 AND {DOLLARS} < 50000000"),
    ),
    "q15": (
        f"`day` STRING, {NUMBER_TYPES}", True,
        (f"SELECT `day`, `day`, {', '.join(part.split()[0] for part in NUMBER_TYPES.split(', '))} "
        f"FROM (SELECT `day`, {NUMBERS} FROM (SELECT *, {DAY} AS `day` FROM bid) GROUP BY `day`)"),
    ),
    "q16": (
        f"channel STRING, `day` STRING, {NUMBER_TYPES}, `last` BIGINT", True,
        (f"SELECT channel || '|' || `day`, channel, `day`, {', '.join(part.split()[0] for part in NUMBER_TYPES.split(', '))}, `last` "
        f"FROM (SELECT channel, `day`, {NUMBERS}, MAX(`dateTime`) AS `last` FROM (SELECT *, {DAY} AS `day` FROM bid) GROUP BY channel, `day`)"),
    ),
    "q17": (
        "n0 BIGINT, n1 BIGINT, n2 BIGINT, n3 BIGINT, smallest BIGINT, largest BIGINT, total BIGINT, average DOUBLE", True,
        (f"SELECT k || '@' || `day`, {', '.join(f'COUNT(*) FILTER (WHERE {band})' for band in BANDS)}, MIN(price), MAX(price), SUM(price), "
        f"AVG(CAST(price AS DOUBLE)) FROM (SELECT k, price, {DAY} AS `day` FROM bid) GROUP BY k, `day`"),
    ),
    "q18": (
        BID, True,
        (f"SELECT CAST(bidder AS STRING) || '|' || k, {FIELDS} FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY bidder, k ORDER BY ts DESC) AS place FROM bid) WHERE place = 1"),
    ),
    "q19": (
        f"place BIGINT, {BID}", True,
        (f"SELECT k || '|' || CAST(place AS STRING), place, {FIELDS} FROM (SELECT *, ROW_NUMBER() OVER "
        "(PARTITION BY k ORDER BY price DESC) AS place FROM bid) WHERE place <= 10"),
    ),
    "q20": (
        f"{BID}, {OF_AUCTION}, opened BIGINT", False,
        (f"SELECT b.k, {', '.join(f'b.{name}' for name in FIELDS.split(', '))}, a.`itemName`, a.description, a.`initialBid`, a.reserve, "
        "a.expires, a.seller, a.category, a.`dateTime` FROM bid b JOIN auction a ON b.k = a.k "
        "AND a.ts BETWEEN b.ts - INTERVAL '1' DAY AND b.ts + INTERVAL '1' DAY WHERE a.category = 10"),
    ),
    "q21": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, channel_id STRING", False,
        f"SELECT * FROM (SELECT k, auction, bidder, price, channel, {CHANNEL_ID} AS channel_id FROM bid) WHERE channel_id IS NOT NULL",
    ),
    "q22": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dir1 STRING, dir2 STRING, dir3 STRING", False,
        f"SELECT k, auction, bidder, price, channel, {', '.join(f'SPLIT_INDEX(url, {chr(39)}/{chr(39)}, {at})' for at in (3, 4, 5))} FROM bid",
    ),
}  # fmt: skip


def options(**more: str) -> str:
    """The options of a table: a text key, and a value of JSON with the other columns."""
    every = {
        "properties.bootstrap.servers": ENV["BOOTSTRAP"],
        "key.format": "raw", "value.format": "json", "value.fields-include": "EXCEPT_KEY",
    } | more  # fmt: skip
    return "WITH (" + ", ".join(f"'{name}' = '{value}'" for name, value in every.items()) + ")"


def sources(query: str, text: str) -> list[str]:
    """The tables that the query reads: all that is in their topics now."""
    made = []
    bounded = {"scan.bounded.mode": "latest-offset"}
    for name, columns in TABLES.items():
        if f" {name}" not in text:
            continue
        time_of_events = ", ts AS TO_TIMESTAMP_LTZ(`dateTime`, 3), WATERMARK FOR ts AS ts" if query in TIMED else ""
        where = {"connector": "kafka", "topic": ENV[f"TOPIC_{name.upper()}"], "key.fields": "k"}
        more = where | bounded | {"scan.startup.mode": "earliest-offset"}
        made.append(f"CREATE TABLE {name} (k STRING, {columns}{time_of_events}) {options(**more)}")
    if query == "q13":
        made.append(
            "CREATE TABLE side (k STRING, `key` BIGINT, `value` STRING, ts AS TO_TIMESTAMP_LTZ(`key` * 0, 3), "
            "WATERMARK FOR ts AS ts, PRIMARY KEY (k) NOT ENFORCED) "
            + options(connector="upsert-kafka", topic=ENV["TOPIC_SIDE"], **bounded)
        )
    return made


def sink(columns: str, *, last_counts: bool) -> str:
    """The table of the results."""
    where = {"connector": "upsert-kafka" if last_counts else "kafka", "topic": OUT}
    if EXACTLY_ONCE:
        where |= {
            "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": ENV["APP_ID"],
            "properties.transaction.timeout.ms": "600000",
        }  # fmt: skip
    if last_counts:
        return f"CREATE TABLE results (k STRING, {columns}, PRIMARY KEY (k) NOT ENFORCED) {options(**where)}"
    return f"CREATE TABLE results (k STRING, {columns}) {options(**where, **{'key.fields': 'k'})}"


class Progress(threading.Thread):
    """Reads Flink's metrics by HTTP while the job runs, and makes marks of them."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._address = f"http://127.0.0.1:{port}"
        self.changed = self.read = 0
        self.left = False

    def run(self) -> None:
        job, seen = "", ()
        while True:
            time.sleep(LOOK_S)
            try:
                job = job or self._get("/jobs")["jobs"][0]["id"]
                vertices = self._get(f"/jobs/{job}")["vertices"]
                numbers = tuple(
                    (each["metrics"]["read-records"], each["metrics"]["write-records"]) for each in vertices
                )
                read = sum(self._read(job, each["id"]) for each in vertices if "Source" in each["name"])
            except (OSError, LookupError, ValueError):
                continue
            now = int(time.time() * 1_000)
            if read and not self.read:
                print("@@FIRST", now, flush=True)
            if read > self.read:
                print("@@AT", now, read, flush=True)
            if (read, numbers) != seen:
                seen, self.read, self.changed = (read, numbers), max(read, self.read), now
            expected = int(ENV["EXPECT_PROCESSED"])
            if self.read >= expected and now - self.changed > QUIET_S * 1_000 and not self.left:
                self.left = True  # else it would wait for the next checkpoint, and only then end
                self._get(f"/jobs/{job}/checkpoints", b'{"checkpointType": "CONFIGURED"}')

    def _read(self, job: str, vertex: str) -> int:
        """How many records the sources of a vertex have read."""
        metrics = f"/jobs/{job}/vertices/{vertex}/subtasks/metrics"
        names = [each["id"] for each in self._get(metrics)]
        wanted = [name for name in names if name.startswith("Source") and name.endswith(".numRecordsIn")]
        if not wanted:
            return 0
        return sum(int(each["sum"]) for each in self._get(f"{metrics}?get={','.join(wanted)}&agg=sum"))

    def _get(self, path: str, body: bytes | None = None) -> Any:
        asked = urllib.request.Request(self._address + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return json.loads(answer.read())


def main() -> None:
    state = Path(ENV["STATE_DIR"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ["JVM_ARGS"] = HEAP
    os.environ["FLINK_LOG_DIR"] = str(state)
    from pyflink.common import Configuration
    from pyflink.table import EnvironmentSettings, TableEnvironment

    configuration = Configuration()
    for name, value in {
        "pipeline.jars": f"file://{sys.argv[1]}", "pipeline.object-reuse": "true", "parallelism.default": "2",
        "rest.bind-port": str(port), "rest.address": "127.0.0.1", "metrics.fetcher.update-interval": "100",
        "execution.checkpointing.interval": "10 s", "execution.checkpointing.dir": f"file://{state}/checkpoints",
        "execution.checkpointing.storage": "filesystem", "state.backend.type": "hashmap",
        "table.local-time-zone": "UTC", "table.exec.sink.upsert-materialize": "NONE",
        "table.exec.mini-batch.enabled": "true", "table.exec.mini-batch.allow-latency": "2 s", "table.exec.mini-batch.size": "50000",
    }.items():  # fmt: skip
        configuration.set_string(name, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    columns, last_counts, text = QUERIES[WORKLOAD]
    for statement in (*sources(WORKLOAD, text), sink(columns, last_counts=last_counts)):
        tables.execute_sql(statement)
    progress = Progress(port)
    progress.start()
    mark("RUNNING")
    tables.execute_sql(f"INSERT INTO results {text}").wait()
    print("@@PROCESSED", progress.changed or int(time.time() * 1_000), flush=True)


if __name__ == "__main__":
    main()
