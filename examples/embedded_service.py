"""A web service with an application inside: it takes lines, counts their words, and answers with the counts.

    python examples/embedded_service.py            # http://127.0.0.1:8000; Ctrl-C ends both, in order
    curl -d 'all streams lead to kafka' localhost:8000/lines
    curl localhost:8000/counts/kafka

The application starts with the service (Starlette's lifespan; FastAPI has the same) and ends with it. Requests wait in
the event loop while the application works in Spark's processes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypedDict

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from penstock import Consumed, KafkaStreams, Materialized, StreamsBuilder
from penstock.engines.event_loop import AsyncKafkaStreams
from penstock.log import AsyncProducer, open_log

LOG = os.environ.get("PENSTOCK_LOG", "sqlite:///.demo/embedded-service/log.db")

config = {
    "application.id": "embedded-service",
    "bootstrap.servers": LOG,
    "state.dir": os.environ.get("PENSTOCK_STATE", ".demo/embedded-service/state"),
    "default.key.serde": "string",
    "default.value.serde": "string",
}
builder = StreamsBuilder()
lines = builder.stream("lines", Consumed(key_serde=str, value_serde=str))
lines.flat_map_values(str.split).group_by(lambda _, word: word).count(Materialized("counts"))
topology = builder.build()


class Parts(TypedDict):
    application: AsyncKafkaStreams
    producer: AsyncProducer


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[Parts]:
    with open_log(LOG) as log:
        if all(topic.name != "lines" for topic in log.topics()):
            log.create_topic("lines", partitions=2)
    async with AsyncProducer(LOG) as producer, KafkaStreams(topology, config) as application:
        yield {"application": application, "producer": producer}


async def add_line(request: Request) -> JSONResponse:
    written = await request.state.producer.send("lines", await request.body())
    return JSONResponse({"partition": written.partition, "offset": written.offset}, status_code=201)


async def count_of(request: Request) -> JSONResponse:
    count = await request.state.application.store("counts").get(request.path_params["word"])
    return JSONResponse({"count": count or 0})


async def ready(request: Request) -> JSONResponse:
    state = request.state.application.state
    return JSONResponse({"state": state.value}, status_code=200 if state.value == "RUNNING" else 503)


service = Starlette(
    routes=[
        Route("/lines", add_line, methods=["POST"]),
        Route("/counts/{word}", count_of),
        Route("/ready", ready),
    ],
    lifespan=lifespan,
)

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(service, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))
