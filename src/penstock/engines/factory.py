"""The one place that chooses the engine of an application, by ``processing.mode``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.engines.engine import Engine
    from penstock.engines.micro_batches.engine import MicroBatches
    from penstock.engines.spark.progress import BatchProgress
    from penstock.engines.threads.hosting.stream_threads import StreamThreads

__all__ = ["engine_of"]


def _micro_batches() -> type[MicroBatches | StreamThreads]:
    from penstock.engines.micro_batches.engine import MicroBatches

    return MicroBatches


def _stream_threads() -> type[MicroBatches | StreamThreads]:
    from penstock.engines.threads.hosting.stream_threads import StreamThreads

    return StreamThreads


# An engine is imported when it is asked for: each has many modules of its own.
_ENGINES: dict[str, Callable[[], type[MicroBatches | StreamThreads]]] = {
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
