"""Applications inside an event loop: the loop goes on, failures end the block, signals stay the host's."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from eventually import eventually
from penstock import Materialized, StreamsBuilder
from penstock.engines.event_loop import AsyncKafkaStreams
from penstock.errors import PenstockError, StateError
from penstock.query import KeyQuery, StateQueryRequest
from penstock.tools.broker.broker_settings import free_port

from .conftest import Bench

SERVICE = Path(__file__).parents[2] / "examples" / "embedded_service.py"


def counted():
    builder = StreamsBuilder()
    words = builder.stream("words").map_values(lambda value: 1 / (value != "bad") and value)
    words.group_by(lambda _, value: value).count(Materialized("counts"))
    return builder.build()


async def counts_of(app: AsyncKafkaStreams) -> dict[str, int]:
    try:
        return dict(await app.store("counts").all())
    except StateError:  # not restored yet
        return {}


def test_an_application_in_a_block(bench: Bench) -> None:
    """The loop goes on while it starts, signals stay as they were, queries are awaited; its failure ends the block."""
    bench.log.create_topic("words", 2)
    bench.write("words", [("k", f"w{n % 3}", n) for n in range(30)])

    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def run() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        before = handlers()
        ticking = asyncio.create_task(tick())
        with pytest.raises(PenstockError, match="ZeroDivisionError"):  # noqa: PT012
            async with bench.app(counted()) as app:
                assert ticks > 3  # the start takes a second
                assert handlers() == before
                assert await app.wait_until_running(300_000)
                async with asyncio.timeout(300):
                    while await counts_of(app) != {"w0": 10, "w1": 10, "w2": 10}:
                        await asyncio.sleep(0.1)
                assert await app.store("counts").get("w1") == 10
                result = await app.query(StateQueryRequest.in_store("counts").with_query(KeyQuery("w2")))
                assert result.only_partition_result.get() == 10
                assert await app.wait(10) is False
                with pytest.raises(StateError):
                    await app.store("none such").get("x")
                bench.write("words", [("k", "bad", 100)])
                async with asyncio.timeout(300):
                    await asyncio.Event().wait()  # cancelled by the failure
        assert app.state.value == "ERROR"
        assert asyncio.current_task().cancelling() == 0
        with pytest.raises(PenstockError, match="none-such"):
            async with bench.app(copied("none-such"), **{"application.id": "other"}):
                pass
        ticking.cancel()

    asyncio.run(run())


def copied(topic: str):
    builder = StreamsBuilder()
    builder.stream(topic).to("words")
    return builder.build()


def test_a_service_that_embeds_an_application_ends_in_order(tmp_path: Path) -> None:
    port = free_port()
    settings = {"PENSTOCK_LOG": f"sqlite:///{tmp_path / 'log.db'}", "PENSTOCK_STATE": str(tmp_path / "state")}
    environment = {**os.environ, **settings, "PORT": str(port)}
    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen([sys.executable, SERVICE], env=environment, stdout=said, stderr=said) as service,
    ):
        try:
            url = f"http://127.0.0.1:{port}"

            def is_ready() -> bool:
                assert service.poll() is None, (tmp_path / "said").read_text()
                try:
                    return httpx.get(f"{url}/ready").status_code == 200
                except httpx.TransportError:
                    return False

            eventually(is_ready, within_s=300)
            for text in ("all streams lead to kafka", "hello kafka"):
                assert httpx.post(f"{url}/lines", content=text.encode()).status_code == 201
            counted_two = lambda: httpx.get(f"{url}/counts/kafka").json() == {"count": 2}  # noqa: E731
            eventually(counted_two, within_s=300, passing=(ValueError, httpx.TransportError))
            service.send_signal(signal.SIGTERM)
            service.wait(300)
        finally:
            service.kill()
    text = (tmp_path / "said").read_text()
    assert "Application shutdown complete" in text
    assert "Traceback" not in text, text
