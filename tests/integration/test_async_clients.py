"""The consumer and the producer for event loops, over both logs: nothing lost by a cancelled wait, no thread left."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import suppress

import pytest

from eventually import eventually
from penstock.errors import FencedError, InvalidStateError, PenstockError
from penstock.log import AsyncConsumer, AsyncProducer, Consumer, TopicPartition, open_log

NAMES = itertools.count()


@pytest.fixture(params=["embedded", "kafka"])
def log(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'log.db'}"
    if request.param == "kafka":
        url = request.getfixturevalue("kafka").settings.bootstrap_servers
    with open_log(url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield

    def ours() -> list[str]:
        return [each.name for each in set(threading.enumerate()) - before if each.name.startswith("penstock-")]

    eventually(lambda: not ours(), within_s=60)


def topic_of(log, partitions: int = 3) -> str:
    name = f"async-{next(NAMES)}-{id(log)}"
    log.create_topic(name, partitions)
    return name


async def filled(log, topic: str, count: int) -> None:
    async with AsyncProducer(log) as producer:
        await asyncio.gather(*[producer.send(topic, b"%d" % n, key=b"%d" % (n % 7)) for n in range(count)])


def test_many_tasks_send_and_one_reads_all(log):
    topic = topic_of(log)

    async def run() -> None:
        async with AsyncProducer(log) as producer:
            written = await asyncio.gather(*[producer.send(topic, b"%d" % n, key=b"%d" % n) for n in range(500)])
            places = {(each.partition, each.offset) for each in written}
            assert len(places) == 500
            for number in range(100):
                producer.send(topic, b"more %d" % number)
            await producer.flush()
        async with AsyncConsumer(log, group=f"g-{topic}") as consumer:
            await consumer.subscribe(topic)
            values = set()
            async for record in consumer:
                values.add(record.value)
                if len(values) == 600:
                    break
            await consumer.commit()
            places = [TopicPartition(topic, number) for number in range(3)]
            assert sum((await consumer.committed(places)).values()) == 600
            assert await consumer.end_offsets() == await consumer.positions()

    asyncio.run(run())


def test_commits_count_what_was_yielded(log):
    topic = topic_of(log, 1)

    async def run() -> None:
        await filled(log, topic, 20)
        place = TopicPartition(topic, 0)
        async with AsyncConsumer(log, group=f"g-{topic}") as consumer:
            await consumer.subscribe([topic])
            read = [await consumer.getone() for _ in range(7)]
            await consumer.commit()
            assert await consumer.committed([place]) == {place: 7}
            rest = []
            while len(rest) < 13:  # polls go on behind the yielded ones
                rest += await consumer.poll(timeout_s=30)
            assert [each.offset for each in [*read, *rest]] == list(range(20))
            await consumer.seek(place, 5)
            assert (await consumer.getone()).offset == 5

    asyncio.run(run())


def test_a_cancelled_wait_loses_nothing(log):
    """Waits are cancelled at many points; every record is read once, in order."""
    topic = topic_of(log, 1)

    async def run() -> list[int]:
        read: list[int] = []
        async with AsyncConsumer(log, group=f"g-{topic}") as consumer:
            await consumer.subscribe(topic)
            writer = asyncio.create_task(filled(log, topic, 300))
            turn = itertools.count()
            while len(read) < 300:
                number = next(turn)
                waits_s = (number % 9) / 300
                with suppress(TimeoutError):
                    async with asyncio.timeout(waits_s if number < 200 else 30):
                        if number % 3 == 0:
                            read += [each.offset for each in await consumer.poll(5, max_records=10)]
                        elif number % 3 == 1:
                            for _, batch in await consumer.poll_batches(5, max_records=10):
                                read += batch.column("offset").to_pylist()
                        else:
                            async for record in consumer:
                                read.append(record.offset)
                                if record.offset % 10 == 9:
                                    break
            await writer
        return read

    assert asyncio.run(run()) == list(range(300))


def test_a_cancelled_send_is_written_all_the_same(log):
    topic = topic_of(log, 1)

    async def run() -> None:
        async with AsyncProducer(log) as producer:
            for number in range(20):
                waiting = asyncio.ensure_future(producer.send(topic, b"%d" % number))
                if number % 2:
                    await asyncio.sleep(0)
                    waiting.cancel()
            await producer.flush()

    asyncio.run(run())
    with Consumer(log) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        eventually(lambda: values.extend(each.value for each in consumer.poll(0.5)) or len(values) == 20, within_s=60)
        assert values == [b"%d" % number for number in range(20)]


def test_transactions_with_offsets_are_whole_or_nothing(log):
    source, target = topic_of(log, 1), topic_of(log, 1)
    place = TopicPartition(source, 0)

    async def run() -> None:
        await filled(log, source, 10)
        async with (
            AsyncConsumer(log, group=f"g-{source}") as consumer,
            AsyncProducer(log, transactional_id=f"t-{source}") as producer,
        ):
            await consumer.subscribe(source)
            records = []
            while len(records) < 10:
                records += await consumer.poll(timeout_s=30)
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with producer.transaction():
                    producer.send(target, b"aborted")
                    await producer.send_offsets(consumer)
                    raise ZeroDivisionError
            assert await consumer.committed([place]) in ({}, {place: None})
            task = asyncio.create_task(_endless(producer, target))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                for record in records:
                    producer.send(target, record.value)
                await producer.send_offsets(consumer)
            assert await consumer.committed([place]) == {place: 10}
            with pytest.raises(InvalidStateError, match="only writes transactions"):
                await producer.send(target, b"outside")

    async def _endless(producer: AsyncProducer, topic: str) -> None:
        async with producer.transaction():
            await producer.send(topic, b"cancelled")
            await asyncio.Event().wait()

    asyncio.run(run())
    with Consumer(log) as consumer:
        consumer.assign([TopicPartition(target, 0)])
        values: list[bytes | None] = []
        eventually(lambda: values.extend(each.value for each in consumer.poll(0.5)) or len(values) >= 10, within_s=60)
        assert values == [b"%d" % number for number in range(10)]


def test_a_refused_record_keeps_a_transaction_from_its_commit(log):
    """Nobody waits for the record; the transaction must not be committed without it."""
    topic = topic_of(log, 1)

    async def run() -> None:
        async with AsyncProducer(log, transactional_id=f"t-{topic}") as producer:
            with pytest.raises(PenstockError, match="before 1970"):  # noqa: PT012
                async with producer.transaction():
                    producer.send(topic, b"without the other")
                    lost = producer.send(topic, b"refused", timestamp=-1)
            assert isinstance(lost.exception(), PenstockError)
            for _ in range(20):  # a begin that is cancelled is undone: the next one can begin
                task = asyncio.create_task(_begins(producer))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            async with producer.transaction():
                await producer.send(topic, b"whole")

    async def _begins(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await asyncio.Event().wait()

    asyncio.run(run())
    with Consumer(log) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values: list[bytes | None] = []
        eventually(lambda: values.extend(each.value for each in consumer.poll(0.5)) or values, within_s=120)
        assert values == [b"whole"]


def test_a_record_that_cannot_be_written_does_not_keep_later_ones(log):
    topic = topic_of(log, 1)

    async def run() -> None:
        async with AsyncProducer(log) as producer:
            with pytest.raises(PenstockError, match="is a str, not bytes"):
                producer.send(topic, "text")
            with pytest.raises((PenstockError, TypeError, ValueError)):
                await producer.send(topic, b"x", headers=[(b"\xff", 5)])
            assert (await producer.send(topic, b"y")).offset == 0

    asyncio.run(run())


def test_several_tasks_iterate_over_one_consumer(log):
    """Each record comes to one of them, and commits count what was yielded."""
    topic = topic_of(log)
    places = [TopicPartition(topic, number) for number in range(3)]

    async def run() -> None:
        await filled(log, topic, 200)
        async with AsyncConsumer(log, group=f"g-{topic}") as consumer:
            await consumer.subscribe(topic)
            read: list[tuple[int, int]] = []

            async def reads() -> None:
                for _ in range(25):
                    record = await consumer.getone()
                    read.append((record.partition, record.offset))
                    await asyncio.sleep(0)

            await asyncio.gather(*[reads() for _ in range(4)])
            await consumer.commit()
            assert len(read) == len(set(read)) == 100
            assert sum((await consumer.committed(places)).values()) == 100

    asyncio.run(run())


def test_without_a_log_every_wait_ends_with_the_error():
    async def run() -> None:
        producer = AsyncProducer("sqlite:////dev/null/no-such-folder/log.db")
        sent = [producer.send("t", b"x") for _ in range(3)]
        async with asyncio.timeout(120):
            results = await asyncio.gather(*sent, return_exceptions=True)
        assert all(isinstance(each, PenstockError) for each in results), results
        with pytest.raises(PenstockError):
            await producer.send("t", b"x")
        await producer.close()
        consumer = AsyncConsumer("sqlite:////dev/null/no-such-folder/log.db")
        with pytest.raises(PenstockError):
            await consumer.poll()
        await consumer.close()
        waiting = asyncio.create_task(_cancelled(AsyncConsumer("memory://closed-meanwhile")))
        async with asyncio.timeout(120):
            await asyncio.wait([waiting])
        assert waiting.cancelled()

    async def _cancelled(consumer: AsyncConsumer) -> None:
        """A wait that is cancelled after the close says that it is cancelled, not that it is closed."""
        with open_log("memory://closed-meanwhile") as log:
            log.create_topic("t")
        await consumer.subscribe("t")
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        closing = [asyncio.ensure_future(consumer.close())]
        loop.call_soon(lambda: (closing, task.cancel()))
        await consumer.poll(timeout_s=120)

    asyncio.run(run())


def test_a_newer_producer_fences_the_older_one(log):
    topic = topic_of(log, 1)

    async def run() -> None:
        old, new = (AsyncProducer(log, transactional_id=f"t-{topic}") for _ in range(2))
        await old.start()
        await new.start()
        try:
            with pytest.raises(FencedError):
                async with old.transaction():
                    await old.send(topic, b"x")
            async with new.transaction():
                await new.send(topic, b"y")
        finally:
            await old.close()
            await new.close()

    asyncio.run(run())


def test_errors_are_those_of_the_call(log):
    topic = topic_of(log, 1)

    async def run() -> None:
        async with AsyncProducer(log) as producer:
            with pytest.raises(PenstockError, match="before 1970"):
                await producer.send(topic, b"x", timestamp=-1)
            assert (await producer.send(topic, b"y")).offset == 0
        with pytest.raises(InvalidStateError, match="closed"):
            await producer.send(topic, b"z")
        await producer.close()
        consumer = AsyncConsumer(log, assignors="none such")
        with pytest.raises(PenstockError):
            await consumer.start()
        await consumer.close()
        async with AsyncConsumer(log) as other:
            with pytest.raises(InvalidStateError, match="no partitions"):
                await other.poll()

    asyncio.run(run())
