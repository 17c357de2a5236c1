"""The one place that chooses the engine of an application, by ``processing.mode``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.engine import Engine
    from penstock.engines.micro_batches.engine import MicroBatchesEngine
    from penstock.engines.spark.progress import BatchProgress
    from penstock.engines.threads.engine import StreamThreadsEngine

__all__ = ["engine_of"]


def _micro_batches() -> type[MicroBatchesEngine | StreamThreadsEngine]:
    from penstock.engines.micro_batches.engine import MicroBatchesEngine

    return MicroBatchesEngine


def _stream_threads() -> type[MicroBatchesEngine | StreamThreadsEngine]:
    from penstock.engines.threads.engine import StreamThreadsEngine

    return StreamThreadsEngine


# An engine is imported when it is asked for: each has many modules of its own.
_ENGINES: dict[str, Callable[[], type[MicroBatchesEngine | StreamThreadsEngine]]] = {
    "micro_batch": _micro_batches,
    "continuous": _stream_threads,
}


def engine_of(config: StreamsConfig, on_batch: Callable[[BatchProgress], None], *, reads_nothing: bool) -> Engine:
    """Return the engine that the settings ask for.

    Args:
        config: The application's settings.
        on_batch: Called on the driver after each batch that did something, or about once a second for stream threads.
        reads_nothing: Whether it only finishes what is half done, for a conversion.
    """
    engine: Engine = _ENGINES[config["processing.mode"]]()(config, on_batch, reads_nothing=reads_nothing)
    return engine
