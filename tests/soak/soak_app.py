"""The application of the soak: joins, windows and a repartition, every update written; all its outputs are unique.

python soak_app.py BOOTSTRAP FOLDER MASTER CHECKPOINT
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from penstock import (
    Grouped,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from penstock.errors import AppFailedError

APPLICATION = "soak"
JOIN_MS = 2_000
WINDOW_MS = 60_000
NEVER_LATE = "365 days"
INPUTS = ("users", "orders", "payments")
OUTPUTS = ("paid", "per-user", "per-city")
SLOW_S = 5.0
SESSION_S = 6
CONTINUOUS = "PENSTOCK_SOAK_CONTINUOUS"  # in the environment: the application runs in continuous mode


def topology(folder: Path) -> Topology:
    """Nothing in it depends on which partition is read first: users are there before all orders, nothing is late.

    A file ``slow-0`` or ``slow-1`` in the folder makes one task of the first or the last stage slow, once.
    """
    builder = StreamsBuilder()
    users = builder.table("users")
    orders = builder.stream("orders").map_values(lambda order: slowly(folder / "slow-0", order))
    payments = builder.stream("payments")
    text = StreamJoined(key_serde="string", value_serde="string", other_value_serde="string")
    window = JoinWindows.of(JOIN_MS, grace=NEVER_LATE)
    orders.join(payments, lambda order, payment: f"{order}|{payment}", window, text).to("paid")
    orders.group_by_key().count(Materialized("per-user")).to_stream().map_values(str).to("per-user")
    cities = orders.join(users, lambda order, city: f"{city}|{order}", Joined(key_serde="string", value_serde="string"))
    (
        cities.group_by(lambda _, value: value.split("|")[0], Grouped("by-city"))
        .windowed_by(TimeWindows.of(WINDOW_MS, grace=NEVER_LATE))
        .count(Materialized("per-city"))
        .to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window.start}")
        .map_values(lambda count: slowly(folder / "slow-1", str(count)))
        .to("per-city")
    )
    return builder.build()


def slowly(asked: Path, value: str) -> str:
    """The value; where slowness is asked for, the first attempt that comes notes who it is and waits."""
    if asked.exists():
        from pyspark import TaskContext

        if TaskContext.get().attemptNumber() > 0:
            asked.with_suffix(".again").touch()
        try:
            taken = os.open(asked.with_suffix(".taken"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return value
        os.write(taken, str(os.getpid()).encode())
        os.close(taken)
        time.sleep(SLOW_S)
    return value


def settings(bootstrap: str, folder: Path, master: str, checkpoint: str) -> dict[str, object]:
    """An empty checkpoint is the default one."""
    found = {
        **({"penstock.checkpoint.location": checkpoint} if checkpoint else {}),
        "application.id": APPLICATION,
        "bootstrap.servers": bootstrap,
        "state.dir": str(folder / "state"),
        "default.key.serde": "string",
        "default.value.serde": "string",
        "auto.offset.reset": "earliest",
        "commit.interval.ms": 100,
        "statestore.cache.max.bytes": 0,
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if os.environ.get(CONTINUOUS):
        return {**found, "processing.mode": "continuous", "session.timeout.ms": SESSION_S * 1000}
    return {
        **found,
        "processing.mode": "micro_batch",
        "penstock.snapshot.interval.batches": 20,
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "2",
        "spark.speculation.minTaskRuntime": "1s",
    }


def end_with_parent() -> None:
    """Whoever started this holds the other end of its standard input."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    home = Path(sys.argv[2])
    try:
        KafkaStreams(topology(home), settings(sys.argv[1], home, *sys.argv[3:5])).run()
    except AppFailedError as failed:
        print(failed.facts.get("details"), file=sys.stderr)
        raise
