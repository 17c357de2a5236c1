"""A count in continuous mode on two executors with folders of their own: ``standby_app.py ROOT [setting=value ...]``.

It writes what happens as lines of JSON to its standard output: restores, and once a second the replicas.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from penstock import KafkaStreams, Materialized, StateRestoreListener, StreamsBuilder

WORKERS_OWN = "/proc/self/cwd/state"  # executors of a local cluster have working directories of their own


class Printer(StateRestoreListener):
    def on_restore_end(self, place, store, total):
        say("restored", partition=place.partition, store=store, total=total)


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, "at": time.time(), **facts}), flush=True)


def main(root: str, *more: str) -> None:
    builder = StreamsBuilder()
    builder.stream("words").group_by_key().count(Materialized("counts")).to_stream().to("out")
    config = {
        "application.id": "standby",
        "bootstrap.servers": f"sqlite:///{root}/log.db",
        "state.dir": WORKERS_OWN,
        "penstock.checkpoint.location": f"{root}/checkpoint",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "statestore.cache.max.bytes": 0,
        "processing.mode": "continuous",
        "commit.interval.ms": 20,
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # they live for seconds
        "num.standby.replicas": 1,
        "spark.ui.enabled": "false",
        **dict(setting.split("=", 1) for setting in more),
    }
    app = KafkaStreams(builder.build(), config)
    app.set_global_state_restore_listener(Printer())
    app.start()
    threading.Thread(target=watch, args=[app], daemon=True).start()
    sys.stdin.read()  # until it is closed
    app.close()


def watch(app: KafkaStreams) -> None:
    while True:
        run = app._run
        epoch = run.engine._jobs._epoch if run is not None and run.engine._jobs is not None else None
        if epoch is not None:
            threads = {
                name: {"pid": each.pid, "place": each.place, "owned": sorted(each.report.get("owned", ())),
                       "standbys": each.report.get("standbys", {}), "state": each.state}
                for name, each in dict(epoch.threads).items()
            }  # fmt: skip
            say(
                "state", state=app.state.value, epoch=epoch.job.epoch, threads=threads, on=app.metadata()["replicas_on"]
            )
        time.sleep(0.5)


if __name__ == "__main__":
    main(*sys.argv[1:])
