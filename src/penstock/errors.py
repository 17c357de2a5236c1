"""Every error that Penstock raises.

    PenstockError
    ├── ConfigError            a setting is unknown, of the wrong type or contradicts another
    ├── TopologyError          the topology is wrong: raised at the line that builds the wrong node
    │   ├── NoSuchMethodError      a method that has another name here, or that another class has
    │   │   └── JavaNameError      a method by its Java name
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
    │   ├── AuthenticationError    the broker rejects our credentials, or we reject its certificate
    │   ├── AuthorizationError     the user lacks an ACL; names user, operation and resource
    │   ├── LogUnavailableError    no broker answers, or not in time: trying again later may work
    │   ├── ProductionError        records that the log refuses: too large, of a topic that is not there
    │   └── FencedError            a newer instance or attempt has taken over
    ├── ConnectError           a connector, converter or transformation of Connect
    ├── SqlError               a statement of Penstock SQL
    │   ├── SqlFunctionError       a Python function cannot become one of SQL
    │   └── SqlSyntaxError         its text is not valid: line, column, what was expected
    ├── EnvironmentProblemError  Java, PySpark, a port, a directory: the machine lacks something
    └── AppFailedError         the running application stopped with an error

An error carries its facts as attributes, and its message ends with what to do next. Causes and remedies stand in the
docstring of each class, of which docs/reference/errors.md is made.
"""

from __future__ import annotations

from typing import ClassVar

from penstock.base.escapes import visible
from penstock.base.masking import without_passwords

__all__ = [
    "AppFailedError",
    "AuthenticationError",
    "AuthorizationError",
    "CheckpointMismatchError",
    "CoPartitionError",
    "ConfigError",
    "ConnectError",
    "CorruptSegmentError",
    "EnvironmentProblemError",
    "FencedError",
    "InvalidStateError",
    "JavaNameError",
    "LogError",
    "LogUnavailableError",
    "MissingSegmentError",
    "NoSuchMethodError",
    "OffsetOutOfRangeError",
    "PenstockError",
    "ProcessingError",
    "ProductionError",
    "SchemaRegistryError",
    "SerializationError",
    "SqlError",
    "SqlFunctionError",
    "SqlSyntaxError",
    "StateError",
    "TopicExistsError",
    "TopologyError",
    "UnknownTopicError",
]

_PAGE = "docs/reference/errors.md"


class PenstockError(Exception):
    """The base class of all errors that Penstock raises.

    Remedy: The message ends with a hint; ``docs`` names the part of the documentation for this kind of error.

    Args:
        message: What is wrong, and where.
        hint: What to do next; printed on a line of its own.
        facts: Attributes such as ``topic``, ``partition``, ``offset``, ``task``, ``node``, ``store``, ``batch``.
    """

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        message = without_passwords(message)
        super().__init__(message)
        self.message = message
        self.hint = without_passwords(hint)
        self.facts = facts

    @property
    def docs(self) -> str:
        """The place in the documentation that describes this kind of error, such as "docs/...#fencederror"."""
        kind = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        return f"{_PAGE}#{kind.__name__.lower()}"

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __str__(self) -> str:
        return visible(f"{self.message}\nHint: {self.hint}" if self.hint else self.message)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint, self.facts)


def _rebuild(kind: type[PenstockError], message: str, hint: str, facts: dict[str, object]) -> PenstockError:
    return kind(message, hint=hint, **facts)


class ConfigError(PenstockError, ValueError):
    """A setting is unknown, of the wrong type, or contradicts another.

    Cause: A wrong name or value in the settings, in an option of a command or in an argument, a module or
    topology that cannot be found, or an unsupported setting of Kafka Streams.

    Remedy: Correct what the message names; docs/reference/configuration.md lists all settings. Nothing has run
    yet.
    """


class TopologyError(PenstockError, ValueError):
    """The topology is wrong; raised at the line that builds the wrong node.

    Cause: A verb with arguments that do not fit: a function of other parameters, two names for one store, an
    unknown field in an expression, windows that do not fit the join.

    Remedy: Correct the line that the stack trace ends in, outside of Penstock. Nothing has run yet.
    """


class NoSuchMethodError(TopologyError, AttributeError):
    """A method that has another name here, or that another class has.

    Cause: A verb of a grouped stream or a table on a stream, or a name from pandas, Polars, Spark, ksqlDB, Flink or
    Faust.

    Remedy: Write what the message says.
    """


class JavaNameError(NoSuchMethodError):
    """A name of Kafka Streams' Java library, that is different here.

    Cause: A method in camelCase, or one that has another name in Python or no counterpart.

    Remedy: Use the name in the message; docs/java-to-python.md lists all of them.
    """


class UnknownTopicError(TopologyError):
    """A source topic that does not exist.

    Cause: The application, or a command, names a topic that the log does not have: often a misspelled name or
    another log than intended.

    Remedy: Look with `penstock topics list`; create the topic, or set penstock.source.partitions, so that the
    start creates it.
    """


class CoPartitionError(TopologyError):
    """Topics that join each other have different partition counts.

    Cause: A join of inputs whose topics have different numbers of partitions, so that equal keys
    do not meet.

    Remedy: Put `.repartition(...)` before the join on one side, or create the topic again with the same number
    of partitions.
    """


class SerializationError(PenstockError, ValueError):
    """Bytes that do not decode, or a value that does not encode.

    Cause: A record was written with another serde than it is read with, is damaged, or a function returns a
    type that the output's serde does not write.

    Remedy: Name the right serdes; deserialization.exception.handler decides what happens to records that stay
    bad (docs/how-to/bad-records.md).
    """


class SchemaRegistryError(PenstockError):
    """The schema registry refused, lacks something or cannot be reached. Facts: ``status``, ``code``.

    Cause: schema.registry.url is wrong or its server does not answer, an id or a subject is not registered, or a new
    schema is not compatible with the ones before.

    Remedy: Check the address and the subject; register a compatible schema.
    """


class ProcessingError(PenstockError):
    """A user's function raised. Facts: ``node``, ``function``, ``file``, ``line``, ``record``.

    Cause: A function of the topology, a processor, a joiner or a timestamp extractor raised for a record.

    Remedy: Correct the function. processing.exception.handler decides whether such records stop the
    application, are left out or go to a dead letter topic.
    """


class InvalidStateError(PenstockError):
    """A call that the object's present state forbids.

    Cause: A closed driver, consumer or application is used, or one that has not started; or a consumer that
    subscribes is also assigned partitions.

    Remedy: Follow the order of calls that the message names.
    """


class StateError(PenstockError):
    """State stores, segments and checkpoints.

    Cause: A store does not support an operation, cannot be read, or its directory cannot be used.

    Remedy: Do what the hint says; `penstock state verify` checks a checkpoint as a whole.
    """


class CorruptSegmentError(StateError):
    """A segment that is damaged or cut short.

    Cause: A file under the checkpoint is not what was written: a disk that lost data, or a file that was
    changed.

    Remedy: Bring it back from a backup, or rebuild the state from the changelog topics: `penstock state
    rebuild`.
    """


class MissingSegmentError(StateError):
    """The chain of segments has a gap.

    Cause: A file under the checkpoint was deleted, or the checkpoint was restored only in part.

    Remedy: Bring the missing file back from a backup, or rebuild: `penstock state rebuild`.
    """


class CheckpointMismatchError(StateError):
    """The checkpoint is of another application, or of a topology that this one cannot continue.

    Cause: Two applications share a checkpoint, stores or operators of the topology have changed, or log,
    segments and Spark's notes are from different times.

    Remedy: Give each application its own penstock.checkpoint.location; compare versions with `penstock app
    plan`. To start over: `penstock app reset`.
    """


class LogError(PenstockError):
    """The topic log.

    Cause: The log refuses an operation for a reason without an error class: the message gives it.

    Remedy: Do what the hint says.
    """


class TopicExistsError(LogError):
    """A topic of that name is there already.

    Cause: A topic was to be created twice.

    Remedy: Use it as it is, or delete it first with `penstock topics delete`.
    """


class OffsetOutOfRangeError(LogError):
    """An offset that retention has removed, or that is not written yet.

    Cause: The application was away for longer than the topic keeps its records, or the topic was created again.

    Remedy: penstock.data.loss decides whether to continue after the gap; `penstock groups reset` moves a stopped
    group. Raise retention.ms.
    """


class LogUnavailableError(LogError):
    """No broker answers, or not in time; the same may work later.

    Cause: Wrong address, a cluster that is down or not healthy, a firewall, or a transaction of another program
    that stays open.

    Remedy: Check bootstrap.servers and the cluster, and start again: nothing is lost.
    """


class ProductionError(LogError):
    """Records that the log refuses for good. Facts: ``topic``, ``partition``, ``code``.

    Cause: Records larger than the topic allows, or a sink topic that does not exist.

    Remedy: Raise max.message.bytes of the topic and producer.max.request.size, or create the topic;
    production.exception.handler can leave such records out.
    """


class AuthenticationError(LogError):
    """The broker rejects our credentials (password, mechanism, certificate), or we reject its certificate.

    Cause: A wrong user or password, another mechanism than the broker offers, or a certificate that is not
    trusted.

    Remedy: Check the settings sasl.* and ssl.*; docs/how-to/security.md goes through them.
    """


class AuthorizationError(LogError):
    """The user lacks an ACL. Facts: ``principal``, ``operation``, ``resource_type``, ``resource``.

    Cause: The cluster has access control, and the user may not do this with that topic, group or transactional
    id.

    Remedy: Ask for the permission that the message names; docs/how-to/security.md lists all that an
    application needs.
    """


class FencedError(LogError):
    """A newer instance or attempt has taken over.

    Cause: Another instance with the same application.id was started, or Spark runs a task again that was
    thought dead.

    Remedy: Let the newer one run, or give this one another application.id. Nothing was written twice.
    """


class ConnectError(PenstockError):
    """A connector, converter or transformation of Connect fails. Kafka's ``ConnectException``.

    Cause: A value that does not fit its schema, bytes that a converter cannot read, a transformation that meets a field
    or type that it is not made for, a source or target that refuses.

    Remedy: Correct the record, or the settings of the converter or transformation that the message names;
    ``errors.tolerance=all`` skips such records.
    """

    java_class: ClassVar[str] = "org.apache.kafka.connect.errors.ConnectException"


class SqlError(PenstockError, ValueError):
    """A statement of Penstock SQL that cannot be run as it is written.

    Cause: A statement that names something that does not exist, has types that do not fit, or cannot be carried out.

    Remedy: Correct the statement; the message names the place. The statements before it have run, unless the text
    is not SQL at all: then nothing has run.
    """


class SqlSyntaxError(SqlError):
    """A text that is not a statement of Penstock SQL. Facts: ``line``, ``column``, ``offset``, ``found``, ``expected``.

    Cause: A misspelled keyword, a clause in another order, a bracket or quote without its other half, a reserved
    word as a name.

    Remedy: Correct the place under the caret; the message names what was expected there. Reserved words are
    names in backticks.
    """


class SqlFunctionError(SqlError):
    """A Python function or class that cannot become a function of Penstock SQL.

    Cause: A parameter without a type that SQL has, an aggregate without one of its methods, a name that is taken.

    Remedy: Correct the function; the message names its file and line.
    """


class EnvironmentProblemError(PenstockError):
    """The machine lacks something: Java, PySpark, a free port, a writable directory.

    Cause: A requirement is not installed, a port is taken, a disk is full or a directory cannot be written.

    Remedy: Run `penstock doctor`; it names what is missing and the remedy.
    """


class AppFailedError(PenstockError):
    """The running application stopped with an error.

    Cause: Spark's query or a worker ended; the message has the reason, ``details`` all of Spark's text.

    Remedy: Correct the reason and start the application again: it continues where it stopped.
    """


def other_inputs(task: str, batch: int, where: str, **facts: object) -> CheckpointMismatchError:
    """Return the error of a batch that is done according to ``where``, but from other records than it should read."""
    return CheckpointMismatchError(
        f"task {task}: {where} says that batch {batch} is done, but it has read other records than it is to read now",
        hint="Log, segments and Spark's notes (the folder spark of the checkpoint) are of different times: one of them "
        "was brought back from an older copy, or a disk has lost what it had confirmed. Continuing would lose or "
        "double records. Bring all of them back to one moment, or start from nothing: penstock app reset.",
        task=task,
        batch=batch,
        **facts,
    )
