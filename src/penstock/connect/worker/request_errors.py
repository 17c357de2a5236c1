"""Requests that a worker refuses, with the HTTP status and the text that Kafka Connect answers."""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = ["ElsewhereError", "RequestError"]


class RequestError(PenstockError):
    """A request that cannot be done.

    Cause: A name that is not there, a config that is wrong, a state that does not allow it.

    Remedy: The message says what to change.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.message = message  # as it is: names of connectors are not addresses with passwords
        self.status = status

    @classmethod
    def not_found(cls, name: str) -> RequestError:
        """Return the error of a connector that is not there."""
        return cls(404, f"Connector {name} not found")


class ElsewhereError(PenstockError):
    """A request that another worker has to do: the leader, or the one that has the connector or task.

    Attributes:
        url: The worker's URL; empty: nobody has it at present.
    """

    def __init__(self, url: str) -> None:
        super().__init__("another worker has to do this request")
        self.url = url
