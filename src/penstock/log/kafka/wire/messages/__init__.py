"""Messages of Kafka's protocol that kafka-python lacks, in the form in which it reads its own."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage

__all__ = [
    "StreamsGroupDescribeRequest",
    "StreamsGroupDescribeResponse",
    "StreamsGroupHeartbeatRequest",
    "StreamsGroupHeartbeatResponse",
]


class StreamsGroupHeartbeatRequest(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc] # untyped
    """A member's heartbeat (KIP-1071): it joins, stays, says what it owns, or leaves."""


class StreamsGroupHeartbeatResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc] # untyped
    """The member's epoch and its tasks."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc] # untyped
    """A request for the state of groups."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[call-arg, misc] # untyped
    """Groups with their topology, members and assignments."""
