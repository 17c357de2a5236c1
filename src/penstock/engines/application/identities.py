"""Identities of a log and its topics, which must be those that a checkpoint was made with.

Offsets, segments and ledger entries are valid only for the log that they belong to. So the checkpoint notes the id of
its log (``log.json``), and each batch the ids of the topics that it reads (in Spark's own offset log).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.base.log_lines import own_logger
from penstock.errors import CheckpointMismatchError, OffsetOutOfRangeError
from penstock.state.checkpoint import read_document, write_document

if TYPE_CHECKING:
    from penstock.log.base import TopicLog

__all__ = ["check_log_identity", "recreated_error", "recreated_topics"]

_log = own_logger(__name__)
_NAME = "log.json"


def check_log_identity(checkpoint: str, log: TopicLog, application: str, *, loss_fails: bool) -> None:
    """Compare the log with the one that a checkpoint was made with, and note it; a first start only notes it.

    Args:
        checkpoint: The checkpoint location.
        log: The application's log; the lease is held.
        application: The ``application.id``.
        loss_fails: Whether ``penstock.data.loss`` is "fail".

    Raises:
        CheckpointMismatchError: The log is another one, and ``loss_fails``.
    """
    noted = read_document(checkpoint, _NAME)
    before = None if noted is None else json.loads(noted)["id"]
    now = log.identity()
    if before == now:
        return
    if before is not None:
        what = f"the log {log.url} is not the one that the checkpoint {checkpoint} was made with"
        if loss_fails:
            raise CheckpointMismatchError(
                f"{what}: that one had the id {before}, this one has {now}",
                hint="Set bootstrap.servers to that log, or bring its file back from a backup. To start from nothing "
                f"over this one: penstock app reset {application}. To keep the state and read all of this log's "
                "topics from their beginnings: penstock.data.loss=continue.",
                checkpoint=checkpoint,
                log=now,
                expected=before,
            )
        _log.warning("%s; %s keeps its state and reads this log's topics from their beginnings", what, application)
    write_document(checkpoint, _NAME, json.dumps({"id": now}))


def recreated_topics(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """Return the topics that have another id than before: deleted and created again, or of another log.

    Example:
        >>> sorted(recreated_topics({"orders": "1", "users": "2"}, {"orders": "1", "users": "3", "items": "4"}))
        ['users']
    """
    return frozenset(topic for topic, id_ in now.items() if before.get(topic, id_) != id_)


def recreated_error(topics: frozenset[str], application: str) -> OffsetOutOfRangeError:
    """Make the error for topics that were created again while ``penstock.data.loss`` is "fail"."""
    listed = ", ".join(sorted(topics))
    return OffsetOutOfRangeError(
        f"{listed}: deleted and made again since application {application!r} has read there; what it had not read of "
        "the old topic is lost, and its offsets mean nothing in the new one",
        hint="To keep the state and read the new topic from its beginning: penstock.data.loss=continue. To start from "
        f"nothing: penstock app reset {application}.",
        topics=sorted(topics),
    )
