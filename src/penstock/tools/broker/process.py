"""A broker's process: formatting its storage, start, status, stop, with its starter; clusters of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.base.jars import broker_jars, java_command, kafka_java_options
from penstock.errors import ConfigError, EnvironmentProblemError, InvalidStateError
from penstock.tools.broker.broker_settings import BrokerSettings, free_port, is_taken, load_settings

if TYPE_CHECKING:
    import trustme

__all__ = ["Broker", "BrokerCluster", "BrokerStatus", "guard", "make_certificates", "new_cluster_id"]


def guard(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that kills another one when this one ends for any reason, which closes the pipe between them.

    Args:
        pid: The process to kill. Once it has ended by itself, kill the guard before another process gets its id.
    """
    script = 'read -r _; kill -9 "$0"'
    return subprocess.Popen(  # noqa: S603
        ["/bin/sh", "-c", script, str(pid)], stdin=subprocess.PIPE, start_new_session=True
    )


_STARTED = "Kafka Server started"
_START_S = 60.0
_STOP_S = 30.0
_PORTS_S = 10.0
_POLL_S = 0.05
_SHORT_RUN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")  # ends before what a better compiler costs comes back
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The status of a broker: ``pid`` is None when it does not run; ``listeners`` are ports by name."""

    directory: Path
    pid: int | None
    bootstrap_servers: str
    listeners: dict[str, int]


class Broker:
    """A Kafka broker in a process of its own, which outlives this one.

    As a context manager it is started and stopped, and ends with this process even if that is killed.

    Example:
        >>> from penstock.tools.broker.broker_settings import BrokerSettings
        >>> broker = Broker(BrokerSettings(Path("data/kafka"), port=19092, controller_port=19093))
        >>> broker.settings.bootstrap_servers
        '127.0.0.1:19092'
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self._directory = settings.directory.absolute()
        self._is_ours = False
        self._guard: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None  # if it was started here

    @staticmethod
    def in_directory(directory: Path) -> Broker:
        """Return the broker that was last started in this directory.

        Raises:
            InvalidStateError: No broker was ever started there.
        """
        settings = load_settings(directory.absolute())
        if settings is None:
            raise InvalidStateError(
                f"no broker was ever started in {directory}", hint="`penstock broker start` does; see --dir."
            )
        return Broker(settings)

    @property
    def log_file(self) -> Path:
        return self._directory / "broker.log"

    @property
    def _pid_file(self) -> Path:
        return self._directory / "broker.pid"

    @property
    def _properties(self) -> Path:
        return self._directory / "server.properties"

    def status(self) -> BrokerStatus:
        """Return whether it runs, and its listeners."""
        return BrokerStatus(self._directory, self._pid(), self.settings.bootstrap_servers, self.settings.listeners())

    def start(self) -> BrokerStatus:
        """Start the broker and wait until it answers; it continues with the data of an earlier start.

        Raises:
            EnvironmentProblemError: It does not start: a busy port, no Java, no jars.
            InvalidStateError: A broker already runs in this directory.
        """
        if self._directory.exists() and not self._directory.is_dir():
            raise ConfigError(
                f"{self._directory} is not a folder", hint="Name a folder for the broker's data, or one to be made."
            )
        if (pid := self._pid()) is not None:
            raise InvalidStateError(
                f"a broker already runs in {self._directory} (process {pid})", hint="`penstock broker stop` ends it."
            )
        if self._pid_file.exists():  # an earlier one was killed
            self._wait_for_ports()
        taken = [port for port in self.settings.ports if is_taken(port)]
        if taken:
            raise EnvironmentProblemError(
                f"the broker cannot start: port {taken[0]} is in use by another process",
                hint="End that process, or give the broker another port.",
                port=taken[0],
            )
        jars = broker_jars(self.settings.version)
        self._dismiss_guard()  # of one that has ended by itself
        self._prepare(jars)
        offset = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = process = subprocess.Popen(  # noqa: S603
                self._java(jars, kafka_java_options(), "kafka.Kafka", str(self._properties)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in this terminal must not stop the broker
            )
        self._pid_file.write_text(str(process.pid))
        if self._is_ours:
            self._guard = guard(process.pid)
        self._wait_until_up(process, offset)
        return self.status()

    def stop(self, *, kill: bool = False) -> bool:
        """Stop it and wait for its end, when its ports are free again; return False if it did not run.

        Args:
            kill: Kill it like a crash (SIGKILL).
        """
        self._dismiss_guard()
        pid = self._pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while not self._has_ended(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline += _STOP_S
            time.sleep(_POLL_S)
        self._pid_file.unlink(missing_ok=True)
        if self._process is not None:
            self._process.wait(_STOP_S)
        self._wait_for_ports()
        return True

    def _has_ended(self, pid: int) -> bool:
        if self._process is not None and self._process.pid == pid:
            return self._process.poll() is not None
        return _state(pid) in ("", "Z")  # it has no arguments any more while it ends

    def _wait_for_ports(self) -> None:
        """Wait for the other threads of a broker that has ended, which have its sockets until they end."""
        deadline = time.monotonic() + _PORTS_S
        while any(is_taken(port) for port in self.settings.ports) and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def __enter__(self) -> Self:
        self._is_ours = True
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._is_ours = False

    def _dismiss_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()

    def _prepare(self, jars: Path) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        if self.settings.tls_port is not None:
            make_certificates(self.settings.certificates)
        self.settings.save()
        self._properties.touch(mode=0o600)
        lines = (f"{key}={value}\n" for key, value in self.settings.properties().items())
        self._properties.write_text("".join(lines))
        (self._directory / "log4j2.properties").write_text(_LOGGING)
        if (self._directory / "data" / "meta.properties").exists():
            return
        cluster_id = self.settings.cluster_id or new_cluster_id()
        options = ["format", "--cluster-id", cluster_id, "--config", str(self._properties)]
        for name, password in self.settings.users.items():
            options += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        with tempfile.NamedTemporaryFile(
            "w", dir=self._directory, prefix="format-"
        ) as arguments:  # 0600: has passwords
            arguments.write("\n".join(options) + "\n")
            arguments.flush()
            done = subprocess.run(  # noqa: S603
                self._java(jars, kafka_java_options() or _SHORT_RUN, "kafka.tools.StorageTool", f"@{arguments.name}"),
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        if done.returncode:
            reason = _reason(done.stdout + done.stderr)
            raise EnvironmentProblemError(
                f"the broker's storage in {self._directory} could not be formatted: {reason}",
                hint="Use another --dir, or delete that one.",
            )

    def _java(self, jars: Path, options: Sequence[str], *program: str) -> Sequence[str]:
        logging = f"-Dlog4j2.configurationFile={self._directory / 'log4j2.properties'}"
        return [java_command(), f"-Xmx{self.settings.heap_mb}m", *options, logging, "-cp", f"{jars}/*", *program]

    def _wait_until_up(self, process: subprocess.Popen[bytes], offset: int) -> None:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with self.log_file.open("rb") as log:
                log.seek(offset)
                written = log.read().decode(errors="replace")
            if _STARTED in written:
                return
            if process.poll() is not None:
                self._dismiss_guard()
                self._pid_file.unlink(missing_ok=True)
                raise EnvironmentProblemError(
                    f"the broker ended at once: {_reason(written)}", hint=f"Its whole output is in {self.log_file}."
                )
            time.sleep(_POLL_S)
        self.stop(kill=True)
        raise EnvironmentProblemError(
            f"the broker did not come up within {_START_S:.0f} s", hint=f"Its output is in {self.log_file}."
        )

    def _pid(self) -> int | None:
        """Return the process id, if it runs and is this broker: another process may have reused the id."""
        try:
            pid = int(self._pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        shown = _shown("stat=,args=", pid)
        return pid if not shown.startswith("Z") and str(self._properties) in shown else None


def _shown(columns: str, pid: int) -> str:
    """Return what ``ps`` shows of a process; nothing if there is none."""
    done = subprocess.run(  # noqa: S603
        ["ps", "-o", columns, "-ww", "-p", str(pid)],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def _state(pid: int) -> str:
    """Return the letter of a process's state; Z is one that has ended, nothing one that is gone."""
    return _shown("stat=", pid)[:1]


def new_cluster_id() -> str:
    """Make a random cluster id, without a dash at the start, which would look like an option."""
    while (cluster_id := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return cluster_id


def _reason(written: str) -> str:
    """Find the line of the broker's log with the reason of its end."""
    lines = written.splitlines()
    problems = [line for line in lines if re.search(r"Exception|Address already in use|FATAL", line)]
    return (problems or lines or ["no output"])[-1 if not problems else 0].strip()[:300]


def make_certificates(directory: Path, clients: tuple[str, ...] = ("client",)) -> None:
    """Make ``ca.pem``, ``server.pem`` and one file per client, each with its key, unless they exist.

    Args:
        directory: The directory of the files.
        clients: The names of clients, which are the users in ACLs.

    Raises:
        EnvironmentProblemError: The package ``trustme`` is missing.
    """
    missing = [name for name in clients if not (directory / f"{name}.pem").exists()]
    if (directory / "server.pem").exists() and not missing:
        return
    try:
        import trustme
    except ImportError as error:
        raise EnvironmentProblemError(
            "certificates are made by the package trustme, which is missing", hint="pip install 'penstock[broker]'"
        ) from error
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = trustme.CA(organization_name="Penstock")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    server = authority.issue_cert("localhost", "127.0.0.1", common_name="broker")
    _write_certificate(directory / "server.pem", server)
    for name in clients:
        _write_certificate(directory / f"{name}.pem", authority.issue_cert(f"{name}@localhost", common_name=name))


def _write_certificate(path: Path, certificate: trustme.LeafCert) -> None:
    """Write key and certificates to one file; the key as PKCS #8, the only form that Java reads."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    path.touch(mode=0o600)
    chain = [blob.bytes() for blob in certificate.cert_chain_pems]
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + b"".join(chain))


class BrokerCluster:
    """Brokers that are also controllers; topics have three replicas, of which two must have each record.

    Args:
        directory: The directory of their data, with a folder for each.
        count: The number of brokers; of three, one may be lost.
        partitions: The partitions of topics created on first use.
        heap_mb: The memory of each broker.

    Example:
        >>> cluster = BrokerCluster(Path("data/kafka"))
        >>> [broker.settings.node for broker in cluster.brokers]
        [1, 2, 3]
    """

    def __init__(self, directory: Path, count: int = 3, *, partitions: int = 1, heap_mb: int = 256) -> None:
        ports: set[int] = set()
        while len(ports) < 2 * count:
            ports.add(free_port())
        of_clients, of_controllers = sorted(ports)[:count], tuple(sorted(ports)[count:])
        cluster_id = new_cluster_id()
        self.brokers = [
            Broker(
                BrokerSettings(
                    directory / str(node), port, of_controllers[node - 1],
                    partitions=partitions, heap_mb=heap_mb,
                    node=node, controller_ports=of_controllers, cluster_id=cluster_id,
                )
            )
            for node, port in enumerate(of_clients, 1)
        ]  # fmt: skip
        self._running = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """The plain listeners of all brokers."""
        return ",".join(broker.settings.bootstrap_servers for broker in self.brokers)

    def broker(self, node: int) -> Broker:
        """Return the broker of this number."""
        return self.brokers[node - 1]

    def __enter__(self) -> Self:
        with ExitStack() as started, ThreadPoolExecutor(len(self.brokers)) as threads:
            starts = [threads.submit(started.enter_context, broker) for broker in self.brokers]
            for each in starts:  # none is up before a majority is
                each.result()
            self._running = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker in self.brokers:
            broker.stop(kill=True)  # the last ones would wait for a majority that is gone
        self._running.close()
