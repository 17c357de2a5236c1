"""The soak of instances: programs in Python, and in Java, in one group, of which some end and some start.

The group is over a broker, or over an embedded log, which Java does not know.

Each round ends an instance in order, or kills it and all that belongs to it (-9), and starts another of
the same kind. A producer writes steadily. At the end everything is counted again by a reader with
read_committed: each record passed on once and counted once, and the changelog says what the outputs say.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from penstock.log.streams_groups.description import StreamsGroupDescription
from penstock.tools.broker.broker_settings import BrokerSettings, free_port
from penstock.tools.broker.process import Broker

sys.path.append(str(Path(__file__).parents[1]))  # as pytest does
from integration.java_program import compile_program
from integration.mixed_group import Feeder, MixedGroup

__all__ = ["InstancesSoak"]

_LOOK_S = 0.5
_MOST_PAUSE_S = 8.0
_SETTLED = 0.7  # of the rounds begin when all instances share the tasks, the others at any time


@dataclass
class InstancesSoak:
    """One run: ``problems`` is empty if all was as it must be."""

    folder: Path
    seed: int
    python: int
    java: int = 0
    embedded: bool = False
    patience_s: float = 300.0
    problems: list[str] = field(default_factory=list)
    rounds: list[dict[str, object]] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)

    def run(self, rounds: int) -> list[str]:
        """Do that many rounds; return the problems found."""
        chance = random.Random(self.seed)
        class_path = compile_program(self.folder) if self.java else ""
        with ExitStack() as stack:
            url = f"sqlite:///{self.folder / 'log.db'}"
            if not self.embedded:
                broker = stack.enter_context(Broker(BrokerSettings(self.folder / "broker", free_port(), free_port())))
                url = broker.settings.bootstrap_servers
            group = MixedGroup(self.folder, url, "instances", class_path)
            try:
                for kind in chance.sample(["python"] * self.python + ["java"] * self.java, self.python + self.java):
                    group.start(kind)
                feeder = Feeder(group)
                feeder.start()
                self._await_all(group, "before the first round")
                self._await_progress(group, "before the first round")
                for number in range(rounds):
                    self._round(group, number, chance)
                feeder.stop()
                self._await_progress(group, "at the end")
                for instance in group.running():
                    instance.end(is_starting=True)
                self.problems += group.problems()
            finally:
                group.close()
        self.totals = {"records": group.fed, "instances": len(group.instances)}
        return self.problems

    def _round(self, group: MixedGroup, number: int, chance: random.Random) -> None:
        if chance.random() < _SETTLED:
            self._await_all(group, f"before round {number}")
        began, how, victim = time.monotonic(), chance.choice(["kill", "end"]), chance.choice(group.running())
        if how == "kill":
            victim.kill()
        else:
            victim.end(is_starting=True)
        time.sleep(chance.uniform(0, _MOST_PAUSE_S))
        group.start(victim.kind)
        time.sleep(chance.uniform(0, _MOST_PAUSE_S))
        took = self._await_progress(group, f"round {number}, {how} {victim.kind}")
        row = {
            "round": number, "fault": f"{victim.kind}_{how}", "works_again_after_s": took, "fed": group.fed,
            "seconds": round(time.monotonic() - began, 1), "members": _members(group.described()),
        }  # fmt: skip
        self.rounds.append(row)
        with (self.folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._say(f"round {number}: {how} {victim.kind} {victim.number}; what was fed then is through after {took} s")

    def _await_all(self, group: MixedGroup, where: str) -> None:
        """Wait until all instances that run share the tasks."""
        end = time.monotonic() + self.patience_s
        while not group.is_shared_by(len(group.running())):
            if time.monotonic() > end:
                self._problem(f"{where}: the tasks are not shared by all: {group.story()}")
                return
            time.sleep(_LOOK_S)

    def _await_progress(self, group: MixedGroup, where: str) -> float | None:
        """Return the seconds until all that has been fed by now is through; None: it is not."""
        began, ends = time.monotonic(), group.ends()
        asked_to_go = {each.number for each in group.instances if not each.is_running}
        while not group.has_read(ends):
            if time.monotonic() - began > self.patience_s:
                self._problem(f"{where}: no progress within {self.patience_s:.0f} s: {group.story()}")
                return None
            for each in group.instances:
                if not each.is_running and each.number not in asked_to_go:
                    self._problem(f"{where}: an instance ended by itself: {each.said()}")
                    asked_to_go.add(each.number)
                    group.start(each.kind)
            time.sleep(_LOOK_S)
        return round(time.monotonic() - began, 1)

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self._say(f"PROBLEM {text}")

    @staticmethod
    def _say(text: str) -> None:
        print(time.strftime("%H:%M:%S"), text, flush=True)


def _members(described: StreamsGroupDescription | None) -> int:
    return 0 if described is None else len(described.members)
