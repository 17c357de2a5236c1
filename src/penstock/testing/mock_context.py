"""The context of one processor alone, which keeps what the processor does with it: Kafka's ``MockProcessorContext``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from penstock.api.processing.processor import Processor, PunctuationType, Record
from penstock.base.argument_checks import check_given, check_whole
from penstock.base.durations import DurationLike, TimestampLike, timestamp_ms
from penstock.base.java_names import with_java_names, with_java_names_of
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, TopologyError
from penstock.runtime.context import TaskContext, TaskEnvironment
from penstock.runtime.processors import NodeContext
from penstock.runtime.rows import RecordContext
from penstock.state.maps import MemoryTaskState
from penstock.testing.driver import driver_config
from penstock.topology.configured import with_settings
from penstock.topology.nodes import ProcessorNode
from penstock.topology.operations.definitions import Process
from penstock.topology.plan.plan import TaskId
from penstock.topology.stores import StoreSpec
from penstock.topology.topology import Topology

if TYPE_CHECKING:
    from penstock.api.processing.processor import Cancellable
    from penstock.runtime.processors import ProcessOperator
    from penstock.runtime.punctuation import Schedule

__all__ = ["CapturedForward", "CapturedPunctuator", "MockProcessorContext"]

_NAME = "MockProcessorContext"


@with_java_names
class CapturedForward(NamedTuple):
    """A record that a processor has forwarded: Kafka's ``MockProcessorContext.CapturedForward``.

    Attributes:
        record: The record.
        child: The child that was named; None: all children.
    """

    record: Record[Any, Any]
    child: str | None = None


@with_java_names
@dataclass(frozen=True, slots=True)
class CapturedPunctuator:
    """A punctuation that a processor has scheduled: Kafka's ``MockProcessorContext.CapturedPunctuator``.

    Attributes:
        interval_ms: The interval.
        type: The kind of time.
        start_ms: The time that the processor gave as the start; None: it gave none.
        punctuator: The function, which a test calls with a time.
    """

    interval_ms: int
    type: PunctuationType
    start_ms: int | None
    punctuator: Callable[[int], None]
    _schedule: Schedule

    @property
    def cancelled(self) -> bool:
        """Whether it has been cancelled."""
        return self._schedule.cancelled

    def cancel(self) -> None:
        """Cancel it, as the processor may."""
        self._schedule.cancel()


class _AnyChild(frozenset[str]):
    """The names of the children of a processor that stands alone: whatever it calls them."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)


class _Captures:
    """What the context has in place of the operator that runs a processor: it keeps forwards and runs no schedule."""

    record_type = Record

    def __init__(self, task: TaskContext) -> None:
        self.stream_queue = task.stream_queue
        self.wall_clock_queue = task.wall_clock_queue
        self.forwards: list[CapturedForward] = []

    def forward(self, child: str | None, record: Record[Any, Any]) -> None:
        self.forwards.append(CapturedForward(record, child))

    def is_global(self, store: str) -> bool:  # noqa: ARG002 - every store is that of the processor
        return False


@with_java_names_of("MockProcessorContext")
class MockProcessorContext(NodeContext):
    """A context for the test of one processor without a topology: Kafka's ``MockProcessorContext``.

    It is the context that production gives to processors, with real stores; but what is forwarded and scheduled is
    kept for the test, time stands where the test sets it, and punctuators run only when the test calls them. A
    `TopologyTestDriver` runs processors with all that is around them.

    Args:
        config: Settings; ``application.id`` is optional.
        task_id: The id of the task, ``<sub-topology>_<partition>``.

    >>> from penstock import Processor, Stores
    >>> class Totals(Processor[str, int, str, int]):
    ...     def init(self, context):
    ...         super().init(context)
    ...         self.totals = context.get_state_store("totals")
    ...         context.schedule("1 minute", "wall_clock_time", self.forget)
    ...
    ...     def process(self, record):
    ...         total = (self.totals.get(record.key) or 0) + record.value
    ...         self.totals.put(record.key, total)
    ...         self.context.forward(record.with_value(total))
    ...
    ...     def forget(self, now_ms):
    ...         for key, _ in list(self.totals.all()):
    ...             self.totals.delete(key)
    >>> context = MockProcessorContext()
    >>> totals = context.add_state_store(Stores.key_value("totals", key_serde="string", value_serde="long"))
    >>> processor = Totals()
    >>> processor.init(context)
    >>> processor.process(Record("ann", 5, timestamp=0))
    >>> processor.process(Record("ann", 2, timestamp=1))
    >>> [each.record.value for each in context.forwarded()], totals.get("ann")
    ([5, 7], 7)
    >>> [punctuation] = context.scheduled_punctuators()
    >>> punctuation.interval_ms, punctuation.type
    (60000, 'wall_clock_time')
    >>> punctuation.punctuator(60_000)
    >>> totals.get("ann") is None
    True
    """

    def __init__(self, config: StreamsConfig | Mapping[str, Any] | None = None, task_id: str = "0_0") -> None:
        self.config = driver_config(config, f"{_NAME}(): config")
        self._state = MemoryTaskState(())
        environment = TaskEnvironment(wall_clock_ms=0)
        task = TaskContext(Topology(), self.config, _task_id(task_id), self._state, environment)
        self._captures = _Captures(task)
        node = ProcessorNode(_NAME, Process(Processor), ())
        super().__init__(cast("ProcessOperator", self._captures), node, task, _AnyChild())
        self._punctuators: list[CapturedPunctuator] = []
        self._committed = False

    # What the test prepares

    def add_state_store(self, store: StoreSpec) -> Any:
        """Add a store, which is empty, and return it; ``get_state_store`` returns it to the processor.

        Args:
            store: The store, as `penstock.Stores` makes it. Serdes that it does not name are the default ones.
        """
        check_given(store, StoreSpec, "add_state_store(): the store", "a store of penstock.Stores")
        present = self._task.topology.stores
        if store.name in present:
            raise TopologyError(f"there is a state store {store.name!r} already", store=store.name)
        spec = with_settings(Topology(stores={store.name: store}), self.config).stores[store.name]
        self._task.topology = Topology(stores={**present, spec.name: spec})
        self._state.add(spec)
        self._stores.add(spec.name)
        return self.get_state_store(spec.name)

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        """Set the origin of the records that are processed from now on; at first there is none."""
        check_given(topic, str, "set_record_metadata(): the topic", "a text")
        check_whole(partition, "set_record_metadata(): partition", 0)
        check_whole(offset, "set_record_metadata(): offset", 0)
        self.source = RecordContext(topic, partition, offset, -1, ())

    def set_current_stream_time_ms(self, time: TimestampLike) -> None:
        """Set the stream time; at first it is -1, as before the first record."""
        self._task.input_stream_times = np.full(1, timestamp_ms(time), np.int64)

    def set_current_system_time_ms(self, time: TimestampLike) -> None:
        """Set the wall clock; at first it is 0."""
        self._task.wall_clock_ms = timestamp_ms(time)

    # What the processor does

    def schedule(
        self,
        interval: DurationLike,
        type: str,  # noqa: A002
        callback: Callable[[int], None],
        *,
        start: TimestampLike | None = None,
    ) -> Cancellable:
        """Keep a punctuation; see `scheduled_punctuators`."""
        schedule = cast("Schedule", super().schedule(interval, type, callback, start=start))
        start_ms = None if start is None else timestamp_ms(start)
        kind = cast("PunctuationType", type)
        self._punctuators.append(CapturedPunctuator(schedule.interval_ms, kind, start_ms, callback, schedule))
        return schedule

    def commit(self) -> None:
        """Note that the processor has asked for a commit; see `committed`."""
        self._committed = True

    # What the test looks at

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """Return the records that were forwarded, in order.

        Args:
            child: The name of a child: only those that it would get, by its name or as one of all. None: all.
        """
        forwards = self._captures.forwards
        return [each for each in forwards if child is None or each.child in (None, child)]

    def reset_forwards(self) -> None:
        """Forget the records that were forwarded."""
        self._captures.forwards.clear()

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """Return the punctuations that were scheduled, also those that have been cancelled."""
        return list(self._punctuators)

    @property
    def committed(self) -> bool:
        """Whether the processor has asked for a commit."""
        return self._committed

    def reset_commit(self) -> None:
        """Forget that the processor has asked for a commit."""
        self._committed = False


def _task_id(text: str) -> str:
    try:
        return str(TaskId.parse(text))
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"{_NAME}(): {text!r} is not the id of a task", hint='It is "<sub-topology>_<partition>", as "0_0".'
        ) from None
