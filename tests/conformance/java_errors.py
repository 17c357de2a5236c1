"""Errors of Java in Python: those that recorded functions raise, and those of Kafka's own for which Penstock has others."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Any

from penstock.errors import (
    AuthorizationError,
    FencedError,
    LogUnavailableError,
    PenstockError,
    ProductionError,
    SerializationError,
)

__all__ = ["CLASSES", "ERROR", "boom", "java_error", "message_of", "name_of", "refusal", "same_error", "seen_rows"]

Spec = dict[str, Any]
STREAMS = "org.apache.kafka.streams.errors"
COMMON = "org.apache.kafka.common.errors"
STACK = "__streams.errors.stacktrace"

ERROR = "java.lang.AssertionError"  # no exception in Java, so that no handler is asked

# Kafka's class -> the classes that Penstock raises in its place.
OURS = {
    f"{COMMON}.SerializationException": ("SerializationError",),
    f"{COMMON}.RecordTooLargeException": ("ProductionError",),
    f"{COMMON}.UnknownTopicOrPartitionException": ("ProductionError",),
    f"{COMMON}.TimeoutException": ("LogUnavailableError",),
    f"{COMMON}.ProducerFencedException": ("FencedError",),
    f"{COMMON}.TopicAuthorizationException": ("AuthorizationError",),
    f"{STREAMS}.StreamsException": (
        "ProcessingError", "SerializationError", "ProductionError", "TopologyError", "LogUnavailableError",
        "AuthorizationError", "ConfigError",
    ),
    f"{STREAMS}.ProcessorStateException": ("ProcessingError", "SerializationError"),
    f"{STREAMS}.TaskCorruptedException": ("LogUnavailableError", "ProductionError"),  # the task begins again
    f"{STREAMS}.TaskMigratedException": ("FencedError",),
    f"{STREAMS}.TopologyException": ("TopologyError",),
    f"{STREAMS}.internals.FailedProcessingException": ("ProcessingError", "ProductionError", "ConfigError"),
    "java.lang.ClassCastException": ("SerializationError",),
    "java.lang.IllegalArgumentException": ("TopologyError",),
    "java.lang.NullPointerException": ("ConfigError",),
}  # fmt: skip
# Of errors that leave the application as they are in Java, and wrapped here.
UNWRAPPED = ("ProcessingError", "TopologyError")


def _exception(java: str, base: type[BaseException] = Exception) -> type[Any]:
    module, _, name = java.rpartition(".")
    return type(name, (base,), {"__module__": module, "__qualname__": name})


class _Classes(dict[str, type[Any]]):
    def __missing__(self, java: str) -> type[Any]:
        made = self[java] = _exception(java, BaseException if java == ERROR else Exception)
        return made


CLASSES = _Classes()
CLASSES[ERROR]  # there before functions are sent anywhere: those that come back would make a class of their own
BOOMS = {
    "illegal_state": "java.lang.IllegalStateException",
    "runtime": "java.lang.RuntimeException",
    "streams": f"{STREAMS}.StreamsException",
    "serialization": f"{COMMON}.SerializationException",
    "kafka": "org.apache.kafka.common.KafkaException",
    "assertion": "java.lang.AssertionError",
}


def java_error(java: str, *message: str) -> Any:
    """An exception of that class."""
    return CLASSES[java](*message)


def boom(f: Spec, message: str) -> BaseException:
    """What ``throw_at`` and its kin raise."""
    kind = f.get("error", "illegal_state")
    if kind == "no_message":
        return java_error("java.lang.IllegalStateException")
    if kind == "with_cause":
        outer = java_error("java.lang.RuntimeException", f"outer {message}")
        outer.__cause__ = java_error("java.lang.IllegalStateException", message)
        return outer
    return java_error(BOOMS[kind], message)


REFUSALS: dict[str, tuple[type[PenstockError], str]] = {
    "record_too_large": (ProductionError, "too large"),
    "timeout": (LogUnavailableError, "timed out"),
    "unknown_topic": (ProductionError, "no such topic"),
    "fenced": (FencedError, "fenced"),
    "authorization": (AuthorizationError, "denied"),
}


def refusal(how: str) -> PenstockError:
    """The error by which the log refuses a record."""
    kind, message = REFUSALS[how]
    facts = {"code": "UNKNOWN_TOPIC_OR_PART"} if how == "unknown_topic" else {}
    return kind(message, **facts)


def name_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


TEXTS = (  # of errors that Penstock says in other words
    (r"the long serde reads .*", "Size of data received by LongDeserializer is not 8"),
)


def message_of(error: BaseException) -> str | None:
    """As Java's ``getMessage``."""
    text = str(error)
    for ours, java in TEXTS:
        if re.match(ours, text):
            return java
    return text or None


def seen(java: str, message: str | None, ours: str, said: str | None) -> tuple[str, str | None]:
    """Class and message of an error as they are compared: of Penstock's own error that stands for Java's the latter."""
    stands = ours.startswith("penstock.") and ours.rpartition(".")[2] in OURS.get(java, ())
    stands = stands or (java, ours) == (f"{STREAMS}.StreamsException", "builtins.ValueError")  # a malformed record
    return (java, message) if stands else (ours, said)


def seen_headers(expected: list[Any], actual: list[Any]) -> list[Any]:
    """The headers of a dead letter as they are compared: the last line of a traceback is the first of Java's."""
    theirs, ours = dict(map(tuple, expected)), dict(map(tuple, actual))
    prefix = "__streams.errors."
    if f"{prefix}exception" not in ours:
        return actual
    java, said = theirs.get(f"{prefix}exception", ""), ours[f"{prefix}message"]
    name, message = seen(java, theirs.get(f"{prefix}message"), ours[f"{prefix}exception"], said)
    changed = {f"{prefix}exception": name, f"{prefix}message": message}
    if name == ours[f"{prefix}exception"]:
        last = (ours[STACK] or "").strip().splitlines()
        changed[STACK] = last[-1] if last else None
    else:
        changed[STACK] = theirs.get(STACK)
    return [[each, changed.get(each, value)] for each, value in actual]


def seen_rows(expected: dict[str, list[Spec]], actual: dict[str, list[Spec]], now_ms: int) -> dict[str, list[Spec]]:
    """Rows by topic as they are compared with the recorded ones."""
    return {
        topic: [_seen_row(e, a, now_ms) for e, a in zip_longest(expected.get(topic, ()), rows) if a is not None]
        for topic, rows in actual.items()
    }


def _seen_row(expected: Spec | None, actual: Spec, now_ms: int) -> Spec:
    if expected is None:
        return actual
    row = dict(actual)
    if "exception" in expected and "exception" in row:
        row["exception"], row["message"] = seen(
            expected["exception"], expected["message"], row["exception"], row["message"]
        )
    if "headers" in expected and "headers" in row:
        row["headers"] = seen_headers(expected["headers"], row["headers"])
    if "timestamp" in expected and expected["timestamp"] is None and row.get("timestamp") == now_ms:
        row["timestamp"] = None  # a record without one gets that of the clock
    return row


def same_error(row: Spec, error: BaseException) -> str | None:
    """The first difference between a recorded error and ours."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    if "chain" not in row:
        return None
    outer, root = row["chain"][0], row["chain"][-1]
    ours = f"{type(error).__name__}: {error}"
    if not (name_of(error) == outer[0] or _stands(error, outer[0]) or _wraps(row, error)):
        return f"error {outer[0]}, got {ours}"
    if len(chain) == 1 and len(row["chain"]) == 1 and isinstance(error, PenstockError):
        return _facts(outer[1], error)
    last = chain[-1]
    if name_of(last) == root[0]:
        if message_of(last) != root[1]:
            return f"the root of the error says {root[1]!r}, got {last!s}"
    elif not any(_stands(each, root[0]) for each in chain):
        return f"the root of the error is {root[0]}, got {type(last).__name__} of {ours}"
    return _facts(outer[1], error)


def _stands(error: BaseException, java: str) -> bool:
    return isinstance(error, PenstockError) and type(error).__name__ in OURS.get(java, ())


def _wraps(row: Spec, error: BaseException) -> bool:
    return len(row["chain"]) == 1 and type(error).__name__ in UNWRAPPED and error.__cause__ is not None


FACTS = {
    "taskId": "task",
    "processor": "node",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
}


def _facts(message: str | None, error: BaseException) -> str | None:
    """What Java's message says of the record; Penstock's error carries it as facts."""
    if message is None or not isinstance(error, PenstockError):
        return None
    if message.startswith("Exception caught in process."):
        told = dict(re.findall(r"(\w+)=([^,]*)(?:, |$)", message))
        for name, fact in FACTS.items():
            if fact == "node" and isinstance(error, SerializationError):
                continue  # it names the sink or the operator of the store, where Java names the operator above
            if name in told and str(error.facts.get(fact)) != told[name]:
                return f"the error's {fact}: expected {told[name]!r}, got {error.facts.get(fact)!r}"
    found = re.search(r"while punctuating processor '(.*)'", message)
    if found and error.facts.get("node") != found[1]:
        return f"the error's node: expected {found[1]!r}, got {error.facts.get('node')!r}"
    found = re.search(r"ProducerRecord\(topic=\[(.*?)\]|sending record to topic (\S+)", message)
    if found and str(error.facts.get("topic")) != (found[1] or found[2]):
        return f"the error's topic: expected {found[1] or found[2]!r}, got {error.facts.get('topic')!r}"
    return None
