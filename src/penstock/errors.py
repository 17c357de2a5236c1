"""Every error that Penstock raises.

    PenstockError
    ├── ConfigError            a setting is unknown, of the wrong type or contradicts another
    ├── TopologyError          the topology is wrong: raised at the line that builds the wrong node
    │   ├── UnknownTopicError      a source topic that does not exist
    │   └── CoPartitionError       joined topics with different partition counts
    ├── SerializationError     bytes that do not decode, or a value that does not encode
    ├── SchemaRegistryError    the schema registry refused, lacks something or cannot be reached
    ├── ProcessingError        a user's function raised; names operator, function, file, line and record
    ├── InvalidStateError      a call that the object's present state forbids (closed, not started)
    ├── StateError             state stores, segments and checkpoints
    │   ├── CorruptSegmentError    a segment that is damaged or cut short
    │   ├── MissingSegmentError    the chain of segments has a gap
    │   └── CheckpointMismatchError  the checkpoint is of another application or topology
    ├── LogError               the topic log
    │   ├── TopicExistsError
    │   ├── OffsetOutOfRangeError
    │   ├── AuthenticationError    the broker does not believe who we are, or we not who it is
    │   ├── AuthorizationError     the user lacks an ACL; names user, operation and resource
    │   ├── LogUnavailableError    no broker answers, or not in time: trying again later may work
    │   ├── ProductionError        records that the log refuses: too large, of a topic that is not there
    │   └── FencedError            a newer instance or attempt has taken over
    ├── EnvironmentProblemError  Java, PySpark, a port, a directory: the machine lacks something
    └── AppFailedError         the running application stopped with an error

An error carries its facts as attributes, and its message ends with what to do next.
"""

from __future__ import annotations

__all__ = [
    "AppFailedError",
    "AuthenticationError",
    "AuthorizationError",
    "CheckpointMismatchError",
    "CoPartitionError",
    "ConfigError",
    "CorruptSegmentError",
    "EnvironmentProblemError",
    "FencedError",
    "InvalidStateError",
    "LogError",
    "LogUnavailableError",
    "MissingSegmentError",
    "OffsetOutOfRangeError",
    "PenstockError",
    "ProcessingError",
    "ProductionError",
    "SchemaRegistryError",
    "SerializationError",
    "StateError",
    "TopicExistsError",
    "TopologyError",
    "UnknownTopicError",
]


class PenstockError(Exception):
    """The root: catch it to catch all that Penstock raises.

    Args:
        message: What is wrong, and where.
        hint: What to do next; printed on a line of its own.
        facts: Attributes such as ``topic``, ``partition``, ``offset``, ``task``, ``node``, ``store``, ``batch``.
    """

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.facts)


def _rebuild(kind: type[PenstockError], message: str, hint: str, facts: dict[str, object]) -> PenstockError:
    return kind(message, hint=hint, **facts)


class ConfigError(PenstockError, ValueError):
    """A setting is unknown, of the wrong type, or contradicts another."""


class TopologyError(PenstockError, ValueError):
    """The topology is wrong; raised at the line that builds the wrong node."""


class UnknownTopicError(TopologyError):
    """A source topic that does not exist."""


class CoPartitionError(TopologyError):
    """Topics that join each other have different partition counts."""


class SerializationError(PenstockError, ValueError):
    """Bytes that do not decode, or a value that does not encode."""


class SchemaRegistryError(PenstockError):
    """The schema registry refused, lacks something or cannot be reached. Facts: ``status``, ``code``."""


class ProcessingError(PenstockError):
    """A user's function raised. Facts: ``node``, ``function``, ``file``, ``line``, ``record``."""


class InvalidStateError(PenstockError):
    """A call that the object's present state forbids."""


class StateError(PenstockError):
    """State stores, segments and checkpoints."""


class CorruptSegmentError(StateError):
    """A segment that is damaged or cut short."""


class MissingSegmentError(StateError):
    """The chain of segments has a gap."""


class CheckpointMismatchError(StateError):
    """The checkpoint is of another application, or of a topology that this one cannot continue."""


class LogError(PenstockError):
    """The topic log."""


class TopicExistsError(LogError):
    """A topic of that name is there already."""


class OffsetOutOfRangeError(LogError):
    """An offset that retention has removed, or that is not written yet."""


class LogUnavailableError(LogError):
    """No broker answers, or not in time; the same may work later."""


class ProductionError(LogError):
    """Records that the log refuses for good. Facts: ``topic``, ``partition``, ``code``."""


class AuthenticationError(LogError):
    """The broker does not believe who we are, or we not who it is: password, mechanism, certificates."""


class AuthorizationError(LogError):
    """The user lacks an ACL. Facts: ``principal``, ``operation``, ``resource_type``, ``resource``."""


class FencedError(LogError):
    """A newer instance or attempt has taken over."""


class EnvironmentProblemError(PenstockError):
    """The machine lacks something: Java, PySpark, a free port, a writable directory."""


class AppFailedError(PenstockError):
    """The running application stopped with an error."""
