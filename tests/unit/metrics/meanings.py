"""What descriptions say of metrics whose meaning differs from that of Kafka Streams.

By a regular expression of ``<group>:<name>``; words that the description has.
"""

from __future__ import annotations

MEANINGS = {
    "stream-metrics:alive-stream-threads": "Cores that run tasks, or stream threads",
    "stream-metrics:failed-stream-threads": "Restarts of the query, or of stream threads",
    "stream-thread-metrics:(thread-)?state": "state of the application",
    "stream-thread-metrics:blocked-time-ns-total": "tasks read from the log and wrote to it, summed over all tasks",
    "stream-thread-metrics:commit-(latency-.*|ratio)": "the slowest task of a batch published its changes and wrote",
    "stream-thread-metrics:commit-ratio": "the slowest task of each batch published its changes and wrote",
    "stream-thread-metrics:(commit|poll)-(rate|total)": "Micro-batches, or looks at stream threads",
    "stream-thread-metrics:poll-latency-.*": "the slowest task of a batch read",
    "stream-thread-metrics:(poll|process)-records-.*": "a micro-batch, or",
    "stream-thread-metrics:task-(closed|created)-.*": "Tasks that a worker",
    "stream-state-updater-metrics:active-restoring-tasks": "caught up in the newest batch",
    "stream-state-updater-metrics:restore-call-rate": "segments of the checkpoint",
    "stream-state-updater-metrics:restore-records-rate": "Changes that were applied to replicas",
    "stream-task-metrics:restore-.*": "Changes of segments, snapshots or changelogs",
    "stream-processor-node-metrics:record-e2e-latency-.*": "Others see it after the commit",
    "stream-processor-node-metrics:window-aggregate-final-emit-latency-.*": "There is one a batch",
    "stream-topic-metrics:bytes-consumed-total": "what Kafka adds to each record",
    "stream-state-metrics:bytes-written-.*": "rows of this store that changed",
    "stream-state-metrics:commit-latency-.*": "of all stores of the task together",
    "stream-state-metrics:commit-rate": "Micro-batches, or commits of stream threads",
    "stream-state-metrics:(all|delete|fetch|get|put|range|remove)-latency-.*": "A call for many of them counts by its mean",
    "stream-state-metrics:(estimate-)?num-keys": "before the newest batch",
    "stream-state-metrics:restore-latency-.*": "of all stores of the task together",
    "stream-state-metrics:restore-rate": "Catch-ups of the task's replica",
    "stream-state-metrics:suppression-buffer-count-.*": "before each batch",
    "consumer-coordinator-metrics:commit-.*": "by the driver",
    "consumer-coordinator-metrics:.*heartbeat-.*": "of the application's lease",
    "consumer-coordinator-metrics:.*rebalance-.*": "ew plan",
    "consumer-fetch-manager-metrics:fetch-latency-.*": "waits behind decoding",
    "consumer-fetch-manager-metrics:fetch-(rate|total)": " of all workers",
    "consumer-metrics:(last-poll-seconds-ago|poll-idle-ratio-avg|time-between-poll-.*)": "micro-batch",
    "producer-(topic-)?metrics:record-retry-.*": "Records of produce requests that were sent again",
}
