"""Errors on their way from a worker through Spark to the user, signed, and the meaning of Spark's own errors.

The text of an exception quotes what a user's function or a serde complained about, so it may contain the bytes of any
record. What the driver reads from it is therefore signed with a random key of the application's start, which only its
processes have; and it is JSON, with a fixed set of classes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import reprlib
import traceback

from penstock import errors
from penstock.errors import AppFailedError, PenstockError, StateError

__all__ = [
    "is_cancelled",
    "is_lost_process",
    "sealed_error_in",
    "spark_error_reason",
    "spark_error_text",
    "spark_is_gone",
    "to_worker_error",
    "unseal_error",
]

_MARK = re.compile(r"penstock-error:([A-Za-z0-9+/=]+):([0-9a-f]{64}):end")
_KINDS: dict[str, type[PenstockError]] = {name: getattr(errors, name) for name in errors.__all__}
_DEPTH = 4  # of lists and dicts in an error's facts
_ITEMS = 100  # of each of them
_INTEGER_BITS = 4096  # Python refuses to write longer ones in decimal
_TEXT = 100_000  # characters of a text; a traceback has a few thousand


def seal_error(error: PenstockError, key: bytes) -> str:
    """Make a signed text of an error, which `unseal_error` finds with the same key in any larger text."""
    kind = next(each.__name__ for each in type(error).__mro__ if _KINDS.get(each.__name__) is each)
    facts = {name: _plain(value, _DEPTH) for name, value in error.facts.items()}
    document = {"kind": kind, "message": _cut(error.message), "hint": _cut(error.hint), "facts": facts}
    data = base64.b64encode(json.dumps(document).encode())
    return f"penstock-error:{data.decode()}:{_signature(data, key)}:end"


def unseal_error(text: str, key: bytes) -> PenstockError | None:
    """Return the first error in a text that was sealed with this key; None if there is none."""
    for match in _MARK.finditer(text):
        data = match.group(1).encode()
        if hmac.compare_digest(_signature(data, key), match.group(2)):
            document = json.loads(base64.b64decode(data))
            kind = _KINDS[document["kind"]]
            return kind(document["message"], hint=document["hint"], **document["facts"])
    return None


def _signature(data: bytes, key: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()


def _plain(value: object, depth: int) -> object:
    """Convert a fact to JSON types; what JSON lacks, or what is too deep or long, becomes text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() < _INTEGER_BITS else _cut(hex(value))
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, list | tuple | set | frozenset) and depth and len(value) <= _ITEMS:
        return [_plain(each, depth - 1) for each in value]
    if isinstance(value, dict) and depth and len(value) <= _ITEMS:
        return {_cut(str(name)): _plain(each, depth - 1) for name, each in value.items()}
    return reprlib.repr(value)


def _cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate is not JSON
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}... ({len(text):,} characters)"


_QUOTED = 2000  # characters of the message beside the sealed error, for readers of Spark's own log
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
_CALLED = re.compile(r"^An error occurred while calling \S+\n: ")  # how Py4J begins what a method of Java raised
_UNNAMED = re.compile(r"exception:\s*(SQLSTATE: \w+)?$")  # does not say which exception
# Spark's own words, as the text also quotes traces with the paths of users; interrupted: the driver, not an executor.
_CANCELLED = re.compile(
    r"\[SPARK_JOB_CANCELLED\]|\bJob \d+ cancelled\b|\bStage cancelled because SparkContext was shut down"
    r"|\A[^\n]*\n: java\.lang\.InterruptedException"
)
_ABORTED = re.compile(r"Job aborted .*|Job \d+ cancelled .*|ShuffleMapStage \d+ .*has failed .*")
# Spark's words for the loss of one of its processes, or of what that process had made.
_LOST_PROCESS = re.compile(
    r"ExecutorLostFailure|FetchFailed|MetadataFetchFailed|maximum allowable number of times|indeterminate output"
    r"|Failed to get broadcast|Could not find CoarseGrainedScheduler|Lost task .* executor"
    r"|Python worker (?:failed to connect back|exited unexpectedly)|PYTHON_RUNNER_(?:INITIALIZATION|COMMUNICATION)"
    r"|java\.io\.EOFException|java\.nio\.channels\.\w*Close\w*Exception|java\.net\.Socket(?:Timeout)?Exception"
    r"|Connection reset|Broken pipe"
)


class WorkerError(Exception):
    """An exception with a sealed PenstockError in its text, as Spark passes on only the text."""


def to_worker_error(error: Exception, key: bytes) -> WorkerError:
    """Make the exception that a worker raises so that the driver can raise ``error``.

    Args:
        error: Any exception; one that is not a PenstockError becomes an AppFailedError.
        key: The job's ``error_key``.
    """
    if not isinstance(error, PenstockError):
        text = "".join(traceback.format_exception_only(error)).strip()
        where = traceback.extract_tb(error.__traceback__)
        last = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
        error = AppFailedError(f"a worker failed: {text}{last}", traceback="".join(traceback.format_exception(error)))
    return WorkerError(f"{error.message[:_QUOTED]} {seal_error(error, key)}")


def is_cancelled(error: PenstockError) -> bool:
    """Return whether a Spark job was cancelled, as when somebody stops its query."""
    return _CANCELLED.search(str(error.facts.get("details", ""))) is not None


def is_lost_process(text: str) -> bool:
    """Return whether a query ended because an executor or a worker was lost, so that another start may succeed.

    Only for errors without a sealed PenstockError in them.
    """
    return _LOST_PROCESS.search(text) is not None


def spark_error_text(error: Exception) -> str:
    """Return Spark's whole text of an error: the message and the stack trace, which names causes without a message."""
    message = str(error).strip() or type(error).__name__
    return f"{message}\n{getattr(error, '_stackTrace', '') or ''}".strip()


def spark_error_reason(text: str) -> str:
    r"""Return the line of a Spark exception's text that says most: the reason for an aborted job, else the first line.

    Example:
        >>> spark_error_reason("ended with exception:  SQLSTATE: XXKST\nCaused by: java.io.EOFException\n\tat g")
        'ended with exception:  SQLSTATE: XXKST: java.io.EOFException'
        >>> spark_error_reason("An error occurred while calling o42.load.\n: java.io.IOException: No such host\n\tat g")
        'java.io.IOException: No such host'
        >>> spark_error_reason("An exception was thrown from the Python worker:\nTraceback:\nOSError: no place\n")
        'An exception was thrown from the Python worker: OSError: no place'
    """
    text = _CALLED.sub("", text)
    match = _ABORTED.search(text)
    if match is not None:
        return match.group(0)
    first, causes = text.splitlines()[0], _CAUSE.findall(text)
    raised = _RAISED.findall(text) if first.endswith("Python worker:") else []
    if raised:
        return f"{first} {raised[-1]}"
    return f"{first}: {causes[-1]}" if causes and _UNNAMED.search(first) else first


def sealed_error_in(text: str, key: bytes) -> PenstockError | None:
    """Find the PenstockError in the text of a Spark exception; None if the error is Spark's own.

    Args:
        text: Spark's text, with all that it quotes.
        key: The job's ``error_key``; nothing else in the text is taken for an error of ours.
    """
    error = unseal_error(text, key)
    if error is None and _DISK_FULL.search(text) is not None:
        return StateError(
            "Spark could not write: no space is left on the disk of its checkpoint or of its temporary files",
            hint="Free space there (penstock.checkpoint.location, state.dir, spark.local.dir) and start again; nothing "
            "of the batch is lost.",
            details=text,
        )
    return error


def spark_is_gone(error: Exception) -> AppFailedError:
    """Make the error of an application whose Spark does not respond any more."""
    return AppFailedError(
        f"Spark does not respond any more: {type(error).__name__}: {error}",
        hint="Was its JVM killed, or out of memory? Start the application again: it continues where it stopped.",
    )
