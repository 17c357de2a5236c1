"""Exactly once, whatever happens: rounds of faults against an application over a real broker, under a steady producer.

python tests/soak/soak.py [--rounds 50] [--seed 1] [--faults driver_killed broker_killed] [--folder DIR]

The application joins two streams, joins one of them with a table and counts through a repartition. Each round does one
thing at random: kills the driver (-9), at any time or at a step of the protocol; kills an executor or a worker; stalls a
worker, so that Spark runs its task a second time; stops or kills the broker and starts it again. A reader with
read_committed sees each output exactly once, and at the end exactly those that plain Python computes from the input;
the group's offsets are at the end of all inputs. What was done is in DIR/rounds.jsonl; the same seed does the same again
(when exactly, within a batch, is not in its hands).
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from penstock.broker.process import Broker
from penstock.broker.settings import BrokerSettings, free_port
from penstock.log.open import open_log
from soak_app import APPLICATION
from soak_faults import MASTER, App, Faults
from soak_world import Reader, Sent, SteadyProducer, differences, make_topics, offsets_left, wait_until_it_answers

ADVANCE = 20  # orders; their outputs show that the application works again
PATIENCE_S = 300.0
TASKS = {"0_0", "0_1", "1_0", "1_1"}


@dataclass
class Soak:
    """One run: ``problems`` is empty if all was as it must be."""

    folder: Path
    seed: int
    rate: int = 100
    master: str = MASTER
    problems: list[str] = field(default_factory=list)
    rounds: list[dict[str, object]] = field(default_factory=list)

    def run(self, rounds: int, faults: list[str] | None = None, patience_s: float = PATIENCE_S) -> list[str]:
        """Does that many rounds and gives the problems found."""
        settings = BrokerSettings(self.folder / "broker", free_port(), free_port(), partitions=2)
        broker = Broker(settings)
        broker.start()
        try:
            wait_until_it_answers(settings.bootstrap_servers)
            make_topics(settings.bootstrap_servers)
            self._with_broker(broker, self._plan(rounds, faults or Faults.names()), patience_s)
        finally:
            broker.stop()
        return self.problems

    def _plan(self, rounds: int, faults: list[str]) -> list[str]:
        """Each fault equally often, in an order of the seed's."""
        chance, plan = random.Random(self.seed), []
        while len(plan) < rounds:
            plan += chance.sample(faults, len(faults))
        return plan[:rounds]

    def _with_broker(self, broker: Broker, plan: list[str], patience_s: float) -> None:
        bootstrap = broker.settings.bootstrap_servers
        chance = random.Random(self.seed)
        app = App(bootstrap, self.folder, self.master)
        faults = Faults(app, broker, chance)
        reader, producer = Reader(bootstrap), SteadyProducer(bootstrap, self.seed, self.rate)
        app.start()
        try:
            producer.start()
            self._await_progress(app, reader, producer.sent, patience_s)
            for number, name in enumerate(plan):
                time.sleep(chance.uniform(0, 2))
                self._round(number, name, faults, app, reader, producer, patience_s)
                if reader.doubles:
                    self._problem(f"round {number}, {name}: doubles: {reader.doubles[:5]}")
                    break
            sent = producer.stop()
            expected = sent.expected()
            wanted = sum(counts.total() for counts in expected.values())
            end = time.monotonic() + patience_s
            while reader.count < wanted and time.monotonic() < end and self._alive(app):
                reader.read()
            while reader.read(1):  # nothing more must come
                pass
            if (code := app.stop()) != 0:
                self._problem(f"the application ended with {code} when it was stopped: {app.said_last()}")
            reader.read(1)
            for difference in differences(expected, reader.seen):
                self._problem(difference)
            if not reader.has_reached_the_end():
                self._problem("a transaction is open in front of outputs")
            for left in offsets_left(bootstrap):
                self._problem(f"group offsets: {left}")
            self._check_ledger(bootstrap, app)
            self._say(f"{len(sent.orders):,} orders, {reader.count:,} of {wanted:,} outputs read")
        finally:
            app.end()
            reader.close()

    def _round(
        self, number: int, name: str, faults: Faults, app: App, reader: Reader, producer: SteadyProducer,
        patience_s: float,
    ) -> None:  # fmt: skip
        before, began = app.newest_batch(), time.monotonic()
        if not self._alive(app):
            app.start()
        done = faults.do(name)
        took = self._await_progress(app, reader, producer.sent, patience_s)
        row = {
            "round": number, "fault": name, "done": done, "batch_before": before, "batch_after": app.newest_batch(),
            "works_again_after_s": None if took is None else round(took, 1), "seconds": round(time.monotonic() - began, 1),
            "outputs": reader.count,
        }  # fmt: skip
        self.rounds.append(row)
        with (self.folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._say(f"round {number}: {done}; works again after {row['works_again_after_s']} s, {reader.count:,} outputs")
        if took is None:
            self._problem(f"round {number}, {name}: no outputs within {patience_s:.0f} s: {app.said_last()}")

    def _await_progress(self, app: App, reader: Reader, sent: Sent, patience_s: float) -> float | None:
        """Seconds until outputs of new orders come; None: they do not. One that ends by itself is started again."""
        wanted, began = len(sent.orders) + ADVANCE, time.monotonic()
        while reader.seen["per-user"].total() < wanted:
            if time.monotonic() - began > patience_s:
                return None
            if not self._alive(app):
                app.start()
            reader.read()
        return time.monotonic() - began

    def _alive(self, app: App) -> bool:
        if app.is_alive():
            return True
        self._problem(f"the application ended by itself with {app.process.returncode}: {app.said_last()}")
        return False

    def _check_ledger(self, bootstrap: str, app: App) -> None:
        with open_log(bootstrap) as log:
            ledger = log.ledger(APPLICATION)
        if set(ledger) != TASKS or max(ledger.values()) > app.newest_batch():
            self._problem(f"the ledger {ledger} does not fit the newest batch {app.newest_batch()}")

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self._say(f"PROBLEM {text}")

    @staticmethod
    def _say(text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--rate", type=int, default=100, help="orders, and payments, a second")
    parser.add_argument("--faults", nargs="+", choices=Faults.names(), default=Faults.names())
    parser.add_argument("--master", default=MASTER)
    parser.add_argument("--folder", type=Path, help="kept; otherwise one that is kept when there were problems")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # application and broker end with it
    folder = given.folder or Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.rounds} rounds, everything in {folder}", flush=True)
    problems = Soak(folder, given.seed, given.rate, given.master).run(given.rounds, given.faults)
    print(
        f"{len(problems)} problems with seed {given.seed}; see {folder}" if problems else "nothing lost, nothing double"
    )
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
