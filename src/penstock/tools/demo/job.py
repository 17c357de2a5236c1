"""The access-log job: its log, writer, Connect worker, application, view, and the comparison of counts at the end."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import shlex
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from penstock.base.clock import unix_ms
from penstock.base.terminal.human_numbers import size
from penstock.base.terminal.live import LiveView, Screen
from penstock.connect.record_generators import GeneratorSettings, paced
from penstock.connect.record_generators import access_log as access_log_lines
from penstock.engines.application.planning import plan_for
from penstock.engines.kafka_streams import KafkaStreams, State
from penstock.engines.spark.jvm import stop_on_signals
from penstock.engines.threads.hosting.epoch_positions import has_reached
from penstock.errors import EnvironmentProblemError, LogError
from penstock.log.base import TopicLog
from penstock.log.ensure_topic import ensure_topic
from penstock.log.groups.group_admin import lag
from penstock.log.open import open_log
from penstock.serde import Serdes
from penstock.tools.demo import access_log
from penstock.tools.demo.access_log import hit_time, parse_line, system_of
from penstock.tools.demo.line_readers import READ_S, ConnectLines, PlainLines, lines_of

if TYPE_CHECKING:
    from penstock.engines.spark.progress import BatchProgress
    from penstock.topology.topology import Topology

__all__ = [
    "CountComparison",
    "DemoOptions",
    "LogWriter",
    "Recount",
    "TopicCounts",
    "TopicPlace",
    "WINDOW_MS",
    "compare",
    "embedded",
    "own_broker",
    "recount",
    "run_demo",
    "running_broker",
]


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """The log and its settings.

    Attributes:
        bootstrap_servers: The log's URL.
        shown: Its description.
        settings: Settings of Kafka's clients.
    """

    bootstrap_servers: str
    shown: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


def embedded(home: Path) -> TopicPlace:
    """Use a file in the demo's folder."""
    return TopicPlace(f"sqlite:///{home / 'topics.db'}", str(home / "topics.db"))


def running_broker(servers: str, settings: Mapping[str, str]) -> TopicPlace:
    """Use a running Kafka."""
    return TopicPlace(servers, f"Kafka at {servers}", settings)


@contextmanager
def own_broker(directory: Path) -> Iterator[TopicPlace]:
    """Start a broker like ``penstock broker start``, and stop it at the end; its data stays for the next run."""
    from penstock.tools.broker.broker_settings import BrokerSettings, free_port, is_taken, load_settings
    from penstock.tools.broker.process import Broker

    settings = load_settings(directory) or BrokerSettings(directory, free_port(), free_port())
    broker = Broker(settings)
    with ExitStack() as stack:
        if broker.status().pid is not None:  # one that another run has left behind is taken over
            stack.callback(broker.stop)
        else:
            if any(map(is_taken, settings.ports)):
                settings = replace(settings, port=free_port(), controller_port=free_port())
                broker = Broker(settings)
            stack.enter_context(broker)
        yield TopicPlace(settings.bootstrap_servers, f"Kafka at {settings.bootstrap_servers}, data in {directory}")


# Counts

WINDOW_MS = 60_000
_KEY = Serdes.time_windowed(Serdes.string(), WINDOW_MS)
_VALUE = Serdes.long()


class TopicCounts:
    """The newest count of each window and system; ``poll`` reads new ones."""

    def __init__(self, log: TopicLog, topic: str = "os-check") -> None:
        self._log, self._topic = log, topic
        self._next = {n: log.beginning_offset(topic, n) for n in range(log.partitions(topic))}
        self.counts: dict[tuple[int, str], int] = {}
        self.updates = 0

    def poll(self) -> None:
        """Read the new counts."""
        for partition, offset in self._next.items():
            position = offset
            while position < self._log.end_offset(self._topic, partition):
                fetched = self._log.read(self._topic, partition, position)
                position = fetched.next_offset
                keys = _KEY.decode(fetched.records.column("key")).items()
                values = _VALUE.decode(fetched.records.column("value")).items()
                for key, value in zip(keys, values, strict=True):
                    self.counts[key.window.start, key.key] = value
                self.updates += len(keys)
            self._next[partition] = position

    @property
    def total(self) -> int:
        """All hits that have been counted."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Recount:
    """The counts of a file, made without Penstock."""

    counts: Counter[tuple[int, str]]
    good: int
    bad: int


def recount(path: Path, end_bytes: int) -> Recount:
    """Count the lines before a byte position in a plain loop."""
    counts: Counter[tuple[int, str]] = Counter()
    bad = 0
    with path.open("rb") as file:
        while file.tell() < end_bytes:
            data = file.readline()
            try:
                line = data.decode().removesuffix("\n").removesuffix("\r")
                hit = parse_line(line)
            except ValueError:
                bad += 1
                continue
            when = hit_time(SimpleNamespace(value=line), 0)
            counts[when - when % WINDOW_MS, system_of(hit["agent"])] += 1
    return Recount(counts, counts.total(), bad)


@dataclass(frozen=True, slots=True)
class CountComparison:
    """The comparison of topic and file; ``late`` are hits that came after their window had closed."""

    counted: int
    good: int
    bad: int
    windows: int
    wrong: int
    late: int

    @property
    def verified(self) -> bool:
        """Whether every window of every system has exactly the count of the file."""
        return self.wrong == 0


def compare(counts: TopicCounts, path: Path, end_bytes: int) -> CountComparison:
    """Compare the topic's final counts with a recount of the file, window by window."""
    counts.poll()
    file = recount(path, end_bytes)
    keys = file.counts.keys() | counts.counts.keys()
    missing = [file.counts[key] - counts.counts.get(key, 0) for key in keys]
    return CountComparison(
        counted=counts.total,
        good=file.good,
        bad=file.bad,
        windows=len({start for start, _ in counts.counts}),
        wrong=sum(1 for difference in missing if difference),
        late=sum(missing) if all(difference >= 0 for difference in missing) else 0,
    )


# What is shown

_WINDOWS_SHOWN = 8
_PLAIN_EVERY_S = 5.0


@dataclass
class Figures:
    """The figures at one moment."""

    seconds: float = 0.0
    phase: str = "starting Spark"
    lines: int = 0
    counted: int = 0
    rate: float = 0.0
    bad: int = 0
    dropped: int = 0
    state_bytes: int = 0
    state_rows: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[tuple[int, str], int] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)


class DemoView(LiveView[Figures]):
    """The view of the demo's figures; use it in a ``with`` block. The last figures stay on the screen."""

    transient = False

    def __init__(self, console: Console) -> None:
        super().__init__(console, _screen, _line, every_s=_PLAIN_EVERY_S)


def _line(figures: Figures) -> str:
    windows = len({start for start, _ in figures.counts})
    lag = " ".join(f"{partition}={behind}" for partition, behind in sorted(figures.lag.items())) or "none"
    if figures.phase == Figures.phase:
        return f"{figures.seconds:4.0f}s  {figures.phase}: {figures.lines:,} lines wait"
    return (
        f"{figures.seconds:4.0f}s  {figures.phase}: {figures.lines:,} lines read, {figures.counted:,} counted in "
        f"{windows} windows, {figures.rate:,.0f} records/s, lag {lag}, state {size(figures.state_bytes)}"
    )


def _screen(figures: Figures) -> Group:
    head = Text.assemble(
        ("access_log -> os-check  ", "bold"),
        f"{figures.phase}, {figures.seconds:.0f} s",
    )
    totals = Text.assemble(
        (f"{figures.rate:,.0f} records/s  ", "bold green"),
        f"{figures.lines:,} lines  {figures.counted:,} counted  {figures.bad:,} bad",
    )
    lag = "  ".join(f"{location} {behind:,}" for location, behind in sorted(figures.lag.items())) or "none"
    rows = f" in {figures.state_rows:,} rows" if figures.state_rows else ""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("lag", lag)
    facts.add_row("state", f"{size(figures.state_bytes)}{rows}; {figures.dropped:,} records dropped (bad or late)")
    for name, location in figures.places.items():
        facts.add_row(name, location)
    return Group(head, totals, Text(), _table(figures.counts), Text(), facts)


def _table(counts: Mapping[tuple[int, str], int]) -> Table:
    systems = sorted({system for _, system in counts})
    starts = sorted({start for start, _ in counts})[-_WINDOWS_SHOWN:]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("window (UTC)", no_wrap=True)
    for name in (*systems, "all"):
        table.add_column(name, justify="right")
    for start in starts:
        when = dt.datetime.fromtimestamp(start / 1000, dt.UTC)
        row = [counts.get((start, system), 0) for system in systems]
        table.add_row(f"{when:%d %b %H:%M}", *(f"{count:,}" for count in row), f"{sum(row):,}")
    return table


# The job

PARTITIONS = (
    1  # a file has one order, and its clock runs ten times as fast: a thread without a core would make lines late
)
_FOREVER = {"retention.ms": "-1"}  # the log file may be old
_DRAIN_S = 120.0
# The log's clock runs ten times as fast, so that several minutes pass during the demo.
_SPEED = 10
_DISORDER_MS = 5_000
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Further options of the demo.

    Attributes:
        lines_per_second: The rate of the written log file.
        kafka: True: run with a broker that is started and stopped; ``host:port``: with a running one.
        kafka_settings: Settings of Kafka's clients, for a secured broker.
    """

    lines_per_second: float = 1000.0
    kafka: bool | str = False
    kafka_settings: Mapping[str, str] = field(default_factory=dict)


_DEFAULTS = DemoOptions()


def run_demo(
    topology: Topology | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    path: str | Path | None = None,
    seconds: float | None = 60.0,
    directory: str | Path = ".demo",
    options: DemoOptions = _DEFAULTS,
) -> CountComparison:
    """Run the job and show its progress; Ctrl-C ends it cleanly, and the next run continues where it stopped.

    Args:
        topology: By default that of `penstock.tools.demo.access_log`.
        config: Its settings.
        path: An existing log file; by default one is written while the job runs.
        seconds: The longest running time once the tasks run; None: until Ctrl-C. An existing file that does not grow
            ends the demo as soon as all of it has been counted.
        directory: The directory of all files. An existing log file, and Kafka, have a folder of their own in it.
        options: The rate of the written log file, and Kafka.

    Raises:
        LogError: ``path`` does not exist.
    """
    kafka = options.kafka
    home = Path(directory).expanduser().absolute()
    if kafka:
        home /= "kafka" if kafka is True else re.sub(r"[^\w.-]", "-", f"kafka-{kafka}")
    if path is not None:
        file = Path(path).expanduser().absolute()
        if not file.is_file():
            raise LogError(f"there is no file {file}", hint="Give the path of an access log in the combined format.")
        home /= file.name
    else:
        file = home / "access.log"
    home.mkdir(parents=True, exist_ok=True)
    writer = LogWriter(file, options.lines_per_second) if path is None else None
    with contextlib.ExitStack() as stack:
        if kafka is True:
            Screen().print("starting a Kafka broker (its jars, about 45 MB, are fetched once)")
            demo_log = stack.enter_context(own_broker(home / "broker"))
        else:
            demo_log = running_broker(kafka, options.kafka_settings) if kafka else embedded(home)
        job = _Job(topology or access_log.topology, config or access_log.config, home, file, demo_log)
        return job.run(writer, seconds=seconds)


class _Job:
    def __init__(
        self, topology: Topology, config: Mapping[str, Any], home: Path, file: Path, demo_log: TopicPlace
    ) -> None:
        self._home, self._file, self._demo_log = home, file, demo_log
        settings = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "num.stream.threads": 1,  # of its two tasks a second instance takes over one
            **config,
            **demo_log.settings,
            "bootstrap.servers": demo_log.bootstrap_servers,
            "state.dir": str(home / "state"),
        }
        self._app = KafkaStreams(topology, settings)
        self._id = str(self._app.config["application.id"])
        self._letters = str(self._app.config["errors.dead.letter.queue.topic.name"] or "")
        self._app.add_progress_listener(self._on_batch)
        self._stopping = threading.Event()
        self._figures = Figures(places={"file": str(file), "topics": demo_log.shown, "state": str(home / "state")})
        self._recent: list[tuple[float, int]] = []

    def run(self, writer: LogWriter | None, *, seconds: float | None) -> CountComparison:
        console = Screen(soft_wrap=not sys.stdout.isatty())
        demo_log = self._demo_log
        with (
            open_log(demo_log.bootstrap_servers, demo_log.settings) as log,
            stop_on_signals(self._stopping),
            DemoView(console) as view,
            _shown_console(log, self._home) as address,
        ):
            self._figures.places = {**self._figures.places, "console": address}
            self._create_topics(log)
            log_settings = {**demo_log.settings, "bootstrap.servers": demo_log.bootstrap_servers}
            source = lines_of(self._file, log_settings, view.note)
            counts = TopicCounts(log)
            try:
                source.start(log)
                before = source.total_lines()
                if before:
                    view.note(f"continuing after line {before:,} of {self._file}")
                if writer:
                    writer.start()
                with _output_to(self._home / "spark.log"):
                    self._start(source, view)
                if second := self._second_start():
                    view.note(
                        f"more work? Start a second instance in another shell, and they share the tasks: {second}"
                    )
                self._watch(log, source, counts, view, seconds, ends_with_file=writer is None and seconds is not None)
                self._figures.phase = "finishing"
                if writer:
                    writer.stop()
                source.finish(READ_S)
                self._drain(log, source, counts, view)
            finally:
                self._stopping.set()
                source.close()
                self._app.close()
            if self._app.error:
                raise self._app.error
            result = compare(counts, self._file, source.offset_bytes)
        _summary(console, result, before, self._home)
        return result

    def _second_start(self) -> str:
        """Return the command that starts another instance; none for a topology without a name, or a secured broker."""
        demo_log = self._demo_log
        if demo_log.settings or self._app.topology is not access_log.topology:
            return ""
        program = sys.argv[:1] if Path(sys.argv[0]).name == "penstock" else [sys.executable, "-m", "penstock"]
        settings = {"state.dir": self._home / "state", "spark.master": "local[2]", "num.stream.threads": 1}
        more = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return shlex.join([*program, "run", f"{access_log.__name__}:topology", "-b", demo_log.bootstrap_servers, *more])

    def _create_topics(self, log: TopicLog) -> None:
        counts = {"access_log": PARTITIONS, "os-check": 1, self._letters: 1}
        for topic, partitions in counts.items():
            if topic:
                ensure_topic(log, topic, partitions, _FOREVER)

    def _on_batch(self, progress: BatchProgress) -> None:
        figures = self._figures
        figures.dropped += progress.dropped
        figures.state_rows = sum(progress.store_entries.values()) or figures.state_rows

    def _start(self, source: ConnectLines | PlainLines, view: DemoView) -> None:
        """Start the application, and show for how long it has been starting until its tasks run.

        Raises:
            PenstockError: A check of the start has failed.
        """
        failed: list[BaseException] = []

        def start() -> None:
            try:
                self._app.start()
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        thread = threading.Thread(target=start, name="demo-start", daemon=True)
        begun, is_told = time.monotonic(), False
        thread.start()
        while thread.is_alive() or (self._app.state is State.REBALANCING and not self._stopping.is_set()):
            self._figures.seconds = time.monotonic() - begun
            self._figures.lines = source.total_lines()
            view.show(self._figures)
            if self._stopping.is_set() and not is_told:
                view.note("Ctrl-C: the demo ends as soon as Spark has started; a second one ends it at once")
                is_told = True
            time.sleep(0.1)
        if failed:
            raise failed[0]

    def _watch(
        self,
        log: TopicLog,
        source: ConnectLines | PlainLines,
        counts: TopicCounts,
        view: DemoView,
        seconds: float | None,
        *,
        ends_with_file: bool,
    ) -> None:
        """Show the figures until the time is over, Ctrl-C, or all of a file that does not grow has been counted."""
        started = time.monotonic()
        self._figures.phase = "running"
        while not self._stopping.is_set() and self._app.state.is_running_or_rebalancing:
            is_read = ends_with_file and source.has_read_all()  # looked at before the lag: the order of the records
            self._measure(log, source, counts, time.monotonic() - started)
            view.show(self._figures)
            if seconds is not None and time.monotonic() - started >= seconds:
                return
            if is_read and not sum(self._figures.lag.values()):
                return
            self._stopping.wait(0.5)

    def _measure(self, log: TopicLog, source: ConnectLines | PlainLines, counts: TopicCounts, seconds: float) -> None:
        counts.poll()
        figures = self._figures
        figures.seconds = seconds
        figures.lines = source.total_lines()
        figures.counts = counts.counts
        figures.counted = counts.total
        figures.bad = log.end_offset(self._letters, 0) if self._letters else 0
        figures.lag = {f"{row.topic}-{row.partition}": row.lag for row in lag(log, self._id, ["access_log"])}
        figures.state_bytes = _tree_bytes(self._home / "state")
        self._recent = [*self._recent[-10:], (time.monotonic(), figures.lines - sum(figures.lag.values()))]
        (first, before), (last, now) = self._recent[0], self._recent[-1]
        figures.rate = max(now - before, 0) / (last - first) if last > first else 0.0

    def _drain(self, log: TopicLog, source: ConnectLines | PlainLines, counts: TopicCounts, view: DemoView) -> None:
        """Wait until the application has processed all records of the topic, and what they have put into others."""
        deadline = time.monotonic() + _DRAIN_S
        begun = time.monotonic() - self._figures.seconds
        plan, ends = plan_for(self._app.topology, self._app.config, log), log.end_offsets(["access_log"])
        if not {topic.name for topic in log.topics()}.issuperset(plan.repartition_topics):
            plan = replace(plan, internal_topics=())  # they are in Spark's shuffle
        while self._app.state.is_running_or_rebalancing and time.monotonic() < deadline:
            is_drained = has_reached(log, plan, ends)
            self._measure(log, source, counts, time.monotonic() - begun)
            view.show(self._figures)
            if is_drained:
                return
            time.sleep(0.2)


def _summary(console: Console, result: CountComparison, before: int, home: Path) -> None:
    lines = result.good + result.bad
    console.print(
        f"\n{lines:,} lines ({lines - before:,} in this run): {result.good:,} good, {result.bad:,} bad, in the dead "
        f"letter topic; {result.counted:,} hits counted in {result.windows:,} windows"
    )
    if result.verified:
        console.print("verified: a recount of the file finds exactly these counts, window by window", style="green")
    elif result.late:
        console.print(f"{result.late:,} hits came later than the grace of their window and were not counted")
    else:
        console.print(f"NOT verified: {result.wrong:,} counts differ from a recount of the file", style="bold red")
    console.print(f"everything is in {home}; run it again to continue, or delete that folder to start from nothing")


def _tree_bytes(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # files come and go
                total += os.stat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH116, PTH118 - twice as fast
    return total


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Redirect the error output of processes started in this block (Spark's) to a file, away from the live view."""
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _shown_console(log: TopicLog, home: Path) -> Iterator[str]:
    """Serve the console of the demo's log at a free port; yield its address, or how to get it.

    Args:
        log: The demo's log.
        home: The folder with the demo's state.
    """
    from penstock.console.web.server import ConsoleAddress, ConsoleServer, require_console_libraries

    try:
        require_console_libraries()
    except EnvironmentProblemError as error:
        yield error.hint
        return
    from penstock.console.applications import Applications
    from penstock.console.web.site import Site
    from penstock.console.web.visitors import kept_token

    applications = Applications(log, {"bootstrap.servers": log.url, "state.dir": str(home / "state")})
    server = ConsoleServer(Site(applications, log), ConsoleAddress(port=0, token=kept_token()))
    server.start()
    try:
        yield server.url
    finally:
        server.close()
        applications.close()


class LogWriter:
    """A thread that appends lines to a file.

    Args:
        path: The file.
        rate: Lines per second of real time.
    """

    def __init__(self, path: Path, rate: float) -> None:
        self.path = path
        self.lines = 0
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="access-log-writer", daemon=True)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after a whole line."""
        self._stop.set()
        self._thread.join(10)

    def _write(self) -> None:
        written = self.path.stat().st_size if self.path.exists() else 0
        start_ms = _last_time(self.path) if written else unix_ms() - 600_000
        settings = GeneratorSettings(
            seed=written,  # another stretch of visits in each run
            rate=self._rate / _SPEED,
            start_ms=start_ms,
            disorder_ms=_DISORDER_MS,
        )
        with self.path.open("a", encoding="utf-8") as file:
            for group in paced(access_log_lines(settings), self._rate, stopped=self._stop.is_set):
                file.write("".join(record.value + "\n" for record in group))
                file.flush()
                self.lines += len(group)


def _last_time(path: Path) -> int:
    """Return the latest time among the last lines, plus a second, so that no later line is older."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return max(access_log.hit_time(SimpleNamespace(value=line), 0) for line in lines) + 1000
