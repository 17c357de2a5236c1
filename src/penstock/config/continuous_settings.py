"""Settings of stream threads (``processing.mode=continuous``); micro-batches do not look at them."""

from __future__ import annotations

from typing import Any

from penstock.config.kinds import DURATION, IDLE_TIME, SIZE, SettingKind, choice, integer

__all__ = ["CONTINUOUS", "MICRO_BATCH_ONLY"]

MICRO_BATCH_ONLY = frozenset(
    {
        "penstock.max.records.per.batch",
        "penstock.max.bytes.per.batch",
        "penstock.max.records.per.partition",
        "penstock.min.records.per.batch",
        "penstock.max.wait.ms",
        "penstock.max.batch.ms",
        "penstock.batch.pause.ms",
        "penstock.snapshot.interval.batches",
        "penstock.state.map.size",
    }
)
"""Settings that have no effect on stream threads, whose memory and pace the settings below limit."""

CONTINUOUS: tuple[tuple[str, SettingKind, Any, str], ...] = (
    (
        "group.protocol",
        choice("classic", "streams"),
        None,
        (
            "`streams`: each stream thread is a member of the application's group (KIP-1071; Kafka 4.2 and later), and "
            "all instances of the application share its tasks. `classic`: one instance runs, and a second one is "
            "refused. By default the first instance runs alone, and goes over to `streams` when a second one is "
            "started. Only with `processing.mode=continuous`."
        ),
    ),
    (
        "penstock.heartbeat.interval.ms",
        DURATION,
        None,
        (
            "Time between two heartbeats by which an instance with `group.protocol=streams` looks whether others have "
            "come or gone; by default 100 ms. One of its threads looks so often. The others ask ten times less often, "
            "and at once when that one has noticed something. The interval of the brokers (5 s) is the longest."
        ),
    ),
    (
        "num.stream.threads",
        integer(1),
        None,
        "Most stream threads of the whole application; by default as many as Spark can run at once.",
    ),
    (
        "max.task.idle.ms",
        IDLE_TIME,
        0,
        (
            "Time for which a task with several partitions waits for one that is empty (KIP-695). 0: only for records "
            "that are known to be in the log; -1: not at all. Only with `processing.mode=continuous`."
        ),
    ),
    (
        "buffered.records.per.partition",
        integer(1),
        100_000,
        "Buffered records above which a stream thread pauses a partition (Kafka: 1000; here they are columns).",
    ),
    (
        "input.buffer.max.bytes",
        SIZE,
        512 << 20,
        "Buffered bytes of all partitions above which a stream thread pauses those that have buffered records.",
    ),
    (
        "max.poll.records",
        integer(1),
        250_000,
        (
            "Most records that a stream thread's task processes at once (Kafka: 1000; here they are columns). It takes "
            "fewer if its functions are so slow that a batch would last longer than half a second."
        ),
    ),
    (
        "repartition.purge.interval.ms",
        DURATION,
        30_000,
        "Time between deletions of the records of repartition topics that have been processed and committed.",
    ),
    (
        "acceptable.recovery.lag",
        integer(0),
        10_000,
        (
            "Records by which a replica may be behind and still count as caught up: to answer queries, or to take its "
            "task over."
        ),
    ),
    (
        "num.standby.replicas",
        integer(0),
        0,
        (
            "Standbys of each task with state, on other machines than the task and each other. Only with "
            "`processing.mode=continuous`."
        ),
    ),
    (
        "max.warmup.replicas",
        integer(1),
        2,
        "Most replicas, besides the standbys, that are warmed up at once for tasks that are to move.",
    ),
    (
        "probing.rebalance.interval.ms",
        DURATION,
        10_000,
        "Time between two checks of warm-ups: tasks move once these have caught up (Kafka: 600000).",
    ),
)
