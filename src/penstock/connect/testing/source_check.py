"""A check of sources: crashes, restarts and rebalances at every step, and what their topics must hold in the end."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from penstock.connect.api import SourceTask
from penstock.connect.data import SinkRecord, SourceRecord, Struct
from penstock.connect.delivery import Step
from penstock.connect.delivery.local_run import SingleSource
from penstock.errors import ConfigError

__all__ = ["SourceFaultError", "SourceModel", "check_source"]

_STEPS = (Step.POLLED, Step.CONVERTED, Step.WRITTEN, Step.COMMITTED)
_CRASHES = (*(f"crash {step.name}" for step in _STEPS), "kill")
_EVENTS = (*_CRASHES, "restart", "rebalance 1", "rebalance 2", "rebalance 3", "acknowledge twice")
_DEPTH = 3  # polls before each single disturbance
_LONGEST = 12
_MOST_SHOWN = 5

Expected = Mapping[Any, Sequence[Any]]


class SteppedSource(Protocol):
    """The steps of a `ConnectTestDriver` that the check takes."""

    exactly_once: bool
    sources: list[SingleSource]

    @property
    def has_ended(self) -> bool: ...
    def poll(self, *, crash: Step | None = None) -> list[SourceRecord]: ...
    def poll_acknowledged_twice(self) -> list[SourceRecord]: ...
    def kill(self) -> None: ...
    def restart(self) -> None: ...
    def rebalance(self, tasks: int) -> None: ...
    def read_all(self) -> list[SinkRecord]: ...
    def stop(self) -> None: ...


class SourceModel(Protocol):
    """The contents of a source, and the events while it is read."""

    def change(self) -> bool:
        """Change the source: add a row, rotate a file. Return whether there was anything left to do."""
        ...

    def expected(self) -> Expected:
        """Return the values of all records so far, by a name of the part of the source, in their order."""
        ...


class SourceFaultError(AssertionError):
    """A source lost, doubled or mixed up records.

    Attributes:
        kind: ``lost``, ``doubled``, ``order``, ``unknown`` or ``endless``.
        schedule: The events that led to it, as few as there can be.
    """

    def __init__(self, kind: str, text: str, schedule: Sequence[str]) -> None:
        steps = ", ".join(schedule) or "nothing but polls"
        super().__init__(f"{text}\nafter: {steps}\nRun this one alone with schedule={list(schedule)!r}.")
        self.kind, self.schedule = kind, tuple(schedule)


D = TypeVar("D", bound=SteppedSource)


class _Fixed:
    """A source to which nothing happens."""

    def __init__(self, values: Expected) -> None:
        self._values = values

    def change(self) -> bool:
        return False

    def expected(self) -> Expected:
        return self._values


def check_source(
    make: Callable[[], D],
    model: Callable[[D], SourceModel] | Expected,
    *,
    runs: int = 30,
    seed: int = 0,
    quiet_polls: int = 3,
    schedule: Sequence[str] | None = None,
) -> None:
    """Run a source through everything that can happen to it; see `ConnectTestDriver.check_source`."""
    if not callable(make):
        raise ConfigError(
            f"check_source got a {type(make).__name__} in place of a function that makes drivers",
            hint="Each run needs a source and a log of its own: check_source(lambda: ConnectTestDriver(...), model).",
        )
    if not isinstance(model, Mapping) and not callable(model):
        raise ConfigError(
            f"the model is a {type(model).__name__}, and not values by the part of the source that they come from",
            hint='Write {"any name": [value, ...]}, a list for each part, or give a class with change and expected.',
        )
    schedules = [tuple(schedule)] if schedule is not None else [*_single_disturbances(), *_random_schedules(runs, seed)]
    for events in schedules:
        fault = _run(make, model, events, quiet_polls)
        if fault is not None:
            fewest = events
            if schedule is None:
                fewest, fault = _shortest(make, model, events, fault, quiet_polls)
            raise SourceFaultError(*fault, fewest)


def _single_disturbances() -> Iterable[tuple[str, ...]]:
    yield ()
    for polls, event in itertools.product(range(_DEPTH), _EVENTS):
        yield (*(("change", "poll") * polls), "change", event)


def _random_schedules(runs: int, seed: int) -> Iterable[tuple[str, ...]]:
    chosen = random.Random(seed)  # noqa: S311 - schedules, not secrets
    for _ in range(runs):
        length = chosen.randint(2, _LONGEST)
        yield tuple(chosen.choice(("change", "change", "poll", "poll", *_EVENTS)) for _ in range(length))


def _shortest(
    make: Callable[[], D],
    model: Callable[[D], SourceModel] | Expected,
    schedule: tuple[str, ...],
    fault: tuple[str, str],
    quiet_polls: int,
) -> tuple[tuple[str, ...], tuple[str, str]]:
    """Return a schedule of which no event can be left out, and its fault, of the same kind."""
    at = 0
    while at < len(schedule):
        shorter = (*schedule[:at], *schedule[at + 1 :])
        other = _run(make, model, shorter, quiet_polls)
        if other is not None and other[0] == fault[0]:
            schedule, fault = shorter, other
        else:
            at += 1
    return schedule, fault


def _run(
    make: Callable[[], D],
    model: Callable[[D], SourceModel] | Expected,
    schedule: Sequence[str],
    quiet_polls: int,
) -> tuple[str, str] | None:
    """Return the kind of the fault and its words; None if there is none."""
    driver = make()
    killed: list[SourceTask] = []
    try:
        source = model(driver) if callable(model) else _Fixed(model)
        for event in schedule:
            before = [each.task for each in driver.sources]
            _happen(driver, source, event)
            if event in _CRASHES:
                left = [each.task for each in driver.sources]
                killed += [task for task in before if task not in left]
        while source.change():
            driver.poll()
        doubles_may_be = not driver.exactly_once and any(event in _CRASHES for event in schedule)
        fault = _drained(driver, source.expected(), quiet_polls, doubles_may_be=doubles_may_be)
        if fault is None:
            driver.restart()  # nothing more may come
            fault = _drained(driver, source.expected(), quiet_polls, doubles_may_be=doubles_may_be)
    except Exception as error:
        error.add_note(f"after: {', '.join(schedule) or 'nothing but polls'}")
        raise
    finally:
        driver.stop()
        for task in killed:  # to close their files and connections, now that nothing else is to come
            with contextlib.suppress(Exception):
                task.stop()
    return fault


def _happen(driver: SteppedSource, source: SourceModel, event: str) -> None:
    word, _, rest = event.partition(" ")
    match word:
        case "change":
            source.change()
        case "poll":
            driver.poll()
        case "crash":
            driver.poll(crash=Step[rest])
        case "kill":
            driver.kill()
        case "restart":
            driver.restart()
        case "rebalance":
            driver.rebalance(int(rest))
        case "acknowledge":
            driver.poll_acknowledged_twice()
        case _:
            raise ValueError(f"{event!r} is not an event of a schedule: change, poll, {', '.join(_EVENTS)}")


def _drained(
    driver: SteppedSource, expected: Expected, quiet_polls: int, *, doubles_may_be: bool
) -> tuple[str, str] | None:
    most = sum(map(len, expected.values())) * 10 + 100
    quiet = polls = 0
    while quiet < quiet_polls and not driver.has_ended:
        quiet = 0 if driver.poll() else quiet + 1
        polls += 1
        if polls > most:
            return "endless", f"the source still has records after {most} polls; the model has {most // 10 - 10}"
    return _compared(expected, driver.read_all(), doubles_may_be=doubles_may_be)


def _compared(expected: Expected, records: Sequence[SinkRecord], *, doubles_may_be: bool) -> tuple[str, str] | None:
    places: dict[str, tuple[Any, int]] = {}
    for part, values in expected.items():
        for at, value in enumerate(values):
            if places.setdefault(_key(value), (part, at)) != (part, at):
                raise ValueError(f"the model has {value!r} twice; values must differ, so that a double can be seen")
    counts = Counter(_key(record.value) for record in records)
    unknown = [key for key in counts if key not in places]
    if unknown:
        return "unknown", f"the source wrote {_shown(unknown)}, which the model does not have"
    lost = [key for key in places if key not in counts]
    if lost:
        return "lost", f"the source lost {_shown(lost)}"
    doubled = [key for key, count in counts.items() if count > 1]
    if doubled and not doubles_may_be:
        return "doubled", f"the source wrote {_shown(doubled)} more than once"
    last: dict[tuple[str | None, int | None, Any], tuple[int, str]] = {}
    seen: set[str] = set()
    for record in records:
        key = _key(record.value)
        if key in seen:
            continue
        seen.add(key)
        part, at = places[key]
        before = last.get((record.topic, record.partition, part))
        if before is not None and before[0] > at:
            return "order", f"the source wrote {key} of {part!r} after {before[1]}, which follows it in the model"
        last[record.topic, record.partition, part] = at, key
    return None


def _key(value: Any) -> str:
    plain = value.to_dict() if isinstance(value, Struct) else value
    return json.dumps(plain, sort_keys=True, ensure_ascii=False, default=str)


def _shown(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _MOST_SHOWN} more" if len(keys) > _MOST_SHOWN else ""
    return ", ".join(keys[:_MOST_SHOWN]) + more
