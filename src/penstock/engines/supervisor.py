"""The thread of an application that starts its run, watches it, and ends it."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.log_lines import Work, own_logger
from penstock.engines.lifecycle import State
from penstock.engines.spark.failures import spark_is_gone
from penstock.errors import LogUnavailableError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.engines.application_run import Run
    from penstock.engines.extensions import ApplicationExtensions
    from penstock.engines.http_port import HttpPort
    from penstock.engines.lifecycle import Lifecycle

__all__ = ["Supervisor"]

_log = own_logger(__name__)
_LOOK_S = 0.1  # while the log, or a topic, is away
_TOPIC_S = 30.0  # for a topic that was deleted to be made again


class Supervisor:
    """The supervision of one run of an application.

    A thread looks whether the run has ended or is to end, has lost a process, or needs another plan, and changes the
    application's state accordingly. The engine ends its waits when something has happened; else it looks now and then.

    Args:
        lifecycle: The application's state.
        run: The run.
        port: The application's HTTP port, which is open while the run is.
        extensions: Its extensions, likewise.

    Attributes:
        run: The run.
    """

    def __init__(self, lifecycle: Lifecycle, run: Run, port: HttpPort, extensions: ApplicationExtensions) -> None:
        self._lifecycle, self.run = lifecycle, run
        self._port, self._extensions = port, extensions
        self._thread: threading.Thread | None = None

    def start(self, work: Work, *, until_latest: bool) -> None:
        """Launch the run, begin the extensions, open the port, and watch the run in a thread.

        Raises:
            PenstockError: A check has failed; everything has been released, and the state is ERROR.
        """
        try:
            work.run(partial(self.run.launch, until_latest=until_latest))
            self._extensions.started(self.run)
            self._port.open()
            self.run.engine.serve_at(self._port.advertised)
        except BaseException as error:
            self._lifecycle.error = error if isinstance(error, PenstockError) else None
            self._close_port()
            self.run.release()
            self._lifecycle.become(State.NOT_RUNNING if isinstance(error, KeyboardInterrupt) else State.ERROR)
            raise
        self._lifecycle.stop.on_set = self.run.wake
        if self._lifecycle.stop.is_set():
            self.run.wake()
        watch: Callable[[], None] = self._watch
        self._thread = threading.Thread(target=work.run, args=(watch,), name="penstock-watcher", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        lifecycle, run = self._lifecycle, self.run
        try:
            while not self._has_ended():
                self._raise_of_extensions()
        except Exception as error:  # noqa: BLE001 - whatever it is: nobody must wait for ever for a watcher that is gone
            if not lifecycle.stop.is_set():
                self._fail(error if isinstance(error, PenstockError) else spark_is_gone(error))
                return
        if lifecycle.state is State.REBALANCING and not lifecycle.stop.is_set():
            run.note_tasks_ran()
            lifecycle.become(State.RUNNING)  # the query has ended by itself: its tasks have run
        lifecycle.become(State.PENDING_SHUTDOWN)
        self._close_port()
        run.release(commit=True)
        late_error = self._extensions.error()  # of what they had left to do
        if late_error is not None:
            lifecycle.fail(late_error)
        lifecycle.become(State.NOT_RUNNING if late_error is None else State.ERROR)

    def _raise_of_extensions(self) -> None:
        if (error := self._extensions.error()) is not None:
            raise error

    def _has_ended(self) -> bool:
        """Watch the run for a while, and return whether it has ended. A query that lost its processes is restarted."""
        try:
            if self._wait():
                return True
            self._upkeep()
        except PenstockError as error:
            self._begin_again(error)
        return False

    def _wait(self) -> bool:
        lifecycle, run = self._lifecycle, self.run
        has_ended = run.wait(run.engine.look_s)
        if lifecycle.state is State.REBALANCING and not has_ended and run.has_running_tasks():
            lifecycle.become(State.RUNNING)
        return has_ended

    def _upkeep(self) -> None:
        """Stop the run, have it go on with another plan, or share its tasks, as is wanted."""
        lifecycle, run = self._lifecycle, self.run
        if lifecycle.stop.is_set() or self._extensions.is_stop_requested():
            lifecycle.stop.set()
            run.stop()
        elif (plan := run.new_plan()) is not None:
            lifecycle.become(State.REBALANCING)
            run.rebalance(plan)
        elif run.may_share():
            lifecycle.become(State.REBALANCING)
            run.share()

    def _begin_again(self, error: PenstockError) -> None:
        """Begin the next epoch, or raise the error that has ended the one before.

        An epoch that cannot be begun as the log is away counts as one that has ended so.
        """
        lifecycle, run = self._lifecycle, self.run
        while self._may_recover(error):
            lifecycle.become(State.REBALANCING)
            deadline = time.monotonic() + _TOPIC_S
            try:
                while not run.plan_anew() and time.monotonic() < deadline and not lifecycle.stop.wait(_LOOK_S):
                    pass
                run.recover()
            except LogUnavailableError as again:
                error = again
            else:
                return
        raise error

    def _may_recover(self, error: PenstockError) -> bool:
        """Return whether another epoch may succeed; the log, which is waited for, knows whether the group goes on."""
        lifecycle = self._lifecycle
        while not lifecycle.stop.is_set():
            try:
                return self.run.may_recover(error)
            except LogUnavailableError as away:
                if lifecycle.state is not State.REBALANCING:
                    _log.warning("the log is away: %s; the application goes on when it is back", away.message)
                    lifecycle.become(State.REBALANCING)
                lifecycle.stop.wait(_LOOK_S)
        return False

    def _fail(self, error: PenstockError) -> None:
        self._extensions.failed(error)
        self._lifecycle.fail(error)
        self._close_port()
        self.run.release()
        self._lifecycle.become(State.ERROR)

    def _close_port(self) -> None:
        self._port.close()
        self._extensions.close()
