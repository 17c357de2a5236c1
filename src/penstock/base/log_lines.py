"""Log lines as JSON objects: one a line on the error stream, with the application, task and batch at work.

The format is that of the environment variable ``PENSTOCK_LOG_FORMAT``, which Spark's workers and the processes of
connectors inherit. Each process follows it on its own; no line passes through another process to be written.

A program that has not set up logging shows its lines, and an error at its end, on the terminal (`lines_on_terminal`).
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from penstock.base.escapes import json_text, one_line, visible
from penstock.base.masking import without_passwords
from penstock.errors import PenstockError

__all__ = [
    "FORMAT",
    "LEVEL",
    "JsonLines",
    "LogStream",
    "Work",
    "application_at_work",
    "ended_without_trace",
    "environment",
    "follow_environment",
    "hide",
    "json_line_of",
    "lines_on_terminal",
    "own_logger",
    "start_json_lines",
    "writes_json",
]

FORMAT = "PENSTOCK_LOG_FORMAT"
"""The environment variable with the format: ``text`` or ``json``."""
LEVEL = "PENSTOCK_LOG_LEVEL"
"""The environment variable with the level of Penstock's own loggers in JSON; ``INFO`` by default."""

_OF_RECORDS = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL", "TRACE": "DEBUG"}
_SHORTEST = 4  # characters of a secret that is looked for; a shorter one is part of too many words
_ANYWHERE = 8  # characters of a secret that is looked for inside words too; "open" as a password leaves "reopened"
_NAMED = re.compile(
    r"""((?:password|passphrase|secret|api[._-]?key|access[._-]?key|(?:access|refresh|id)[._-]?token)["']?\s*[=:]\s*)"""
    r"""("[^"]*"|'[^']*'|[^\s,;&)}\]]+)""",
    re.IGNORECASE,
)
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")

_running: Counter[str] = Counter()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _At:
    """The work that a thread is at."""

    application: str | None = None
    task: str | None = None
    batch: int | None = None


_at: ContextVar[_At] = ContextVar("penstock_at_work", default=_At())  # noqa: B039 - it is frozen


class Work:
    """A block, or a call, in which lines of this thread name what it works on; what is not given stays as outside.

    >>> with Work(application="orders", task="0_1", batch=7):
    ...     line = JsonLines().format(logging.makeLogRecord({"name": "mine", "msg": "hello", "levelname": "INFO"}))
    >>> found = json.loads(line)
    >>> found["application"], found["task"], found["batch"], found["message"]
    ('orders', '0_1', 7, 'hello')
    """

    __slots__ = ("_facts", "_token")

    def __init__(self, *, application: str | None = None, task: str | None = None, batch: int | None = None) -> None:
        places = {"application": application, "task": task, "batch": batch}
        self._facts: dict[str, Any] = {name: value for name, value in places.items() if value is not None}
        self._token: Token[_At] | None = None

    def __enter__(self) -> None:
        self._token = _at.set(replace(_at.get(), **self._facts))

    def run(self, call: Callable[[], object]) -> None:
        """Call a function inside the block, which is its application's: the target of a thread.

        While the application is the only one, lines of other threads of the process name it too.
        """
        application = str(self._facts.get("application", ""))
        with _lock:
            _running[application] += 1
        try:
            with self:
                call()
        finally:
            with _lock:
                _running[application] -= 1
                if not _running[application]:
                    del _running[application]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._token is not None:
            _at.reset(self._token)


def application_at_work() -> str | None:
    """Return the application that this thread works for; else the only one that runs in this process, if it is."""
    return _at.get().application or _only_one()


def hide(secrets: Iterable[str]) -> None:
    """Replace these texts by stars in all lines from now on.

    Those of less than eight characters are replaced where they stand as a word, those of less than four are left.
    """
    _secrets.add(secrets)


class _Secrets:
    """The texts that no line shows, and a pattern that finds any of them: the longest where several begin alike."""

    def __init__(self) -> None:
        self.texts: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None

    def add(self, texts: Iterable[str]) -> None:
        """Add texts; those that are too short to be looked for are left."""
        with _lock:
            grown = self.texts.union(text for text in texts if len(text) >= _SHORTEST)
            if grown != self.texts:
                longest_first = sorted(grown, key=lambda text: (-len(text), text))
                each = [re.escape(text) if len(text) >= _ANYWHERE else _as_word(text) for text in longest_first]
                self.texts, self.pattern = grown, re.compile("|".join(each))


def _as_word(secret: str) -> str:
    """Return a pattern of a text that is not part of a longer word."""
    before = r"(?<![^\W_])" if secret[0].isalnum() else ""
    after = r"(?![^\W_])" if secret[-1].isalnum() else ""
    return before + re.escape(secret) + after


_secrets = _Secrets()


class _Escapes(logging.Filter):
    """A filter that makes the characters of records visible, and passwords stars, before any handler sees them.

    Programs choose handlers and formats.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record where its texts have characters that a terminal acts upon, or line ends in its values."""
        args = record.args
        if isinstance(args, tuple):
            record.args = tuple(map(_value, args))
        elif isinstance(args, Mapping):
            record.args = {name: _value(value) for name, value in args.items()}
        if not (isinstance(record.msg, str) and record.msg.isascii() and record.msg.isprintable()):
            record.msg = visible(str(record.msg))
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = _trace(*record.exc_info)
        return True


def _value(value: Any) -> Any:
    """Return a value of a line: as it is, unless its text has something to escape."""
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else str(value)
    shown = one_line(str(_masked(text)))
    return value if shown == text else shown


def _trace(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> str:
    """Return a stack trace in which no line of an error's text looks like a line of the log."""
    pieces = []
    for piece in traceback.TracebackException(kind, error, at).format():
        is_text = piece[:1] not in (" ", "\n") and not piece.startswith("Traceback ")
        pieces.append(piece.rstrip("\n").replace("\n", "\n    ") + "\n" if is_text else piece)
    return visible(str(_masked("".join(pieces)))).rstrip("\n")


_ESCAPES = _Escapes()


def own_logger(name: str) -> logging.Logger:
    """Return a logger of this package: what its lines hold of records is escaped, whatever handlers there are."""
    logger = logging.getLogger(name)
    logger.addFilter(_ESCAPES)  # once: a filter that is there already is not added
    return logger


def writes_json() -> bool:
    """Return whether this process writes its log as JSON."""
    return os.environ.get(FORMAT, "").lower() == "json"


def environment() -> dict[str, str]:
    """Return the variables that a process on another machine needs to write the same format."""
    return {name: os.environ[name] for name in (FORMAT, LEVEL) if name in os.environ}


def follow_environment() -> None:
    """Write JSON if the environment says so; for processes that others have started."""
    if writes_json():
        start_json_lines()


def start_json_lines(level: str = "") -> None:
    """Write the log of this process, and of those that it starts, as JSON objects on the error stream.

    Args:
        level: The level of Penstock's loggers; by default that of `LEVEL`, else INFO. Others log from WARNING on.
    """
    os.environ[FORMAT] = "json"
    if level:
        os.environ[LEVEL] = level
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    own_level = os.environ.get(LEVEL, "INFO").upper()
    logging.getLogger("penstock").setLevel(own_level if own_level in logging.getLevelNamesMapping() else "INFO")
    logging.captureWarnings(capture=True)
    warnings.filterwarnings("ignore", category=ResourceWarning)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda at: _log_uncaught(at.exc_type, at.exc_value, at.exc_traceback)


class JsonLines(logging.Formatter):
    """A formatter of records as one JSON object each.

    Every object has ``time`` (UTC), ``level``, ``logger``, ``message``, ``process``, ``thread``, and ``application``,
    ``task`` and ``batch``, which are null where there is none; an error adds ``error`` with ``type``, ``message`` and
    ``trace``. What callers give as ``extra`` stands beside them. Passwords, tokens and the secrets of `hide` are stars.
    """

    def format(self, record: logging.LogRecord) -> str:
        at = _at.get()
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "application": application_at_work(),
            "task": at.task,
            "batch": at.batch,
            "process": record.process,
            "thread": record.threadName,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _OF_RECORDS}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            trace = self.formatException(record.exc_info)
            line["error"] = {"type": type(error).__name__, "message": str(error), "trace": trace}
        return _dumped(line)


class LogStream:
    """A text stream whose lines become log records: for what would write to the error stream.

    Args:
        logger: The name of the logger.
    """

    encoding = "utf-8"

    def __init__(self, logger: str) -> None:
        self._logger = own_logger(logger)
        self._rest = ""

    def write(self, text: str) -> int:
        """Log each whole line at INFO."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._logger.info("%s", line.rstrip())
        return len(text)

    def flush(self) -> None:
        """Do nothing: a part of a line waits for the rest."""

    def isatty(self) -> bool:
        """Return that it is not a terminal."""
        return False


def json_line_of(text: str, logger: str) -> str:
    """Return the JSON object of a line that another program has written: its own, completed, or one around the text.

    Args:
        text: The line.
        logger: The name of the logger for a text.

    >>> json.loads(json_line_of("out of memory", "spark"))["message"]
    'out of memory'
    """
    try:
        line = json.loads(text) if text.startswith("{") else None
    except ValueError:
        line = None
    if not isinstance(line, dict) or "message" not in line or "level" not in line:
        line = {"level": "WARNING", "logger": logger, "message": text}
    if "application" in line:  # a worker's own, which is masked
        return json_text(line)
    level = _LEVELS.get(str(line["level"]), line["level"])
    places = {"application": _only_one(), "task": None, "batch": None}
    return _dumped({"time": _time(time.time()), **line, "level": level, **places})


def _time(seconds: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1000) % 1000:03d}Z"


def _only_one() -> str | None:
    with _lock:
        return next(iter(_running)) if len(_running) == 1 else None


def _dumped(line: Mapping[str, Any]) -> str:
    return json_text({name: _masked(value) for name, value in line.items()}, default=_text)


def _text(value: object) -> str:
    return str(_masked(str(value)))


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        if _secrets.pattern is not None:
            value = _secrets.pattern.sub("***", value)
        value = _NAMED.sub(r"\1***", without_passwords(value))
        return _AUTHORIZATION.sub(r"\1 ***", value)
    if isinstance(value, Mapping):
        return {str(name): _masked(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float) else _text(value)


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is not None and not issubclass(kind, KeyboardInterrupt | SystemExit):
        own_logger("penstock").critical("uncaught %s", kind.__name__, exc_info=(kind, error, trace))


_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # spark-submit has started this program


@contextmanager
def lines_on_terminal(logger: logging.Logger) -> Iterator[None]:
    """Show a logger's lines of level INFO on the error stream, if no handler takes them.

    Only if that is a terminal, or the program runs under spark-submit, whose output is the driver's log. Programs that
    have set up logging keep theirs, with their levels; all is as before at the end.
    """
    if logger.hasHandlers() or not (sys.stderr.isatty() or _SUBMITTED in os.environ):
        yield
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@contextmanager
def ended_without_trace(kinds: tuple[type[PenstockError], ...]) -> Iterator[None]:
    """Let the program end with a sentence, not with a stack trace, by an error of these kinds that it does not catch.

    Programs with a `sys.excepthook` of their own, and notebooks, keep theirs.
    """
    try:
        yield
    except kinds as error:
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = _Brief(error)
        raise


class _Brief:
    """The hook for one error; any other one is shown as before."""

    def __init__(self, error: PenstockError) -> None:
        self._error = error

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is not self._error:
            sys.__excepthook__(kind, error, trace)
            return
        sys.stderr.write(f"{kind.__name__}: {visible(str(error))}\n")
