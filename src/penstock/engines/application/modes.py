"""The mode that a checkpoint was made in (``mode.json``): the modes keep positions and state differently."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.errors import CheckpointMismatchError
from penstock.state.documents import delete_document, read_document, write_document

if TYPE_CHECKING:
    from penstock.config import StreamsConfig

__all__ = ["checkpoint_mode", "mode_of_state", "require_mode", "set_mode"]

_MODE = "mode.json"


def checkpoint_mode(checkpoint: str) -> str | None:
    """Return the mode of a checkpoint; None if there is none."""
    noted = read_document(checkpoint, _MODE)
    if noted:
        return str(json.loads(noted)["mode"])
    return "micro_batch" if read_document(checkpoint, "plan.json") else None


def mode_of_state(config: StreamsConfig, checkpoint: str) -> str:
    """Return the mode in which an application keeps its state: by its settings, else by its checkpoint."""
    if "processing.mode" in config.given:
        return str(config["processing.mode"])
    return checkpoint_mode(checkpoint) or str(config["processing.mode"])


def set_mode(checkpoint: str, mode: str) -> None:
    """Note the mode, whatever was noted before. Nothing is noted for micro-batches."""
    if mode == "micro_batch":
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
    if read_document(checkpoint, _MODE) is None and mode != "micro_batch":
        set_mode(checkpoint, mode)
