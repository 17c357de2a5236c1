"""The mode that an application is in: its log says so, and its checkpoint (``mode.json``), which may be an old one.

The modes keep positions and state differently.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from penstock.config.definitions import IN_MICRO_BATCHES
from penstock.engines.application.application_note import read_application
from penstock.engines.application.locations import Locations
from penstock.errors import CheckpointMismatchError
from penstock.log.groups.offset_regressions import is_of_batches, is_of_threads
from penstock.state.checkpoint import delete_document, read_document, read_plan, write_document

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog

__all__ = [
    "CONTINUOUS",
    "MICRO_BATCH",
    "MODES",
    "checkpoint_mode",
    "has_run_in_batches",
    "in_mode",
    "in_own_mode",
    "is_in_another_mode",
    "known_mode",
    "may_have_run",
    "mode_of",
    "mode_of_state",
    "require_mode",
    "set_mode",
    "with_mode",
]

CONTINUOUS = "continuous"
MICRO_BATCH = "micro_batch"
MODES = (MICRO_BATCH, CONTINUOUS)
_MODE = "mode.json"
_TASK = re.compile(r"\d+_\d+")


def checkpoint_mode(checkpoint: str) -> str | None:
    """Return the mode of a checkpoint; None if there is none."""
    noted = read_document(checkpoint, _MODE)
    if noted:
        return str(json.loads(noted)["mode"])
    return MICRO_BATCH if read_document(checkpoint, "plan.json") else None


def mode_of_state(config: StreamsConfig, checkpoint: str) -> str | None:
    """Return the mode in which an application keeps its state: by its settings, else by its checkpoint.

    None: neither says so, as on another machine; then its log may (`in_own_mode`).
    """
    if "processing.mode" in config.given:
        return str(config["processing.mode"])
    return checkpoint_mode(checkpoint)


def set_mode(checkpoint: str, mode: str) -> None:
    """Note the mode, whatever was noted before. Nothing is noted for micro-batches."""
    if mode == MICRO_BATCH:
        delete_document(checkpoint, _MODE)
    else:
        write_document(checkpoint, _MODE, json.dumps({"mode": mode}))


def require_mode(checkpoint: str, mode: str) -> None:
    """Check that a checkpoint was made in this mode; note the mode in a new one.

    An application that was in the other mode has been converted by now, so the log knows nothing of this checkpoint.

    Raises:
        CheckpointMismatchError: It was made in another one.
    """
    before = checkpoint_mode(checkpoint) or mode
    if before != mode:
        raise CheckpointMismatchError(
            f"the checkpoint {checkpoint} was made with processing.mode={before}, now it is {mode}, and the log has no "
            "record of a run in that mode, so nothing can be converted",
            hint="Set bootstrap.servers to the log that the application has run over. To start from nothing: "
            "KafkaStreams.reset(), or penstock app reset --without-checkpoint.",
            checkpoint=checkpoint,
        )
    if read_document(checkpoint, _MODE) is None and mode != MICRO_BATCH:
        set_mode(checkpoint, mode)


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
    return MICRO_BATCH if read_plan(checkpoint) is not None or has_run_in_batches(log, application) else None


def is_in_another_mode(config: StreamsConfig, log: TopicLog) -> bool:
    """Return whether an application that is about to start has to be converted, or a conversion was cut off."""
    mode = str(config["processing.mode"])
    before = mode_of(log, config)
    noted = checkpoint_mode(Locations.of(config, log).checkpoint)
    return before is not None and (before != mode or noted not in (None, mode))


def has_run_in_batches(log: TopicLog, application: str) -> bool:
    """Return whether tasks of micro-batches have written; the queries of DataFrames write in both modes."""
    return any(_TASK.match(name) for name in log.ledger(application))


def _mode_of_group(config: StreamsConfig, log: TopicLog) -> str | None:
    """Return the mode that has committed the group's offsets, of an application that has left nothing else to go by.

    Micro-batches without stores, and at least once, leave nothing else once their checkpoint is gone.
    """
    if checkpoint_mode(Locations.of(config, log).checkpoint) is not None:
        return None
    notes = [each.metadata for each in log.group_offsets(config["application.id"]).values()]
    if any(map(is_of_threads, notes)):
        return CONTINUOUS
    return MICRO_BATCH if any(map(is_of_batches, notes)) else None


def known_mode(config: StreamsConfig, log: TopicLog) -> str | None:
    """Return the mode that the settings name, else that of the application's earlier runs; None: nothing is known."""
    if "processing.mode" in config.given:
        return str(config["processing.mode"])
    return mode_of(log, config) or _mode_of_group(config, log)


def in_own_mode(config: StreamsConfig, log: TopicLog) -> StreamsConfig:
    """Return the settings with the mode of the application's earlier runs, if they name none.

    Raises:
        ConfigError: A setting is refused in the mode of the earlier runs.
    """
    return in_mode(config, known_mode(config, log))


def in_mode(config: StreamsConfig, mode: str | None) -> StreamsConfig:
    """Return the settings with a mode; None: with the one that they have.

    Raises:
        ConfigError: A setting is refused in that mode.
    """
    return config if mode in (None, config["processing.mode"]) else config.with_settings({"processing.mode": mode})


def may_have_run(config: StreamsConfig, log: TopicLog) -> bool:
    """Return whether an application without a `known_mode` may have run all the same: its group has offsets."""
    checkpoint = checkpoint_mode(Locations.of(config, log).checkpoint)
    return checkpoint is None and bool(log.group_offsets(config["application.id"]))


def with_mode(config: StreamsConfig, mode: str) -> StreamsConfig:
    """Return the settings for a run in a mode, without those that the mode refuses.

    >>> from penstock.config import StreamsConfig
    >>> config = StreamsConfig({"application.id": "a", "processing.mode": "continuous"})
    >>> with_mode(config, "micro_batch")["processing.mode"]
    'micro_batch'
    """
    settings = {**config.given, "processing.mode": mode}
    if mode != CONTINUOUS:
        settings = {name: value for name, value in settings.items() if name not in IN_MICRO_BATCHES}
    return type(config)(settings)
