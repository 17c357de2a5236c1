"""Many runs of one application, each with an order and faults of its own seed; what fails is made small, and told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.base.terminal.human_numbers import counted
from penstock.testing.simulation.application import Layout
from penstock.testing.simulation.faults import Fault, draw
from penstock.testing.simulation.run import Input, Outcome, SimulationPlan, run
from penstock.testing.simulation.scheduler import dice_of

__all__ = ["Failure", "Report", "layout_of", "simulate", "simulate_seed"]

_EMBEDDED, _SHARED = 0.09, 0.04  # the share of runs over an embedded log, and of those with two instances
_MOST_TRIES = 60  # runs to make one failure small


@dataclass(frozen=True)
class Failure:
    """A seed that has failed, with the fewest faults and records with which it still does.

    Attributes:
        seed: The seed.
        layout: The threads and machines.
        faults: The faults.
        inputs: The records.
        outcome: The run with these.
    """

    seed: int
    layout: Layout
    faults: tuple[Fault, ...]
    inputs: tuple[Input, ...]
    outcome: Outcome

    def story(self) -> str:
        """Return what happened, a line for each event: the time, who, and what."""
        layout = self.layout
        log = "an embedded log" if layout.is_embedded else "brokers"
        head = (
            f"seed {self.seed}: {layout.instances} x {counted(layout.threads, 'thread')} on "
            f"{counted(layout.machines, 'machine')}, {counted(layout.standbys, 'standby task')}, over {log}; "
            f"{counted(len(self.faults), 'fault')}, {counted(len(self.inputs), 'record')}"
        )
        lines = [
            head,
            *(f"  {fault}" for fault in self.faults),
            self.outcome.story(),
            *(f"WRONG: {violation}" for violation in self.outcome.violations),
        ]
        return "\n".join(lines)


@dataclass
class Report:
    """The result of many runs.

    Attributes:
        seeds: The number of runs.
        points: The number of points at which something could happen.
        seconds: The time that has passed in all runs, by their clocks.
        kinds: How many faults of each kind have happened.
        failures: The seeds that have failed.
    """

    seeds: int = 0
    points: int = 0
    seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def require_none(self) -> None:
        """Raise AssertionError with the story of the first seed that has failed."""
        if self.failures:
            raise AssertionError(self.failures[0].story())

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items())) or "none"
        head = (
            f"{self.seeds} runs, {self.points} points, {self.seconds:.0f} simulated seconds; faults: {kinds}; "
            f"{len(self.failures)} failed"
        )
        return "\n\n".join([head, *(failure.story() for failure in self.failures)])


def layout_of(seed: int) -> Layout:
    """Return the threads and machines of a seed."""
    dice = dice_of("layout", seed)
    threads, machines, standbys = dice.randint(1, 3), dice.randint(1, 2), dice.randint(0, 1)
    retries, log = dice.random() < 0.7, dice.random()
    instances = 2 if log < _SHARED else 1
    return Layout(min(threads, 4 - instances), machines, standbys, retries, log < _EMBEDDED, instances)


def simulate_seed(plan: SimulationPlan, inputs: Sequence[Input], seed: int) -> Outcome:
    """Run an application with the order, the faults and the threads of a seed."""
    return run(plan, inputs, seed, draw(seed), layout_of(seed))


def simulate(
    plan: SimulationPlan,
    inputs: Sequence[Input] | Callable[[int], Sequence[Input]],
    seeds: Iterable[int],
    *,
    most_failures: int = 1,
    most_tries: int = _MOST_TRIES,
    on_run: Callable[[int, Outcome], None] = lambda _seed, _outcome: None,
) -> Report:
    """Run an application once for each seed, and make those runs small that fail.

    Args:
        plan: The application.
        inputs: The records of its source topics, with different timestamps; or a function of the seed.
        seeds: The seeds.
        most_failures: How many failures end it.
        most_tries: With how many runs a failure is made small.
        on_run: Called with each seed and its outcome.
    """
    report = Report()
    for seed in seeds:
        records = tuple(inputs(seed) if callable(inputs) else inputs)
        outcome = simulate_seed(plan, records, seed)
        report.seeds += 1
        report.points += outcome.points
        report.seconds += outcome.seconds
        for kind, count in outcome.faults.items():
            report.kinds[kind] = report.kinds.get(kind, 0) + count
        on_run(seed, outcome)
        if outcome.violations:
            failure = Failure(seed, layout_of(seed), tuple(draw(seed)), records, outcome)
            report.failures.append(_smallest(plan, failure, most_tries))
            if len(report.failures) >= most_failures:
                break
    return report


def _smallest(plan: SimulationPlan, failure: Failure, most_tries: int) -> Failure:
    """Leave out faults and records as long as the run still fails."""
    tries = _Tries(plan, most_tries)
    for fault in failure.faults:
        rest = tuple(each for each in failure.faults if each is not fault)
        failure = tries.of(failure, faults=rest) or failure
    size = len(failure.inputs) // 2
    while size:
        start = 0
        while start < len(failure.inputs):
            needed = tuple(each for each in failure.inputs[start : start + size] if plan.needs(each))
            rest_inputs = failure.inputs[:start] + needed + failure.inputs[start + size :]
            is_less = 0 < len(rest_inputs) < len(failure.inputs)
            smaller = tries.of(failure, inputs=rest_inputs) if is_less else None
            if smaller is None:
                start += size
            else:
                failure = smaller
        size //= 2
    return failure


@dataclass
class _Tries:
    plan: SimulationPlan
    most: int
    count: int = 0

    def of(self, failure: Failure, **changes: Any) -> Failure | None:
        """Run with fewer faults or records; return it if it still fails."""
        if self.count >= self.most:
            return None
        self.count += 1
        smaller = replace(failure, **changes)
        outcome = run(self.plan, smaller.inputs, smaller.seed, smaller.faults, smaller.layout)
        return replace(smaller, outcome=outcome) if outcome.violations else None
