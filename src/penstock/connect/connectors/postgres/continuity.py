"""Whether a slot has all that follows a stored offset: nobody has moved it, and the server's history is the same."""

from __future__ import annotations

from penstock.connect.connectors.postgres.position import Branch, ChangePosition
from penstock.connect.connectors.postgres.server import Server, lsn_text

__all__ = ["GAP_HINT", "left_history", "moved_by_others"]

GAP_HINT = "Set snapshot.mode=when_needed, or reset the connector's offsets: it takes a new snapshot."


def moved_by_others(slot: str, at: int, most: int) -> str:
    """Return the sentence for a slot that is farther than its connector has moved it."""
    return (
        f"the slot {slot} is at {lsn_text(at)}, and the connector has moved it to {lsn_text(most)} only: it was "
        "deleted and made again, or another one has read it, and changes between are missing"
    )


def left_history(server: Server, branch: Branch, position: ChangePosition) -> str | None:
    """Return why a position is not one of a server's history; None: it is one.

    A replica that becomes the primary has all records of the log up to a place, and new ones behind it. If what was
    written is behind that place, positions of new changes may be those of changes that are lost.

    Args:
        server: The server.
        branch: Its history at present.
        position: What is written; it knows its own history.
    """
    known = position.branch
    if known is None or known == branch:
        return None
    if known.system != branch.system:
        return f"the server belongs to another cluster ({branch.system}) than the connector's offset ({known.system})"
    if branch.timeline < known.timeline:
        return (
            f"the server is on the timeline {branch.timeline}, and the connector's offset is on {known.timeline}: the "
            "server was the primary before another one"
        )
    end, written = server.left_at(known.timeline, branch), position.written
    is_an_end = position.kind is None or position.xid is None  # else it is where a change begins
    if end is not None and (written <= end if is_an_end else written < end):
        return None
    had = "nothing of this history" if end is None else f"what there was up to {lsn_text(end)}"
    return (
        f"the server has {had}, and changes up to {lsn_text(written)} are in topics: the replica that is the primary "
        "now has not received all of them"
    )
