"""How an error gets from a worker through two languages to the user, whole."""

from __future__ import annotations

import base64
import pickle
import re
import traceback

from penstock.errors import AppFailedError, PenstockError, StateError

__all__ = ["WorkerError", "error_from", "is_lost_process", "reason_in", "text_of", "wrapped"]

_MARK = re.compile(r"penstock-error:([A-Za-z0-9+/=]+):end")
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
_UNNAMED = re.compile(r"exception:\s*(SQLSTATE: \w+)?$")  # no word of what it was
_ABORTED = re.compile(r"Job aborted .*|Job \d+ cancelled .*|ShuffleMapStage \d+ .*has failed .*")
# How Spark says that a process of its own, or what it had made, is not there any more.
_LOST_PROCESS = re.compile(
    r"ExecutorLostFailure|FetchFailed|MetadataFetchFailed|maximum allowable number of times|indeterminate output"
    r"|Failed to get broadcast|Could not find CoarseGrainedScheduler|Lost task .* executor"
    r"|Python worker (?:failed to connect back|exited unexpectedly)|PYTHON_RUNNER_(?:INITIALIZATION|COMMUNICATION)"
    r"|java\.io\.EOFException|java\.nio\.channels\.\w*Close\w*Exception|java\.net\.Socket(?:Timeout)?Exception"
    r"|Connection reset|Broken pipe"
)


class WorkerError(Exception):
    """Carries a PenstockError, pickled, in its text: Spark passes on nothing else."""


def wrapped(error: Exception) -> WorkerError:
    """What a worker raises so that the driver can raise ``error``."""
    if not isinstance(error, PenstockError):
        text = "".join(traceback.format_exception_only(error)).strip()
        where = traceback.extract_tb(error.__traceback__)
        last = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
        error = AppFailedError(f"a worker failed: {text}{last}", traceback="".join(traceback.format_exception(error)))
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # noqa: S301 - facts that do not come back would hide the error
    except Exception:  # noqa: BLE001 - a user's record may refuse in any way
        facts = {name: value for name, value in error.facts.items() if isinstance(value, str | int | float)}
        data = pickle.dumps(type(error)(error.message, hint=error.hint, **facts))
    return WorkerError(f"{error.message} penstock-error:{base64.b64encode(data).decode()}:end")


def is_lost_process(text: str) -> bool:
    """Whether a query has ended because an executor or a worker was lost: another start may go well."""
    return _MARK.search(text) is None and _LOST_PROCESS.search(text) is not None


def text_of(error: Exception) -> str:
    """All that Spark tells of an error: its message, and the stack trace, where causes without a message are named."""
    message = str(error).strip() or type(error).__name__
    return f"{message}\n{getattr(error, '_stackTrace', '') or ''}".strip()


def reason_in(text: str) -> str:
    r"""The line of a Spark exception's text that says most: why a job was given up, else the first.

    Example:
        >>> reason_in("ended with exception:  SQLSTATE: XXKST\n\tat f\nCaused by: java.io.EOFException\n\tat g")
        'ended with exception:  SQLSTATE: XXKST: java.io.EOFException'
    """
    found = _ABORTED.search(text)
    if found is not None:
        return found.group(0)
    first, causes = text.splitlines()[0], _CAUSE.findall(text)
    return f"{first}: {causes[-1]}" if causes and _UNNAMED.search(first) else first


def error_from(text: str) -> PenstockError | None:
    """The error in the text of a Spark exception; None if it is one of Spark's that needs no translation."""
    found = _MARK.search(text)
    if found is None:
        if _DISK_FULL.search(text) is None:
            return None
        return StateError(
            "Spark could not write: no space is left on the disk of its checkpoint or of its temporary files",
            hint="Free space there (penstock.checkpoint.location, state.dir, spark.local.dir) and start again; nothing "
            "of the batch is lost.",
            details=text,
        )
    error = pickle.loads(base64.b64decode(found.group(1)))  # noqa: S301 - our own bytes
    return error if isinstance(error, PenstockError) else None
