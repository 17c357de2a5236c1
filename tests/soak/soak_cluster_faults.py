"""What is done to a cluster: brokers, machines of Spark, and the application itself."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.tools.broker.process import Broker
from soak_cluster import HOSTS
from soak_faults import Faults
from soak_places import Place
from soak_process import App
from soak_world import client

SYNC_S = 180


class ClusterFaults(Faults):
    """Faults of a cluster. What is away stays away until outputs have come without it; then `mend` brings it back."""

    def __init__(self, app: App, place: Place, chance: random.Random) -> None:
        super().__init__(app, place.brokers[0], chance)
        self._brokers = place.brokers
        self._client = client(place.bootstrap)
        self._missing: list[Callable[[], object]] = []

    @staticmethod
    def names() -> list[str]:
        return [
            "leader_killed", "leader_stalled", "brokers_rolled", "machine_lost", "driver_killed",
            "driver_killed_at_step", "executor_killed_late", "task_slowed",
        ]  # fmt: skip

    def mend(self) -> None:
        while self._missing:
            self._missing.pop()()
        self._await_replicas()

    def leader_killed(self) -> str:
        broker, place = self._leader()
        broker.stop(kill=True)
        self._missing.append(broker.start)
        return f"killed broker {broker.settings.node}, the leader of {place}"

    def leader_stalled(self) -> str:
        """As a machine that hangs, or is cut off: nobody closes the connections to it."""
        broker, place = self._leader()
        pid = broker.status().pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        self._missing.append(lambda: os.kill(pid, signal.SIGCONT))
        return f"stalled broker {broker.settings.node}, the leader of {place}"

    def brokers_rolled(self) -> str:
        began = time.monotonic()
        for broker in self._brokers:
            broker.stop()
            broker.start()
            self._await_replicas()
        return f"restarted all brokers, one after the other, within {time.monotonic() - began:.0f} s"

    def machine_lost(self) -> str:
        """Spark's worker, its executor, and the processes below."""
        host = self._chance.choice(HOSTS)
        count = self._app.cluster.lose(host)
        self._missing.append(lambda: self._app.cluster.start_worker(host))
        return f"killed the {count} processes of host {host}"

    def _leader(self) -> tuple[Broker, str]:
        """That of a partition of the application, of its ledger, or of Kafka's notes of transactions and groups."""
        topics = AdminClient(self._client).list_topics(timeout=30).topics.values()
        led = [(one.leader, f"{each.topic}-{one.id}") for each in topics for one in each.partitions.values()]
        node, place = self._chance.choice(sorted(led, key=lambda found: found[1]))
        return self._brokers[node - 1], place

    def _await_replicas(self) -> None:
        """Until each partition could lose a broker again."""
        end = time.monotonic() + SYNC_S
        while not self._are_in_sync():
            assert time.monotonic() < end, f"replicas are not in sync after {SYNC_S} s"
            time.sleep(0.5)

    def _are_in_sync(self) -> bool:
        try:
            found = AdminClient(self._client).list_topics(timeout=10).topics.values()
        except KafkaException:
            return False
        partitions = [one for each in found for one in each.partitions.values()]
        return all(len(one.isrs) == len(one.replicas) == len(self._brokers) for one in partitions)
