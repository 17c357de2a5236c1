"""Which join a call of ``KStream.join``, ``left_join`` or ``outer_join`` is, by the kind of the other side."""

from __future__ import annotations

from typing import Any

from penstock.api.join_windows import JoinWindows
from penstock.api.options import Joined, StreamJoined
from penstock.api.stream import KStream
from penstock.api.stream_joins import join_table
from penstock.api.stream_stream_joins import JoinKind, join_streams
from penstock.errors import TopologyError

__all__ = ["join"]


def join(stream: KStream[Any, Any], other: Any, kind: JoinKind, name: str | None, *args: Any, **named: Any) -> Any:
    """Calls the join that fits; the remaining arguments are the verb's own."""
    if isinstance(other, KStream):
        return _stream(stream, other, kind, name, *args, **named)
    if kind == "outer":
        raise TopologyError(
            f"outer_join() takes a KStream, not {type(other).__name__} {other!r}",
            hint="A stream and a table have join() and left_join().",
        )
    return _table(stream, other, kind, name, *args, **named)


def _stream(
    stream: KStream[Any, Any],
    other: KStream[Any, Any],
    kind: JoinKind,
    name: str | None,
    joiner: object,
    windows: JoinWindows | None = None,
    joined: StreamJoined | None = None,
) -> KStream[Any, Any]:
    if windows is None:
        raise TopologyError(
            "a join of two streams needs to know how far apart their records may be",
            hint="Pass JoinWindows.of(difference, grace=...) after the joiner.",
        )
    return join_streams(stream, other, joiner, windows, joined or StreamJoined(), name, kind)


def _table(
    stream: KStream[Any, Any],
    other: Any,
    kind: JoinKind,
    name: str | None,
    joiner: object,
    joined: Joined | None = None,
    *,
    key: object = None,
) -> KStream[Any, Any]:
    return join_table(stream, other, joiner, joined or Joined(), name, left=kind == "left", key=key)
