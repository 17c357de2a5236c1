"""The consumer and the producer for an event loop: each is the plain one, in a thread of its own."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from penstock.base.durations import TimestampLike
from penstock.base.terminal.human_numbers import with_article
from penstock.errors import InvalidStateError, LogError
from penstock.log.base import OffsetAndTime, TopicLog, TopicPartition
from penstock.log.client_interfaces import ConsumerRecord, Delivery, Headers, RebalanceListener
from penstock.log.clients.consumer import Consumer
from penstock.log.clients.producer import Producer

__all__ = ["AsyncConsumer", "AsyncProducer"]

T = TypeVar("T")
C = TypeVar("C", Consumer, Producer)
_Transaction = AbstractContextManager[Producer]

_SLICE_S = 0.25  # of waiting in a thread: other calls get their turn after each


class _ClientThread(Generic[C]):
    """A client that is made, used and closed in one thread, call after call."""

    def __init__(self, make: Callable[[], C], name: str) -> None:
        self._make: Callable[[], C] = make
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self.client: C | None = None
        self._closing: Future[None] | None = None

    def check_open(self) -> None:
        """Raise InvalidStateError after ``close``."""
        if self._closing is not None:
            raise InvalidStateError(f"this {self._name} is closed", hint="make another one")

    def submit(self, call: Callable[[C], T]) -> Future[T]:
        """Queue a call with the client; the first one makes it."""
        self.check_open()
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, f"penstock-{self._name}")
        return self._executor.submit(self._run, call)

    async def call(self, call: Callable[[C], T]) -> T:
        """Call with the client. A cancelled wait leaves the call to be done."""
        return await _shielded(self.submit(call))

    async def call_or_undo(self, call: Callable[[C], T], undo: Callable[[C, T], None]) -> T:
        """Call with the client. A cancelled wait has what was done undone, before calls that come later."""
        future = self.submit(call)
        try:
            return await _shielded(future)
        except asyncio.CancelledError:
            if not future.cancel():
                with suppress(InvalidStateError):  # it is closed: there is nothing to undo
                    self.submit(lambda client: None if future.exception() else undo(client, future.result()))
            raise

    def forget(self) -> None:
        """Within a call: close the client without regard to what it cannot write; the next call makes another one."""
        with suppress(Exception):
            self._close()

    def _run(self, call: Callable[[C], T]) -> T:
        if self.client is None:
            self.client = self._make()
        return call(self.client)

    async def close(self) -> None:
        """Close the client and end the thread, also if the wait for it is cancelled."""
        if self._closing is None:
            executor = self._executor or ThreadPoolExecutor(1, f"penstock-{self._name}")
            self._closing = executor.submit(self._close)
            executor.shutdown(wait=False)
        await _shielded(self._closing)

    def _close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            client.close()


async def _shielded(future: Future[T]) -> T:
    """Wait for a call; a cancelled wait leaves it to be done, and nobody is warned of its error then."""
    waited = asyncio.wrap_future(future)
    waited.add_done_callback(_noticed)
    return await asyncio.shield(waited)


def _noticed(future: asyncio.Future[Any]) -> None:
    """Take note of the error, so that nobody is warned of one for which nobody waits."""
    if not future.cancelled():
        future.exception()


class AsyncConsumer:
    """Kafka's consumer for an event loop, for an embedded log or for Kafka; its calls never block the loop.

    It takes what `Consumer` takes, and its methods have the same names. A wait that is cancelled loses nothing: what
    was being fetched is fetched again by the next call. Calls run one after the other, in a thread that lasts until
    ``close``. The callbacks of a rebalance listener run in that thread.

    Args:
        log: A log, or its URL (a file, or Kafka's ``host:port``).
        group: The ``group.id``.
        options: The other arguments of `Consumer`, by name.

    Raises:
        ConfigError, LogError: The first call says what is wrong with the arguments, or that there is no such log.

    Example:
        >>> from penstock.log.open import open_log
        >>> async def read() -> list[bytes]:
        ...     log = open_log("memory://doc-async-consumer")
        ...     log.create_topic("orders")
        ...     async with AsyncProducer(log) as producer:
        ...         await producer.send("orders", b"apples")
        ...     async with AsyncConsumer(log, group="stock") as consumer:
        ...         await consumer.subscribe("orders")
        ...         async for record in consumer:
        ...             await consumer.commit()
        ...             return record.value
        >>> asyncio.run(read())
        b'apples'
    """

    def __init__(self, log: TopicLog | str, group: str | None = None, **options: Any) -> None:
        self._thread: _ClientThread[Consumer] = _ClientThread(partial(Consumer, log, group, **options), "consumer")
        self._records: deque[ConsumerRecord] = deque()  # fetched by iteration, not yielded yet
        self._iteration = asyncio.Lock()  # of several tasks one fetches for all

    async def start(self) -> Self:
        """Connect; the first call does it as well, and so does ``async with``."""
        await self._thread.call(_nothing)
        return self

    async def close(self) -> None:
        """Leave the group and end the thread; safe to call twice. aiokafka's ``stop``."""
        await self._thread.close()

    async def subscribe(
        self, topics: Sequence[str] | str | re.Pattern[str], *, listener: RebalanceListener | None = None
    ) -> None:
        """Subscribe to topics, see `Consumer.subscribe`."""
        await self._call(lambda consumer: consumer.subscribe(topics, listener=listener))

    async def assign(
        self,
        places: Mapping[TopicPartition, int] | Iterable[TopicPartition],
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Assign partitions to this consumer, see `Consumer.assign`."""
        await self._call(lambda consumer: consumer.assign(places, ends))

    async def unsubscribe(self) -> None:
        """Leave the group and give up all partitions."""
        await self._call(lambda consumer: consumer.unsubscribe())

    # Records

    async def poll(self, timeout_s: float = 0.0, max_records: int = 500) -> list[ConsumerRecord]:
        """Fetch up to ``max_records``; waits up to ``timeout_s`` if there is none. aiokafka's ``getmany``."""
        return await self._fetched(partial(Consumer.poll, max_records=max_records), _go_back_to_records, timeout_s)

    async def poll_batches(
        self, timeout_s: float = 0.0, max_records: int = 50_000
    ) -> list[tuple[TopicPartition, pa.RecordBatch]]:
        """Like ``poll``, as Arrow batches (RECORD_SCHEMA): many times faster than single records."""
        poll = partial(Consumer.poll_batches, max_records=max_records)
        return await self._fetched(poll, _go_back_to_batches, timeout_s)

    async def _fetched(
        self, poll: Callable[..., list[T]], undo: Callable[[Consumer, list[T]], None], timeout_s: float
    ) -> list[T]:
        """Poll until there is something, or the time is over, in slices that let other calls have their turn."""
        await self._give_back()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            slice_s = max(0.0, min(_SLICE_S, deadline - loop.time()))
            fetched = await self._thread.call_or_undo(partial(poll, timeout_s=slice_s), undo)
            if fetched or loop.time() >= deadline:
                return fetched

    async def getone(self) -> ConsumerRecord:
        """Return the next record, and wait for it; aiokafka's ``getone``."""
        return await anext(self)

    def __aiter__(self) -> Self:
        """Yield records one by one, forever or until ``finished``; the position follows each record."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        async with self._iteration:
            while not self._records:
                records, finished = await self._thread.call_or_undo(_poll_for_iteration, _give_all_back)
                if not records and finished:
                    raise StopAsyncIteration
                self._records.extend(records)
            record = self._records.popleft()
            if self._thread.client is not None:
                self._thread.client.delivered(record)
            return record

    async def _give_back(self) -> None:
        """Give back records that iteration has fetched and not yielded: they are fetched again."""
        if self._records:
            self._records.clear()
            await self._call(lambda consumer: consumer.give_back())

    # Positions

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit the positions, or these offsets, to the group; it is done even if the wait for it is cancelled."""
        await self._call(lambda consumer: consumer.commit(offsets))

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the group's committed offsets of these partitions."""
        return await self._call(lambda consumer: consumer.committed(places))

    async def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads at present."""
        return await self._call(lambda consumer: consumer.assignment())

    async def positions(self) -> dict[TopicPartition, int]:
        """Return the next offset of each partition."""
        return await self._call(lambda consumer: dict(consumer.positions))

    async def position(self, place: TopicPartition) -> int:
        """Return the next offset of a partition."""
        return await self._call(lambda consumer: consumer.position(place))

    async def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue from this offset."""
        await self._give_back()
        await self._call(lambda consumer: consumer.seek(place, offset))

    async def seek_to_beginning(self, places: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first records of these partitions, by default of all."""
        await self._give_back()
        await self._call(lambda consumer: consumer.seek_to_beginning(places))

    async def seek_to_end(self, places: Iterable[TopicPartition] = ()) -> None:
        """Continue with records that come from now on, in these partitions, by default in all."""
        await self._give_back()
        await self._call(lambda consumer: consumer.seek_to_end(places))

    async def seek_to_time(self, timestamp: TimestampLike) -> None:
        """Continue from the first record of each partition that is not older; from the end if there is none."""
        await self._give_back()
        await self._call(lambda consumer: consumer.seek_to_time(timestamp))

    async def pause(self, places: Collection[TopicPartition]) -> None:
        """Fetch nothing from these partitions until ``resume``; they stay assigned to this member."""
        await self._call(lambda consumer: consumer.pause(places))

    async def resume(self, places: Collection[TopicPartition]) -> None:
        """Fetch again from paused partitions."""
        await self._call(lambda consumer: consumer.resume(places))

    async def beginning_offsets(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """Return the offsets of the first records of these partitions, by default of all that are assigned."""
        return await self._call(lambda consumer: consumer.beginning_offsets(places))

    async def end_offsets(self, places: Iterable[TopicPartition] = ()) -> dict[TopicPartition, int]:
        """Return the offsets behind the last records of these partitions, by default of all that are assigned."""
        return await self._call(lambda consumer: consumer.end_offsets(places))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTime | None]:
        """Return the first record of each partition that is not older than its time; None if there is none."""
        return await self._call(lambda consumer: consumer.offsets_for_times(times))

    async def group_metadata(self) -> object:
        """Return what a transactional producer has to know of this consumer's membership."""
        return await self._call(lambda consumer: consumer.group_metadata())

    async def _call(self, call: Callable[[Consumer], T]) -> T:
        return await self._thread.call(call)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


def _nothing(_: object) -> None:
    """Only make the client."""


def _poll_for_iteration(consumer: Consumer) -> tuple[list[ConsumerRecord], bool]:
    records = consumer.poll(timeout_s=_SLICE_S)
    consumer.hold(records)
    return records, bool(consumer.assignment()) and consumer.finished


def _give_all_back(consumer: Consumer, _: tuple[list[ConsumerRecord], bool]) -> None:
    consumer.give_back()


def _go_back_to_records(consumer: Consumer, records: list[ConsumerRecord]) -> None:
    _go_back(consumer, ((TopicPartition(each.topic, each.partition), each.offset) for each in records))


def _go_back_to_batches(consumer: Consumer, batches: list[tuple[TopicPartition, pa.RecordBatch]]) -> None:
    _go_back(consumer, ((tp, batch.column("offset")[0].as_py()) for tp, batch in batches))


def _go_back(consumer: Consumer, fetched: Iterable[tuple[TopicPartition, int]]) -> None:
    """Seek to the first of the records that a call has fetched for nobody."""
    firsts: dict[TopicPartition, int] = {}
    for tp, offset in fetched:
        firsts.setdefault(tp, offset)
    assigned = consumer.assignment()
    for tp, offset in firsts.items():
        if tp in assigned:
            consumer.seek(tp, offset)


class AsyncProducer:
    """Kafka's producer for an event loop, for an embedded log or for Kafka; its calls never block the loop.

    Records are written together: those that are sent while others are being written make the next write. So many tasks
    that each wait for their own record are as fast as batches. Writes are idempotent.

    Args:
        log: A log, or its URL (a file, or Kafka's ``host:port``).
        transactional_id: Makes all writes transactions; a newer producer of the same id fences this one.
        options: The other arguments of `Producer`, by name.

    Raises:
        ConfigError, LogError: The first call says what is wrong with the arguments, or that there is no such log.

    Example:
        >>> from penstock.log.open import open_log
        >>> async def write() -> list[int]:
        ...     log = open_log("memory://doc-async-producer")
        ...     log.create_topic("orders")
        ...     async with AsyncProducer(log) as producer:
        ...         first = await producer.send("orders", b"apples", key=b"alice")
        ...         more = [producer.send("orders", b"pears") for _ in range(2)]
        ...         return [first.offset, *[written.offset for written in await asyncio.gather(*more)]]
        >>> asyncio.run(write())
        [0, 1, 2]
    """

    def __init__(self, log: TopicLog | str, *, transactional_id: str = "", **options: Any) -> None:
        self._is_transactional = bool(transactional_id)
        make = partial(Producer, log, transactional_id=transactional_id, **options)
        self._thread: _ClientThread[Producer] = _ClientThread(make, "producer")
        self._waiting: deque[tuple[tuple[Any, ...], dict[str, Any], Future[Delivery]]] = deque()
        self._lock = threading.Lock()  # of whether a write is queued
        self._is_queued = False
        self._unfinished: set[Future[Delivery]] = set()
        self._refused: Exception | None = None  # the first error of a record in this transaction

    async def start(self) -> Self:
        """Connect, and fence older producers of the same transactional id; ``async with`` does it as well."""
        await self._thread.call(_nothing)
        return self

    async def close(self) -> None:
        """Write what waits, close, and end the thread; safe to call twice. aiokafka's ``stop``."""
        await self._thread.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[Delivery]:
        """Send one record, see `Producer.send`; ``await`` the result for its partition and offset.

        The record is sent whether somebody waits or not, and also if the wait is cancelled. Without waits a program can
        send faster than is written; ``await`` some of them, or ``flush``.

        Returns:
            A future of the `Delivery`; its error is that of the write, which the loop logs if nobody asks for it. In a
            transaction of an embedded log, which gets its offsets at the commit, offsets are -1.

        Raises:
            LogError: The key or the value is not bytes.
        """
        self._thread.check_open()
        value, key = _bytes_of(topic, "value", value), _bytes_of(topic, "key", key)
        written: Future[Delivery] = Future()
        written.set_running_or_notify_cancel()  # a cancelled wait does not take the record back
        waiting: asyncio.Future[Delivery] = asyncio.wrap_future(written)
        self._unfinished.add(written)
        written.add_done_callback(self._unfinished.discard)
        options = {"key": key, "timestamp": timestamp, "partition": partition, "headers": headers}
        self._waiting.append(((topic, value), options, written))
        with self._lock:
            queues, self._is_queued = not self._is_queued, True
        if queues:
            self._thread.submit(self._write).add_done_callback(self._refuse_all)
        return waiting

    async def flush(self) -> None:
        """Wait until all records that were sent before are written; raises the first error of those it waits for."""
        unfinished = [each for each in list(self._unfinished) if not each.done()]
        if unfinished:
            await asyncio.gather(*[asyncio.wrap_future(each) for each in unfinished])

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin a transaction: its records and offsets become visible together when the block ends, or never.

        If the block raises, or its task is cancelled, the transaction is aborted. A commit that has begun is made, also
        if the wait for it is cancelled.

        Raises:
            FencedError: A newer producer has this transactional id.
            LogError: A record of the transaction could not be written, whether somebody waited for it or not.
        """
        block = await self._thread.call_or_undo(self._begin, _undo_begin)
        try:
            yield self
            await self._thread.call(self._write_all)
        except BaseException as error:
            await self._thread.call(partial(_aborted, block, error))
            raise
        await self._thread.call(lambda _: block.__exit__(None, None, None))

    async def send_offsets(self, consumer: AsyncConsumer, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit a consumer's offsets, by default its positions, in the transaction: exactly-once processing.

        Kafka's ``sendOffsetsToTransaction``. The consumer must have a group and must not commit itself.
        """
        chosen = await consumer.positions() if offsets is None else offsets
        member = await consumer.group_metadata()
        await self._thread.call(lambda producer: producer.send_offsets_of(member, chosen))

    def _begin(self, producer: Producer) -> _Transaction:
        block = producer.transaction()
        block.__enter__()
        self._refused = None
        return block

    def _write_all(self, producer: Producer) -> None:
        """Write what waits; raise the error of any record of the transaction, which must not be committed then."""
        self._write(producer)
        if self._refused is not None:
            raise self._refused

    def _refuse_all(self, write: Future[None]) -> None:
        """If there is no client that could write, say so to all who wait."""
        error = write.exception()
        if isinstance(error, Exception):
            with self._lock:
                self._is_queued = False
            while self._waiting:
                _settle(self._waiting.popleft()[2], None, error)

    def _write(self, producer: Producer) -> None:
        """Write all records that wait, and those that come meanwhile with the next call."""
        with self._lock:
            self._is_queued = False
        written: list[tuple[str, int | None, Future[Delivery]]] = []
        while self._waiting:
            record, options, future = self._waiting.popleft()
            try:
                producer.send(*record, **options, on_delivery=partial(_settle, future))
            except Exception as error:  # noqa: BLE001 - it is that of whoever waits for the record
                self._refused = self._refused or error
                _settle(future, None, error)
            else:
                written.append((record[0], options["partition"], future))
        try:
            producer.flush()
        except Exception as error:  # noqa: BLE001 - each record has its own; this is of those that have none
            self._refused = self._refused or error
            if not self._is_transactional and not all(future.done() for _, _, future in written):
                self._thread.forget()  # an embedded log's producer would try these again with all later ones
            for _, _, future in written:
                _settle(future, None, error)
        for topic, partition, future in written:  # a transaction of an embedded log gets its offsets at the commit
            _settle(future, Delivery(topic, -1 if partition is None else partition, -1, -1), None)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exception: object) -> None:
        try:
            await self.flush()
        finally:
            await self.close()


def _bytes_of(topic: str, name: str, data: object) -> bytes | None:
    """Return bytes that stay as they are until they are written."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise LogError(
        f"the {name} of a record for {topic!r} is {with_article(type(data).__name__)}, not bytes",
        hint="A serde makes bytes of it, or encode() of a text.",
        topic=topic,
    )


def _settle(future: Future[Delivery], done: Delivery | None, error: Exception | None) -> None:
    if future.done():
        return
    if done is not None:
        future.set_result(done)
    else:
        future.set_exception(error or InvalidStateError("the record was not written"))


def _undo_begin(producer: Producer, block: _Transaction) -> None:
    _aborted(block, asyncio.CancelledError(), producer)


def _aborted(block: _Transaction, error: BaseException, _: Producer) -> None:
    with suppress(type(error)):
        block.__exit__(type(error), error, error.__traceback__)
