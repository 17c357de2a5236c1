"""The states of an application, from its creation to its end."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable

from penstock.base.log_lines import own_logger
from penstock.errors import AppFailedError, InvalidStateError, PenstockError

__all__ = ["Lifecycle", "State", "StateListener"]


class State(enum.Enum):
    """Kafka's ``KafkaStreams.State``."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"

    @property
    def is_running_or_rebalancing(self) -> bool:
        """Whether the application is started and not stopping; Kafka's ``isRunningOrRebalancing``."""
        return self in (State.RUNNING, State.REBALANCING)


StateListener = Callable[[State, State], None]


_log = own_logger("penstock.app")
_ENDED = (State.NOT_RUNNING, State.ERROR)


class _Stop(threading.Event):
    """An event that wakes who waits for something else, too: by `on_set`."""

    def __init__(self) -> None:
        super().__init__()
        self.on_set: Callable[[], None] = lambda: None

    def set(self) -> None:
        super().set()
        self.on_set()


class Lifecycle:
    """The state of an application, with the listener of its changes, and the error that ended it.

    Attributes:
        state_listener: Called with the new and the old state at each change.
        on_error: Called with the error that makes the application fail, before its state becomes ERROR.
        stop: Set when the application is to stop; its ``on_set`` is called then.

    Args:
        application: The ``application.id``.

    Example:
        >>> lifecycle = Lifecycle("word-count")
        >>> lifecycle.state_listener = lambda new, old: print(old.value, "->", new.value)
        >>> lifecycle.become(State.REBALANCING)
        CREATED -> REBALANCING
        >>> lifecycle.is_running
        True
    """

    def __init__(self, application: str) -> None:
        self._application = application
        self._state = State.CREATED
        self._changed = threading.Condition()
        self._has_ended = False  # set after the listener has been called
        self.state_listener: StateListener | None = None
        self.on_error: Callable[[PenstockError], None] | None = None
        self.error: PenstockError | None = None
        self.stop = _Stop()

    @property
    def state(self) -> State:
        """The current state."""
        return self._state

    @property
    def is_running(self) -> bool:
        """Whether the application is started and not stopping."""
        return self._state.is_running_or_rebalancing

    def require_created(self, call: str) -> None:
        """Raise InvalidStateError unless the application has not been started yet."""
        if self._state is not State.CREATED:
            raise InvalidStateError(
                f"{call}() is for applications that have not been started; this one is {self._state.value}",
                hint="Make a new KafkaStreams object to start again.",
            )

    def become(self, state: State) -> None:
        """Change the state, call the listener, and wake those who wait for the end."""
        old, self._state = self._state, state
        if old is not state:
            _log.info("%s: %s -> %s", self._application, old.value, state.value)
        if self.state_listener is not None and old is not state:
            try:
                self.state_listener(state, old)
            except Exception:  # noqa: BLE001 - logged; the application goes on
                _log.exception("the state listener raised")
        if state is State.ERROR and self.error is None:
            self.error = AppFailedError("the application did not start")
        with self._changed:
            self._has_ended = state in _ENDED
            self._changed.notify_all()

    def fail(self, error: PenstockError) -> None:
        """Note the error that ends the application, and call the handler; the state becomes PENDING_ERROR."""
        self.error = error
        self.become(State.PENDING_ERROR)
        if self.on_error is not None:
            try:
                self.on_error(error)
            except Exception:  # noqa: BLE001 - logged; the application goes on
                _log.exception("the uncaught exception handler raised")

    def await_end(self, timeout_s: float | None) -> bool:
        """Wait until the application has ended; return whether it has, within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._has_ended, timeout_s)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait as `await_end`, and raise the error that ended the application, once it has released everything.

        Example:
            >>> lifecycle = Lifecycle("word-count")
            >>> lifecycle.fail(PenstockError("no broker answers"))
            >>> lifecycle.wait(0)  # its lease is still held
            False
            >>> lifecycle.become(State.ERROR)
            >>> lifecycle.wait(0)
            Traceback (most recent call last):
            penstock.errors.PenstockError: no broker answers
        """
        ended = self.await_end(timeout_s)
        if ended and self.error is not None:
            raise self.error
        return ended
