"""The one place that chooses the engine of an application, by ``processing.mode``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.engines.micro_batches.engine import MicroBatches
from penstock.engines.threads.hosting.stream_threads import StreamThreads

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.engine import Engine
    from penstock.engines.spark.progress import BatchProgress

__all__ = ["engine_of"]

_ENGINES: dict[str, type[MicroBatches | StreamThreads]] = {
    engine.mode: engine for engine in (MicroBatches, StreamThreads)
}


def engine_of(config: StreamsConfig, on_batch: Callable[[BatchProgress], None], *, reads_nothing: bool) -> Engine:
    """Return the engine that the settings ask for.

    Args:
        config: The application's settings.
        on_batch: Called on the driver after each batch that did something, or about once a second for stream threads.
        reads_nothing: Whether it only finishes what is half done, for a conversion.
    """
    engine: Engine = _ENGINES[config["processing.mode"]](config, on_batch, reads_nothing=reads_nothing)
    return engine
