"""Exactly once, whatever happens: rounds of faults against an application over a real broker, under a steady producer.

python tests/soak/soak.py [--cluster | --continuous | --instances 3 [--java 2 | --embedded]] [--rounds 50] [--seed 1]
    [--faults driver_killed ...] [--folder DIR] [--summary FILE]

The application joins two streams, joins one of them with a table and counts through a repartition. Each round does one
thing at random: kills the driver (-9), at any time or at a step of the protocol; kills an executor or a worker; makes a
task slow or stalls a worker, so that Spark runs a task a second time; stops or kills the broker and starts it again. With
--cluster there are three brokers with replicated topics, a checkpoint on an S3 server, and losses of a leader or of one
of Spark's two machines; what is lost comes back only when outputs have come without it. With --continuous stream threads
are killed or paused at each of their steps. With --instances there are several instances that share the tasks of another
application, --java of them in Java; one ends or is killed in each round (`soak_instances`). A reader with read_committed sees each output exactly once, and at the end
exactly those that plain Python computes from the input; the group's offsets are at the end of all inputs. What was done is
in DIR/rounds.jsonl; the same seed does the same again (when exactly, within a batch, is not in its hands). When nothing
comes any more, DIR/threads.log says what all processes do.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from penstock.log.open import open_log
from penstock.tools.broker.process import Broker
from soak_app import APPLICATION
from soak_cluster_faults import ClusterFaults
from soak_continuous_faults import ContinuousFaults
from soak_faults import Faults
from soak_instances import InstancesSoak
from soak_places import Place, alone, clustered
from soak_process import App
from soak_report import summary_of
from soak_world import (
    Outputs,
    Reader,
    Sent,
    SteadyProducer,
    differences,
    make_topics,
    offsets_left,
    wait_until_it_answers,
)

ADVANCE = 20  # orders; their outputs show that the application works again
PATIENCE_S = 300.0
HARNESS_S = 300.0  # more than that for a round beside the patience: the harness itself hangs
TASKS = {"0_0", "0_1", "1_0", "1_1"}


@dataclass
class Soak:
    """One run: ``problems`` is empty if all was as it must be."""

    folder: Path
    seed: int
    rate: int = 100
    patience_s: float = PATIENCE_S
    cluster: bool = False
    continuous: bool = False
    problems: list[str] = field(default_factory=list)
    rounds: list[dict[str, object]] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)

    def run(self, rounds: int, faults: list[str] | None = None) -> list[str]:
        """Does that many rounds and gives the problems found."""
        with (clustered if self.cluster else alone)(self.folder) as place:
            bootstrap = place.bootstrap
            wait_until_it_answers(bootstrap)
            make_topics(bootstrap)
            self._reader, self._producer = Reader(bootstrap), SteadyProducer(bootstrap, self.seed, self.rate)
            with closing(self._reader), App(place, self.folder, continuous=self.continuous) as self._app:
                try:
                    self._all_rounds(
                        self._plan(rounds, faults or names(cluster=self.cluster, continuous=self.continuous)), place
                    )
                    self._at_the_end(bootstrap)
                finally:
                    faulthandler.cancel_dump_traceback_later()
        return self.problems

    def _plan(self, rounds: int, faults: list[str]) -> list[str]:
        """Each fault equally often, in an order of the seed's."""
        chance, plan = random.Random(self.seed), []
        while len(plan) < rounds:
            plan += chance.sample(faults, len(faults))
        return plan[:rounds]

    def _all_rounds(self, plan: list[str], place: Place) -> None:
        chance = random.Random(self.seed)
        app = self._app
        if self.cluster:
            faults: Faults = ClusterFaults(app, place, chance)
        else:
            faults = (ContinuousFaults if self.continuous else Faults)(app, place.brokers[0], chance)
        self._app.start()
        self._producer.start()
        if self._await_progress() is None:
            self._hangs("before the first round")
        for number, name in enumerate(plan):
            faulthandler.dump_traceback_later(self.patience_s + HARNESS_S, exit=True)
            time.sleep(chance.uniform(0, 2))
            self._round(number, name, faults)
            if doubles := self._doubles(place.bootstrap):
                self._problem(f"round {number}, {name}: doubles: {doubles[:5]}")
                break

    def _doubles(self, bootstrap: str) -> list[tuple[str, str, str]]:
        """Outputs that came more often than the inputs ask for: a broker's death may double a record of the producer."""
        if not self._reader.doubles:
            return []
        expected = Sent.read(bootstrap).expected()
        found, self._reader.doubles = self._reader.doubles, []
        return [each for each in found if self._reader.seen[each[0]][each[1:]] > expected[each[0]][each[1:]]]

    def _round(self, number: int, name: str, faults: Faults) -> None:
        app, before, began = self._app, self._app.newest_batch(), time.monotonic()
        self._keep_alive()
        done = faults.do(name)
        took = self._await_progress()
        row = {
            "round": number, "fault": name, "done": done, "batch_before": before, "batch_after": app.newest_batch(),
            "works_again_after_s": None if took is None else round(took, 1), "seconds": round(time.monotonic() - began, 1),
            "outputs": self._reader.count,
        }  # fmt: skip
        self.rounds.append(row)
        with (self.folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._say(
            f"round {number}: {done}; works again after {row['works_again_after_s']} s, {row['outputs']:,} outputs"
        )
        if took is None:
            self._hangs(f"round {number}, {name}")
        faults.mend()

    def _await_progress(self) -> float | None:
        """Seconds until outputs of new orders come; None: they do not. One that ends by itself is started again."""
        wanted, began = len(self._producer.sent.orders) + ADVANCE, time.monotonic()
        while self._reader.seen["per-user"].total() < wanted:
            if time.monotonic() - began > self.patience_s or self._producer.failure is not None:
                return None
            self._keep_alive()
            self._reader.read()
        return time.monotonic() - began

    def _keep_alive(self) -> None:
        if not self._app.is_alive():
            code = self._app.process.returncode
            self._problem(f"the application ended by itself with {code}: {self._app.said_last()}")
            self._app.start()

    def _hangs(self, where: str) -> None:
        """The application is started anew, and the soak goes on."""
        self._tell(where)
        self._app.end()
        self._app.start()

    def _tell(self, where: str) -> None:
        """Writes down what everything does."""
        self._problem(f"{where}: no outputs within {self.patience_s:.0f} s: {self._app.said_last()}")
        for line in [*self._reader.standing(), f"producer: {self._producer.failure or 'goes on'}"]:
            self._say(line)
        self._app.tell_all()

    def _at_the_end(self, bootstrap: str) -> None:
        """Nothing is sent any more: all outputs must come, and nothing else."""
        faulthandler.dump_traceback_later(self.patience_s + HARNESS_S, exit=True)
        self._producer.stop()
        sent = Sent.read(bootstrap)
        expected = sent.expected()
        wanted = sum(counts.total() for counts in expected.values())
        end = time.monotonic() + self.patience_s
        while self._reader.count < wanted and time.monotonic() < end:
            self._keep_alive()
            self._reader.read()
        if self._reader.count < wanted:
            self._tell("at the end")
        while self._reader.read(1) and time.monotonic() < end:  # nothing more must come
            pass
        if (code := self._app.stop()) != 0:
            self._problem(f"the application ended with {code} when it was stopped: {self._app.said_last()}")
        self._reader.read(1)
        self._say(f"{len(sent.orders):,} orders, {self._reader.count:,} of {wanted:,} outputs read")
        for each in self._producer.undelivered:
            self._say(f"the producer could not deliver {each}")
        self._judge(sent, expected, bootstrap)

    def judge(self) -> list[str]:
        """Compares outputs and inputs of a run that has ended, as its folder has them."""
        self.rounds = [json.loads(line) for line in (self.folder / "rounds.jsonl").read_text().splitlines()]
        with Broker.in_directory(self.folder / "broker") as broker:
            bootstrap = broker.settings.bootstrap_servers
            wait_until_it_answers(bootstrap)
            self._app = App(Place(bootstrap, [broker]), self.folder)
            sent = Sent.read(bootstrap)
            with closing(Reader(bootstrap)) as self._reader:
                self._reader.read_all()
                self._judge(sent, sent.expected(), bootstrap)
        return self.problems

    def _judge(self, sent: Sent, expected: Outputs, bootstrap: str) -> None:
        lost, more = differences(expected, self._reader.seen)
        self.totals = {
            "orders": len(sent.orders), "payments": len(sent.payments), "outputs": self._reader.count,
            "outputs_lost": sum(c.total() for c in lost.values()),
            "outputs_too_many": sum(c.total() for c in more.values()),
            "query_restarts": self._app.query_restarts(),
        }  # fmt: skip
        for kind, found in (("lost", lost), ("too many", more)):
            for topic, rows in found.items():
                self._problem(f"{topic}: {rows.total()} {kind}, such as {sorted(rows)[:5]}")
        if not self._reader.has_reached_the_end():
            self._problem("a transaction is open in front of outputs")
        for left in offsets_left(bootstrap):
            self._problem(f"group offsets: {left}")
        if self.continuous:  # which has no ledger
            return
        with open_log(bootstrap) as log:
            ledger = log.ledger(APPLICATION)
        if set(ledger) != TASKS or max(ledger.values()) > self._app.newest_batch():
            self._problem(f"the ledger {ledger} does not fit the newest batch {self._app.newest_batch()}")

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self._say(f"PROBLEM {text}")

    @staticmethod
    def _say(text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, flush=True)


def names(*, cluster: bool, continuous: bool = False) -> list[str]:
    """All faults."""
    return (ClusterFaults if cluster else ContinuousFaults if continuous else Faults).names()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--rate", type=int, default=100, help="orders, and payments, a second")
    parser.add_argument("--cluster", action="store_true", help="three brokers, and a checkpoint on an S3 server")
    parser.add_argument("--continuous", action="store_true", help="processing.mode=continuous, with its own faults")
    parser.add_argument("--instances", type=int, default=0, help="so many instances share the tasks, and come and go")
    parser.add_argument(
        "--java", type=int, default=0, help="so many more are Kafka Streams programs, which needs a JDK"
    )
    parser.add_argument("--embedded", action="store_true", help="with --instances: over an embedded log")
    parser.add_argument("--faults", nargs="+", metavar="NAME", help="some of them only")
    parser.add_argument("--folder", type=Path, help="kept; otherwise one that is kept when there were problems")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="do nothing but compare what an earlier run has left")
    parser.add_argument("--summary", type=Path, help="a file for the result, as JSON")
    given = parser.parse_args()
    has_instances = bool(given.instances or given.java)
    if given.cluster + given.continuous + has_instances > 1:
        parser.error("--cluster, --continuous and --instances do not go together")
    if given.embedded and (given.java or not given.instances):
        parser.error("--embedded goes with --instances, and without --java")
    if has_instances and (given.faults or given.judge):
        parser.error("--instances has its own faults, and is judged at its end")
    known = names(cluster=given.cluster, continuous=given.continuous)
    if unknown := set(given.faults or ()) - set(known):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if given.judge and given.cluster:
        parser.error("--judge: the checkpoint of a cluster's run has gone with its S3 server")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # application and broker end with it
    folder = given.judge or given.folder or Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {given.seed}, {given.rounds} rounds, everything in {folder}", flush=True)
    soak: Soak | InstancesSoak
    if has_instances:
        soak = InstancesSoak(folder, given.seed, given.instances, given.java, embedded=given.embedded)
        problems = soak.run(given.rounds)
    else:
        soak = Soak(folder, given.seed, given.rate, cluster=given.cluster, continuous=given.continuous)
        problems = soak.judge() if given.judge else soak.run(given.rounds, given.faults)
    if given.summary is not None:
        when = "afterwards, by --judge" if given.judge else "at the end of the run"
        mode = "--cluster " if given.cluster else "--continuous " if given.continuous else ""
        if has_instances:
            mode = f"--instances {given.instances} " + ("--embedded " if given.embedded else f"--java {given.java} ")
        command = mode + f"--rounds {len(soak.rounds)} --seed {given.seed}"
        command += f" --faults {' '.join(given.faults)}" if given.faults else ""
        found = summary_of(soak.rounds, problems, soak.totals, command, when)
        given.summary.write_text(json.dumps(found, indent=1) + "\n")
    if problems:
        sys.exit(f"{len(problems)} problems with seed {given.seed}; see {folder}")
    print(f"{len(soak.rounds)} rounds, nothing lost, nothing double")
    if given.folder is None and given.judge is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
