"""Prepares the first epoch of each application whose name it reads: URL GUARANTEE STATE_DIR.

It is no member of any group yet, as an instance is until Spark has started its threads.
"""

from __future__ import annotations

import sys

from penstock import Materialized, StreamsBuilder, StreamsConfig
from penstock.engines.application.planning import PlannedApp, plan_for
from penstock.engines.threads.hosting.epoch_start import EpochPlans
from penstock.engines.threads.hosting.instance_group import InstanceGroup
from penstock.errors import PenstockError
from penstock.log.open import open_log


def main(url: str, guarantee: str, folder: str) -> None:
    print("ready", flush=True)
    with open_log(url) as log:
        for line in sys.stdin:
            application = line.strip()
            builder = StreamsBuilder()
            builder.stream(f"{application}-in").group_by_key().count(Materialized("counts"))
            topology = builder.build()
            given = {"application.id": application, "bootstrap.servers": url, "group.protocol": "streams"}
            serdes = {"default.key.serde": "string", "default.value.serde": "string"}
            more = {"processing.guarantee": guarantee, "state.dir": folder}
            config = StreamsConfig({**given, **serdes, **more})
            app = PlannedApp(topology, config, plan_for(topology, config, log), log)
            try:
                EpochPlans(reads_nothing=False).next(app, None, 1, InstanceGroup(app))
            except PenstockError as error:
                print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
            else:
                print("goes on", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
