"""An application's Spark: the running one of this process, or a new one with settings that suit it."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.base.log_lines import environment, own_logger, writes_json
from penstock.base.secrets import NAMES_OF_SECRET_SETTINGS, is_secret
from penstock.engines.spark.java_archive import archive_options
from penstock.engines.spark.jvm import call_in_thread, launch_jvm
from penstock.engines.spark.master_urls import is_one_process, with_retries, with_spare_slots
from penstock.engines.spark.own_session import clone_session
from penstock.engines.spark.pyspark_warnings import quiet_pyspark
from penstock.engines.spark.worker_daemon import DaemonAhead
from penstock.engines.spark.worker_process import ENVIRONMENT
from penstock.engines.spark.worker_python import workers_have_this_python, workers_with_this_python
from penstock.errors import EnvironmentProblemError

if TYPE_CHECKING:
    from penstock.config import StreamsConfig

__all__ = [
    "SparkApplication",
    "check_java",
    "dataframe_query_settings",
    "launch_ahead",
    "overruled_settings",
    "plans_queries",
    "require_classic",
    "running_session",
    "spare_slots",
    "spark_for",
    "submitted_settings",
    "users_spark_settings",
]

_MASTER, _WITHOUT_MASTER = "spark.master", "local[*]"


# What a command has submitted

_OPTIONS = {
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--total-executor-cores": "spark.cores.max",
    "--num-executors": "spark.executor.instances",
    "--packages": "spark.jars.packages",
    "--jars": "spark.jars",
}


def submitted_settings() -> dict[str, str]:
    """Return the ``spark.*`` settings of this process, which win over Penstock's defaults.

    The application's name is left out, as spark-submit invents one.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, and this process
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # noqa: SLF001 - connects to that JVM
        settings = dict(SparkConf().getAll())
    else:
        settings = {**_defaults(), **dict(_arguments(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))))}
    return {name: value for name, value in settings.items() if name.startswith("spark.") and name != "spark.app.name"}


def overruled_settings(config: Mapping[str, str], submitted: Mapping[str, str]) -> str:
    """Describe the settings of spark-submit that those of the program's config win over; empty if there are none.

    >>> overruled_settings({"spark.master": "local[2]"}, {"spark.master": "spark://host:7077"})
    "spark.master=local[2] of the program's config wins over spark.master=spark://host:7077 of spark-submit or \
spark-defaults.conf: leave it out of the config to run on that master"
    >>> overruled_settings({"spark.master": "local[2]"}, {"spark.master": "local[*]"})
    ''

    Args:
        config: The settings of the program's config.
        submitted: Those of `submitted_settings`.
    """
    lost = [name for name, value in config.items() if name in submitted and submitted[name] != value]
    if submitted.get(_MASTER) == _WITHOUT_MASTER and _MASTER in lost:  # spark-submit's own default
        lost.remove(_MASTER)
    if not lost:
        return ""
    shown = {name: "***" if is_secret(name) else config[name] for name in lost}
    theirs = {name: "***" if is_secret(name) else submitted[name] for name in lost}
    wins = " and ".join(f"{name}={value}" for name, value in shown.items())
    over = " and ".join(f"{name}={value}" for name, value in theirs.items())
    verb, it = ("wins", "it") if len(lost) == 1 else ("win", "them")
    aim = " to run on that master" if _MASTER in lost else ""
    return (
        f"{wins} of the program's config {verb} over {over} of spark-submit or spark-defaults.conf: "
        f"leave {it} out of the config{aim}"
    )


def _arguments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    waiting = iter(words)
    for word in waiting:
        option, _, value = word.partition("=") if word.startswith("--") else ("", "", "")
        if option in ("--conf", "-c") or word == "-c":
            name, _, value = (value or next(waiting, "")).partition("=")
            yield name, value
        elif option in _OPTIONS:
            yield _OPTIONS[option], value or next(waiting, "")


def _defaults() -> dict[str, str]:
    """Read spark-defaults.conf: a name and a value on each line."""
    home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    path = Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf") / "spark-defaults.conf"
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


# Sessions

_log = own_logger(__name__)
_MINIMUM_JAVA = 17
_STREAMING: Mapping[str, str] = {
    # A micro-batch has a few tiny shuffles of known width: planning them anew each time only costs.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    # 4.2 writes a checksum file beside each of its offset and commit files (110 ms a batch in place of 30). Given up is
    # only that a bit flipped inside such a small JSON file is found by its checksum rather than by its parser.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # 4.2 compares checksums of shuffle rows. If those of a map task that runs again differ when part of the last stage
    # is done, it ends the job and with it the query, so a lost executor would end the application. The rows that matter
    # are the same in each attempt, as they come from a published segment; but reports contain times.
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.stopTimeout": "20s",
}
# A JVM that only plans runs little code often. Its optimizing compiler would take some 7 s of CPU until the first
# record and half of the JVM's CPU of each batch, away from the Python workers that do the work.
_NO_OPTIMIZING_COMPILER = "-XX:TieredStopAtLevel=1"
_SMALL_COLLECTOR = "-XX:+UseSerialGC"
# Else Java begins with a 64th of the machine's memory, and fills a quarter of that before it first collects.
_SMALL_HEAP = "-Xms64m"
# Java's figures for jstat, which a thread would take twenty times a second, also while all wait; jcmd needs none.
_NO_STATISTICS = "-XX:-UsePerfData"
# The options of the JVM that makes the command line of the other one, and ends (Spark's spark-class).
_LAUNCHER = "SPARK_LAUNCHER_OPTS"
_JSON_APPENDER = "-Dpenstock.log.appender=json"  # of log4j2.properties
_PARALLELISM = "spark.default.parallelism"
_SPARE = "spark.penstock.spare.slots"
_RECORDING = "-XX:ArchiveClassesAtExit"  # cannot be combined with an archive in use
# All of Spark runs in one process: no other machine connects to it.
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
# Spark starts it before it has a job's files, Penstock perhaps among them: on a cluster, or in a zip of `--py-files`.
_WORKER_DAEMON = {"spark.python.daemon.module": "penstock.engines.spark.worker_daemon"}
# Nobody is far away: Spark's heartbeats to itself only carry figures. A timeout of the user's may be shorter.
_RARE_HEARTBEATS = {"spark.executor.heartbeatInterval": "30s"}
_TIMEOUTS = ("spark.network.timeout", "spark.storage.blockManagerHeartbeatTimeoutMs")
_OF_STREAMING = "spark.sql.streaming."  # settings of how a query runs, not of what it computes
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# Plain files with an atomic rename; the default goes through Hadoop's FileContext, which forks for permissions.
_LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_REDACTED = f"(?i){NAMES_OF_SECRET_SETTINGS}"
"""The setting ``spark.redaction.regex``: names of settings whose values Spark shows as stars."""
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_secret_files: set[str] = set()  # that are there now
_secret_files_lock = threading.Lock()
_daemons: list[DaemonAhead] = []  # at most one: that of the JVM that this process has started last
_is_ending = threading.Event()
_using = threading.RLock()  # held while a JVM or a context is started, one in use is looked for, or its last use ends


class SparkApplication:
    """The Spark that an application runs in: its context, and a session of the application's own where one is needed.

    Stream threads need the context alone; a session costs a start 2 s of CPU time.

    Args:
        context: Spark's context, which runs.
        settings: What the own session sets beside what the context has.
        users_session: The session of which the own one is a copy; None: a new one.
        is_new: Whether the context was made here, and ends with the last application that uses it.
    """

    _uses: ClassVar[Counter[str]] = Counter()  # of contexts that were made here, by Spark's id of them

    def __init__(
        self,
        context: SparkContext,
        settings: Mapping[str, str],
        users_session: SparkSession | None = None,
        *,
        is_new: bool = False,
    ) -> None:
        self.context = context
        self.is_new = is_new
        self._settings = settings
        self._users_session = users_session
        self._id = str(context.applicationId)
        self._is_used = False
        with _using:
            if is_new or self._uses[self._id]:
                self._uses[self._id] += 1
                self._is_used = True

    @property
    def users_session(self) -> SparkSession:
        """The user's session; without one, the application's own."""
        return self._users_session or self.session

    @cached_property
    def session(self) -> SparkSession:
        """The application's own session, made when it is first asked for."""
        with _using, quiet_pyspark():  # of two first ones at once, both would be Spark's default session
            theirs = self._users_session or SparkSession._instantiatedSession  # noqa: SLF001 - getOrCreate() changes it
            if theirs is not None and theirs.sparkContext is self.context:
                return clone_session(theirs, self._settings)
            builder, has = SparkSession.builder, self.context.getConf()
            lacking = {name: value for name, value in self._settings.items() if has.get(name) != value}
            for name, value in lacking.items():
                if not is_secret(name):  # Spark's log, when it tells all, has these
                    builder = builder.config(name, value)
            session = call_in_thread(builder.getOrCreate)
            for name, value in lacking.items():
                if is_secret(name) and session.conf.isModifiable(name):
                    session.conf.set(name, value)
            _activate(session)
            return session

    def is_running(self) -> bool:
        """Return whether the context has not been stopped."""
        try:
            return not self.context._jsc.sc().isStopped()  # noqa: SLF001 - there is no public way
        except Exception:  # noqa: BLE001 - its JVM is gone
            return False

    def release(self) -> None:
        """Stop the context if it was made here, and no other application uses it."""
        with _using:  # to the end: an application that starts now would use what is about to stop
            if not self._is_used:
                return
            self._is_used = False
            self._uses[self._id] -= 1
            if self._uses[self._id]:
                return
            session = SparkSession._instantiatedSession  # noqa: SLF001 - as PySpark: whoever made it, it ends, too
            if session is not None and session.sparkContext is self.context:
                session.stop()
            else:
                self.context.stop()


def spark_for(
    settings: Mapping[str, Any],
    application_id: str,
    checkpoint: str,
    *,
    session: SparkSession | None = None,
    rows_in_jvm: bool = False,
    uses_sql: bool = True,
    spare: int = 0,
) -> SparkApplication:
    """Return the running Spark of this process, or a new one, for an application.

    Args:
        settings: Names with their ``spark.`` prefix. They win over those of spark-submit and spark-defaults.conf, and
            these over the defaults here, of which ``spark.master`` is ``local[*]``.
        application_id: The name that Spark shows.
        checkpoint: The checkpoint location; for a local one Spark uses its faster file manager.
        session: The user's own session, which stays unchanged; None: the active one of this thread.
        rows_in_jvm: Whether a new JVM handles records: those of DataFrames.
            Otherwise it only plans, and gets settings that cost less CPU.
        uses_sql: Whether a new JVM plans queries of Spark SQL.
        spare: The number of tasks that a new local Spark runs at once beyond those of its master: stream threads keep
            theirs. Plans and threads count with the master's number, and so does ``spark.default.parallelism``.
    """
    fast, submitted = _streaming(checkpoint), submitted_settings()
    fast = {name: value for name, value in fast.items() if name not in submitted}
    own_settings = {name: str(value) for name, value in settings.items()}
    if overruled := overruled_settings(own_settings, submitted):
        _log.warning("%s", overruled)
    of_session = {**fast, **own_settings}
    with _using, quiet_pyspark():  # of two applications that start at once, the second uses the context of the first
        session = session or running_session()
        if session is not None:
            require_classic(session)
            return SparkApplication(session.sparkContext, of_session, session)
        running = _running_context()
        if running is not None:
            return SparkApplication(running, of_session)
        if SparkContext._gateway is None:  # noqa: SLF001 - no public way
            check_java()
        users_settings = {**submitted, **own_settings}
        all_settings = _context_settings(fast, users_settings, rows_in_jvm=rows_in_jvm, uses_sql=uses_sql)
        context = _new_context(all_settings, application_id, spare, plans=uses_sql)
        return SparkApplication(context, of_session, is_new=True)


def plans_queries(config: StreamsConfig) -> bool:
    """Return whether Spark plans an application's work as queries of Spark SQL, not as a plain job."""
    return bool(config["processing.mode"] == "micro_batch")


def launch_ahead(
    settings: Mapping[str, Any], session: SparkSession | None, *, rows_in_jvm: bool, uses_sql: bool
) -> None:
    """Start Spark's JVM, if `spark_for` will need one, and return at once: the caller goes on meanwhile.

    What goes wrong shows when `spark_for` tries it again.

    Args:
        settings: Names with their ``spark.`` prefix.
        session: The user's own session; None: the active one of this thread.
        rows_in_jvm: As for `spark_for`.
        uses_sql: Likewise.
    """
    is_needed = SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ  # noqa: SLF001 - no public way
    if not is_needed:
        return
    session = session or running_session()
    if session is not None:
        require_classic(session)  # before anything is created in the log
        return

    def launch() -> None:
        try:
            users_settings = {**submitted_settings(), **{name: str(value) for name, value in settings.items()}}
            all_settings = _context_settings({}, users_settings, rows_in_jvm=rows_in_jvm, uses_sql=uses_sql)
            with _using, quiet_pyspark(), _workers_of(all_settings):
                if SparkContext._gateway is not None:  # noqa: SLF001 - no public way
                    return  # `spark_for` was faster
                check_java()
                _start_daemon(all_settings, plans=uses_sql)
                with _secrets_off_command_line(all_settings) as arguments, _environment_of_java():
                    launch_jvm(arguments)
        except Exception as error:  # noqa: BLE001 - tried again, and raised then
            _log.debug("Spark's JVM was not started ahead: %s", error)

    threading.Thread(target=launch, name="penstock-jvm", daemon=True).start()


def _start_daemon(settings: Mapping[str, str], *, plans: bool) -> None:
    """Start the daemon of a new Spark's workers, which takes as long as Java to be ready."""
    while _daemons:
        _daemons.pop().end()  # that of a JVM that did not start
    if not _WORKER_DAEMON.items() <= settings.items() or not workers_have_this_python():
        return
    prefix = "spark.executorEnv."
    environment = {name.removeprefix(prefix): value for name, value in settings.items() if name.startswith(prefix)}
    try:
        _daemons.append(DaemonAhead(environment, plans=plans))
    except OSError as error:  # Spark starts its own
        _log.debug("the daemon of Spark's workers was not started ahead: %s", error)


@contextmanager
def _environment_of_java() -> Iterator[None]:
    """Let a JVM that is started inside find the daemon that forks the processes in which it plans, and start soon."""
    changed = {name: value for daemon in _daemons for name, value in daemon.environment_of_java.items()}
    if _LAUNCHER not in os.environ:
        changed[_LAUNCHER] = f"{_NO_OPTIMIZING_COMPILER} {_SMALL_COLLECTOR} {_NO_STATISTICS}"
    os.environ.update(changed)
    try:
        yield
    finally:
        for name in changed:
            os.environ.pop(name, None)


def _running_context() -> SparkContext | None:
    """Return the context of this process that runs, whoever has made it; None if there is none."""
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - getOrCreate() would make one
    try:
        return None if context is None or context._jsc.sc().isStopped() else context  # noqa: SLF001
    except Exception:  # noqa: BLE001 - its JVM is gone
        return None


def spare_slots(context: SparkContext) -> int:
    """Return the number of tasks that Spark runs at once beyond those that stream threads count with."""
    return int(context._conf.get(_SPARE) or 0)  # noqa: SLF001 - getConf() copies all settings, with a request for each


def users_spark_settings(config: StreamsConfig) -> dict[str, Any]:
    """Return the settings of Spark in an application's config, with their ``spark.`` prefix."""
    return {f"spark.{name}": value for name, value in config.with_prefix("spark.").items()}


def dataframe_query_settings(settings: Mapping[str, Any], checkpoint: str) -> dict[str, str]:
    """Return the settings for the copy of a user's session in which the query of their DataFrame runs.

    Args:
        settings: Names with their ``spark.`` prefix.
        checkpoint: The checkpoint location of the query.
    """
    ours = {name: value for name, value in _streaming(checkpoint).items() if name.startswith(_OF_STREAMING)}
    submitted = submitted_settings()
    ours = {name: value for name, value in ours.items() if name not in submitted}
    return {**ours, **{name: str(value) for name, value in settings.items()}}


def _streaming(checkpoint: str) -> dict[str, str]:
    is_local = "://" not in checkpoint or checkpoint.startswith("file:")
    return {**_STREAMING, **({_FILE_MANAGER: _LOCAL_FILES} if is_local else {})}


_OLDEST = (4, 2)  # as pyproject.toml says


def running_session() -> SparkSession | None:
    """Return the active session of this thread; None if there is none."""
    return SparkSession.getActiveSession()


def require_classic(session: object) -> None:
    """Raise EnvironmentProblemError for a session of Spark Connect, or of a Spark that is too old."""
    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise EnvironmentProblemError(
            "the session is one of Spark Connect, which has no SparkContext in this process",
            hint="Use a session whose driver is this process (SparkSession.builder.master(...)), or none.",
        )
    version = str(getattr(session, "version", ""))
    if version and tuple(map(int, re.findall(r"\d+", version)[:2])) < _OLDEST:
        raise EnvironmentProblemError(
            f"the session is one of Spark {version}, and Penstock needs Spark {'.'.join(map(str, _OLDEST))} or later",
            hint="Use a newer Spark, or no session: Penstock then starts the Spark of the installed PySpark.",
        )


def _activate(session: SparkSession) -> None:
    virtual_machine: Any = session._jvm  # noqa: SLF001 - as PySpark itself does it; there is no public way
    virtual_machine.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001


def _java_options(users_settings: Mapping[str, str], *, rows_in_jvm: bool, uses_sql: bool = True) -> str:
    """Return the options of the driver's JVM; the user's come last, as Java applies the last one."""
    users_options = users_settings.get("spark.driver.extraJavaOptions", "")
    options = ["-Xss8m", f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"]
    if writes_json():
        options.append(_JSON_APPENDER)
    if not rows_in_jvm:
        options += [_NO_OPTIMIZING_COMPILER, _SMALL_HEAP, _NO_STATISTICS]
        if "GC" not in users_options:  # Java refuses two collectors
            options.append(_SMALL_COLLECTOR)
    if _RECORDING not in users_options:
        options += archive_options(with_sql=uses_sql or rows_in_jvm)
    return " ".join([*options, users_options]).strip()


def _context_settings(
    fast: Mapping[str, str], users_settings: Mapping[str, str], *, rows_in_jvm: bool, uses_sql: bool = True
) -> dict[str, str]:
    """Return all settings of a new context."""
    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": _REDACTED,
        "spark.python.unix.domain.socket.enabled": str(_talks_by_unix_sockets(users_settings)).lower(),
        **{f"spark.executorEnv.{name}": value for name, value in {**ENVIRONMENT, **environment()}.items()},
        **fast,
        **users_settings,
        "spark.driver.extraJavaOptions": _java_options(users_settings, rows_in_jvm=rows_in_jvm, uses_sql=uses_sql),
    }
    failures = str(settings.get("spark.task.maxFailures", ""))
    if is_one_process(settings["spark.master"]):
        rare = {} if any(name in settings for name in _TIMEOUTS) else _RARE_HEARTBEATS
        settings = {**_LOOPBACK, **(_WORKER_DAEMON if Path(__file__).is_file() else {}), **rare, **settings}
        if failures.isdecimal():
            settings["spark.master"] = with_retries(settings["spark.master"], int(failures))
    return settings


def _talks_by_unix_sockets(users_settings: Mapping[str, str]) -> bool:
    """Return whether Spark and its Python workers can do without TCP.

    There, what is sent after a small piece waits up to 40 ms for an acknowledgement: 30 ms of each batch. YARN names a
    container's folder for temporary files by longer a path than a socket may have, and no worker would start.
    """
    return hasattr(socket, "AF_UNIX") and not users_settings.get("spark.master", "").startswith("yarn")


def _workers_of(settings: Mapping[str, str]) -> AbstractContextManager[None]:
    """Have a Spark that is started inside run its workers in this very environment, where it can."""
    if is_one_process(settings["spark.master"]):
        return workers_with_this_python()
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return nullcontext()


def _new_context(settings: Mapping[str, str], application_id: str, spare: int, *, plans: bool) -> SparkContext:
    try:
        with _secrets_off_command_line(settings) as arguments:

            def make() -> SparkContext:
                with _workers_of(settings):
                    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:  # noqa: SLF001
                        _start_daemon(settings, plans=plans)
                    with _environment_of_java():
                        launch_jvm(arguments)
                    conf = SparkConf().setAppName(application_id)
                    for name, value in arguments.items():
                        conf.set(name, value)
                    slots = _slots(settings["spark.master"], spare) if is_one_process(settings["spark.master"]) else {}
                    for daemon in _daemons:
                        for name, value in daemon.environment.items():
                            conf.set(f"spark.executorEnv.{name}", value)
                    for name, value in slots.items():
                        conf.set(name, settings.get(name, value) if name == _PARALLELISM else value)
                    return SparkContext(conf=conf)

            return call_in_thread(make)
    except Exception as error:
        text = str(error)
        if "BindException" in text or "could not bind" in text.lower():
            raise EnvironmentProblemError(
                f"Spark could not open a port: {text.splitlines()[0]}",
                hint="Another process has it. Set spark.ui.port or spark.driver.port to a free one, or leave them out.",
            ) from error
        raise EnvironmentProblemError(
            f"Spark did not start: {text.splitlines()[0] if text else type(error).__name__}",
            hint="`penstock doctor` shows what is missing.",
        ) from error


def _slots(master: str, spare: int) -> dict[str, str]:
    """Return the settings of a local Spark with spare slots; its JVM runs, and knows the processors it may use."""
    if not spare:
        return {}
    virtual_machine: Any = SparkContext._jvm  # noqa: SLF001 - as in `_activate`
    processors = int(virtual_machine.java.lang.Runtime.getRuntime().availableProcessors())
    more, named = with_spare_slots(master, spare, processors)
    return {
        "spark.master": more,
        _PARALLELISM: str(named),
        "spark.rpc.netty.dispatcher.numThreads": str(max(2, named)),  # one for each slot, otherwise
        _SPARE: str(spare),
    }


def check_java() -> None:
    """Raise EnvironmentProblemError unless there is a Java that can run Spark."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    remedy = "Install Java 17 or later (a JDK or JRE; on Debian: apt install openjdk-17-jre-headless) or set JAVA_HOME."
    if java is None or not Path(java).exists():
        raise EnvironmentProblemError(
            f"Spark needs Java, which was not found{f' in {home}' if home else ''}", hint=remedy
        )
    version = _version_of(Path(java))
    major = version.removeprefix("1.").split(".", 1)[0]
    if major.isdecimal() and int(major) < _MINIMUM_JAVA:
        raise EnvironmentProblemError(f"Spark needs Java 17 or later; {java} is Java {version}", hint=remedy)


def _version_of(java: Path) -> str:
    """Return the version of a Java, as its installation says; else it is asked, which takes a tenth of a second."""
    with suppress(OSError):
        facts = (java.resolve().parent.parent / "release").read_text(encoding="utf-8", errors="replace")
        if found := re.search(r'^JAVA_VERSION="([^"]+)"', facts, re.MULTILINE):
            return found[1]
    run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - found before
    return run.stderr.partition('version "')[2].partition('"')[0]


@contextmanager
def _secrets_off_command_line(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield the settings that may become arguments of a JVM started inside the block.

    PySpark passes settings as arguments, which every user of the machine can read. Secrets go into a properties file
    instead, which only this user can read and which is deleted afterwards. Where a JVM runs already (as under
    ``spark-submit``), or the user names a properties file, settings stay as they are.
    """
    before = os.environ.get(_SUBMIT_ARGUMENTS, "pyspark-shell")
    secrets = {name: value for name, value in settings.items() if is_secret(name)}
    if not secrets or SparkContext._gateway is not None or "--properties-file" in before:  # noqa: SLF001 - no public way
        yield dict(settings)
        return
    text = "".join(f"{_java_property(name)}={_java_property(value)}\n" for name, value in secrets.items())
    with _secret_file(text) as path:
        os.environ[_SUBMIT_ARGUMENTS] = f"--properties-file {shlex.quote(path)} --load-spark-defaults {before}"
        try:
            yield {name: value for name, value in settings.items() if name not in secrets}
        finally:
            if before == "pyspark-shell":
                del os.environ[_SUBMIT_ARGUMENTS]
            else:
                os.environ[_SUBMIT_ARGUMENTS] = before


@contextmanager
def _secret_file(text: str) -> Iterator[str]:
    """Yield the path of a file with a text that only this user can read; nothing is left of it, also at an early end.

    The process may end at any moment while its JVM is started ahead: from then on no further file is written.
    """
    with _secret_files_lock:
        if _is_ending.is_set():
            raise EnvironmentProblemError("Spark is not started: the process ends")
        descriptor, path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".conf")
        _secret_files.add(path)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    try:
        yield path
    finally:
        with _secret_files_lock:
            _secret_files.discard(path)
            Path(path).unlink(missing_ok=True)


def _remove_secret_files() -> None:
    with _secret_files_lock:
        _is_ending.set()
        for path in _secret_files:
            Path(path).unlink(missing_ok=True)


atexit.register(_remove_secret_files)


def _java_property(text: str) -> str:
    """Write a text in the form of Java's ``Properties``: all but plain characters as their UTF-16 numbers."""
    units = text.encode("utf-16-be")
    codes = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(c) if re.fullmatch(r"[A-Za-z0-9._/+-]", chr(c)) else f"\\u{c:04x}" for c in codes)
