"""The mode that an application is in: the log says so, as the checkpoint of a machine may be an old one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.refused import IN_MICRO_BATCHES
from penstock.engines.application.changelog_topics import read_application
from penstock.engines.application.locations import Locations
from penstock.engines.application.modes import checkpoint_mode
from penstock.engines.threads.hosting.log_notes import CONTINUOUS
from penstock.state.checkpoint import read_plan

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog

__all__ = ["CONTINUOUS", "MICRO_BATCH", "MODES", "mode_of", "with_mode"]

MICRO_BATCH = "micro_batch"
MODES = (MICRO_BATCH, CONTINUOUS)


def mode_of(log: TopicLog, config: StreamsConfig) -> str | None:
    """Return the mode that an application has run in, or was converted to; None if it has not run.

    The note in the log decides, which every start of an application with stores writes and every conversion. Without
    one the application is in micro-batches if it has a checkpoint or a ledger.
    """
    application = config["application.id"]
    facts = read_application(log, application)
    if facts is not None:
        return str(facts.get("mode", MICRO_BATCH))
    checkpoint = Locations.of(config, log).checkpoint
    if checkpoint_mode(checkpoint) == CONTINUOUS:  # its log is another one, or was emptied
        return None
    return MICRO_BATCH if read_plan(checkpoint) is not None or log.ledger(application) else None


def with_mode(config: StreamsConfig, mode: str) -> StreamsConfig:
    """Return the settings for a run in a mode, without those that the mode refuses.

    >>> from penstock.config import StreamsConfig
    >>> config = StreamsConfig({"application.id": "a", "processing.mode": "continuous"})
    >>> with_mode(config, "micro_batch")["processing.mode"]
    'micro_batch'
    """
    given = {**config.given, "processing.mode": mode}
    if mode != CONTINUOUS:
        given = {name: value for name, value in given.items() if name not in IN_MICRO_BATCHES}
    return type(config)(given)
