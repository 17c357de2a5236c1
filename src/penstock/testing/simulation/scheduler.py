"""One thing at a time, in an order that a seed decides, by a clock that only the scheduler advances.

An actor is an operating system's thread that runs only while it has the baton. It gives it back where the code that it
runs would wait (a sleep, an empty topic, a condition), and at points, where others may be let through: before and after
each effect on the log or a disk. All actors of a process die together: each raises `Crashed` where it stands, and
at every point that it would reach later.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InvalidStateError

__all__ = ["Actor", "Crashed", "ScheduledEvent", "Scheduler", "SimulatedProcess", "dice_of"]

_POINT_S = 20e-6  # the time that passes at a point
_CLOCK_S = 1e-6  # the time that a look at the clock takes: who only looks at it gets on, too
_SWITCHES = 0.15  # the share of points at which another actor may go on
_PATIENCE_S = 300.0  # of the real clock
_SLOW = 0.015  # the share at which the actor takes its time, as on a busy machine
_SLOWEST_S = 0.3


def dice_of(what: str, seed: int) -> random.Random:
    """Return the dice of a seed for some purpose; those for another purpose fall independently."""
    return random.Random(f"{what} {seed}")  # noqa: S311 - of a seed on purpose


class Crashed(BaseException):
    """The actor's process is gone: no error, and no handler of errors may stop it."""


@dataclass(frozen=True, slots=True)
class ScheduledEvent:
    """A line of the story: what happened, when, and to whom."""

    at_s: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:10.4f} s  {self.who:<22} {self.what}"


@dataclass(eq=False)
class SimulatedProcess:
    """A process, whose actors die together.

    Attributes:
        name: Its name in the story.
        machine: The machine that it runs on, whose clock and files it sees.
        paused_until_s: The time before which none of its actors goes on.
        is_dead: Whether it has ended.
        releases: What the operating system takes back from it then.
    """

    name: str
    machine: Any = None
    paused_until_s: float = 0.0
    is_dead: bool = False
    releases: list[Callable[[], None]] = field(default_factory=list)


def _yes() -> bool:
    return True


def _not_held() -> threading.Lock:
    """Return a baton that somebody has: who acquires it waits for its release, by any thread."""
    baton = threading.Lock()
    baton.acquire()
    return baton


@dataclass(eq=False)
class Actor:
    """A thread of a process.

    Attributes:
        name: Its name in the story.
        process: Its process.
        body: What it runs.
        wakes_s: The time at which it goes on, if nothing else wakes it.
        ready: Whether what it waits for is there; None: it waits for the time only.
        error: What its body has raised.
    """

    name: str
    process: SimulatedProcess
    body: Callable[[], None]
    wakes_s: float = 0.0
    ready: Callable[[], bool] | None = None
    is_done: bool = False
    error: BaseException | None = None
    baton: threading.Lock = field(default_factory=_not_held)
    thread: threading.Thread | None = None


class Scheduler:
    """The actors, the clock, and the order of all that happens.

    Args:
        seed: Decides the order.
        on_point: Called at each point with the actor and the name of the point, where faults happen.

    Attributes:
        now_s: The time since the beginning.
        dice: All that is decided while the simulation runs.
        points: The number of points that were reached.
        events: The story.
    """

    def __init__(self, seed: int, on_point: Callable[[Actor, str], None] = lambda _actor, _what: None) -> None:
        self.now_s = 0.0
        self.dice = dice_of("order", seed)
        self.on_point = on_point
        self.points = 0
        self.events: list[ScheduledEvent] = []
        self._current: Actor | None = None
        self._actors: list[Actor] = []
        self._processes: dict[SimulatedProcess, None] = {}
        self._baton = _not_held()
        self._has_ended: Callable[[], bool] = _yes  # of the present `run`
        self._limit_s = 0.0
        self._error: BaseException | None = None  # of what happens between two steps of actors
        self._steps = 0  # of actors that one has let go on
        self._has_dying = False  # whether there may be actors of processes that are dead
        self._after_deaths: list[Callable[[], object]] = []
        self._threads = {threading.get_ident()}  # of the simulation itself, and of all actors

    @property
    def current(self) -> Actor | None:
        """The actor that runs; None for the simulation itself, and for threads of the process around it."""
        return self._current if threading.get_ident() in self._threads else None

    def runs_this_thread(self) -> bool:
        """Return whether the present thread is a part of the simulation, and none of the process around it."""
        return threading.get_ident() in self._threads

    def spawn(self, name: str, process: SimulatedProcess, body: Callable[[], None], after_s: float = 0.0) -> Actor:
        """Start an actor; it runs when the scheduler chooses it."""
        actor = Actor(name, process, body, self.now_s + after_s)
        actor.thread = threading.Thread(target=self._live, args=(actor,), name=f"simulated {name}", daemon=True)
        self._actors.append(actor)
        self._processes[process] = None
        self._has_dying |= process.is_dead
        actor.thread.start()
        return actor

    def run(self, has_ended: Callable[[], bool], limit_s: float) -> bool:
        """Let actors run until the end, or until the time is over; return whether it was the end."""
        self._has_ended, self._limit_s = has_ended, limit_s
        try:
            while not has_ended():
                actor = self._next()
                if actor is None or self.now_s > limit_s:
                    return False
                self._resume(actor)
        finally:
            self._has_ended = _yes
        return True

    def point(self, what: str) -> None:
        """Reach a point: faults may happen here, and others may be let through.

        Raises:
            Crashed: The process is gone.
        """
        actor = self.current
        if actor is None:  # the simulation itself looks at something
            return
        self._require_life(actor)
        self.points += 1
        self.now_s += _POINT_S
        self.on_point(actor, what)
        self._require_life(actor)
        if self.dice.random() < _SLOW:
            self.wait(self.dice.random() * _SLOWEST_S)
        elif self.dice.random() < _SWITCHES or actor.process.paused_until_s > self.now_s:
            self.wait(0.0)

    def wait(self, timeout_s: float, ready: Callable[[], bool] | None = None) -> None:
        """Let others go on until the time is over, or until something is there."""
        actor = self.current
        if actor is None:
            return
        self._require_life(actor)
        actor.wakes_s, actor.ready = self.now_s + max(0.0, timeout_s), ready
        following = self._follower()
        if following is not actor:
            (self._baton if following is None else following.baton).release()
            actor.baton.acquire()
        self._require_life(actor)

    def look_s(self) -> float:
        """Return the time; to look at it takes a moment."""
        self.now_s += _CLOCK_S
        return self.now_s

    def kill(self, process: SimulatedProcess) -> None:
        """End a process: its actors get no further than to where they stand, before anything else happens."""
        if not process.is_dead:
            process.is_dead = self._has_dying = True
            self.after_deaths(lambda: [release() for release in process.releases])

    def after_deaths(self, action: Callable[[], object]) -> None:
        """Do something when all processes that have been killed are gone, before anything else happens."""
        self._after_deaths.append(action)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            self.kill(process)
        while (dying := self._next()) is not None:
            self._resume(dying)

    def tell(self, what: str, who: str = "") -> None:
        """Add a line to the story."""
        name = who or ("simulation" if self.current is None else self.current.name)
        self.events.append(ScheduledEvent(self.now_s, name, what))

    def _next(self) -> Actor | None:
        """Choose the actor that goes on; the clock advances if none can."""
        living = self._actors
        if self._has_dying:
            for each in living:
                if each.process.is_dead:
                    return each
            self._has_dying = False
        while self._after_deaths:
            self._after_deaths.pop(0)()
        while living:
            now = self.now_s
            able = []
            for each in living:
                if each.process.paused_until_s <= now:
                    ready = each.ready
                    if each.wakes_s <= now or (ready is not None and ready()):
                        able.append(each)
            if able:
                return self.dice.choice(able) if len(able) > 1 else able[0]
            later = None
            for each in living:
                time = max(each.wakes_s, each.process.paused_until_s)
                if time > now and (later is None or time < later):
                    later = time
            if later is None:
                return None
            self.now_s = later
        return None

    def _follower(self) -> Actor | None:
        """Choose who goes on behind the present actor, in its thread; None: the simulation itself does."""
        self._current = following = None
        self._steps += 1
        try:
            if not self._has_ended():
                following = self._next()
        except BaseException as error:  # noqa: BLE001 - of the simulation, not of this actor
            self._error = error
        self._current = None if self.now_s > self._limit_s else following
        return self._current

    def _resume(self, actor: Actor) -> None:
        self._current = actor
        actor.baton.release()
        steps = self._steps
        while not self._baton.acquire(timeout=_PATIENCE_S):
            if self._steps == steps:
                name = actor.name if self._current is None else self._current.name
                raise InvalidStateError(
                    f"{name} has run for {_PATIENCE_S:.0f} s without reaching a point of the simulation",
                    hint="Does a function of the topology wait for something, or take a lock?",
                )
            steps = self._steps
        self._current = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _live(self, actor: Actor) -> None:
        self._threads.add(threading.get_ident())
        actor.baton.acquire()
        try:
            if not actor.process.is_dead:
                actor.body()
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001 - the simulation looks at it
            actor.error = error
        finally:
            actor.is_done = True
            self._actors.remove(actor)
            self._threads.discard(threading.get_ident())  # another thread may have it next
            self._baton.release()  # the last thing that this thread does

    def _require_life(self, actor: Actor) -> None:
        if actor.process.is_dead:
            raise Crashed
