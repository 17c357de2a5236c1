"""A PostgreSQL server of Debian's for tests, on a socket and a port of its own."""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from penstock.tools.broker.broker_settings import free_port

__all__ = ["PostgresServer", "missing_postgres", "postgres"]

FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)


def _program(name):
    found = [folder / name for folder in FOLDERS if (folder / name).exists()]
    return str(found[0]) if found else shutil.which(name)


def missing_postgres():
    """Why PostgreSQL cannot be used here; None: it can."""
    try:
        import psycopg  # noqa: F401 - whether it can be loaded
    except ImportError as error:
        return f"psycopg cannot be loaded: {error}"
    return None if _program("initdb") else "PostgreSQL is not installed (Debian: apt install postgresql)"


class PostgresServer:
    """A server with logical decoding, without durability.

    Args:
        primary: The server that it is a replica of; None: it is a new one.
        slots: The logical slots of the primary that the replica has, too, as tools for failover copy them.
    """

    def __init__(self, primary=None, slots=()):
        self.user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-pg-"))
        if self.user:
            shutil.chown(self.folder, self.user)
        self.port = free_port()
        self._data = data = str(self.folder / "data")
        if primary is None:
            self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8")
        else:
            source = ("-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres")
            self._run("pg_basebackup", "-D", data, "-R", "-X", "stream", "-c", "fast", *source)
            primary.execute("CHECKPOINT")
            for slot in slots:
                self._copy_slot(primary, slot)
        self._options = (
            f"-p {self.port} -k {self.folder} -h 127.0.0.1 -c wal_level=logical "
            "-c fsync=off -c max_wal_senders=8 -c wal_writer_delay=10ms"
        )
        self.start()

    def start(self):
        """Start it, the first time or again."""
        self._run("pg_ctl", "-D", self._data, "-o", self._options, "-l", str(self.folder / "log"), "-w", "start")

    def crash(self):
        """End it at once, as a crash does."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def kill(self):
        """Kill all its processes."""
        server = psutil.Process(int((Path(self._data) / "postmaster.pid").read_text().split()[0]))
        processes = [server, *server.children(recursive=True)]
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(processes, 30)

    def promote(self):
        """Make a replica the primary."""
        self._run("pg_ctl", "-D", self._data, "-w", "promote")

    def _copy_slot(self, primary, slot):
        """Copy a slot, and what its log has before the backup."""
        folders = [Path("pg_replslot") / slot, Path("pg_wal")]
        for folder in folders:
            for file in (Path(primary._data) / folder).iterdir():
                copy = Path(self._data) / folder / file.name
                if file.is_file() and not copy.exists():
                    copy.parent.mkdir(exist_ok=True)
                    shutil.copyfile(file, copy)
                    if self.user:
                        shutil.chown(copy.parent, self.user)
                        shutil.chown(copy, self.user)

    @property
    def url(self):
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"

    def execute(self, *statements):
        """Run statements, each in a transaction; the rows of the last one."""
        import psycopg

        with psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", autocommit=True) as connection:
            for each in statements:
                cursor = connection.execute(each)
            return cursor.fetchall() if cursor.description else []

    def stop(self):
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name, *arguments):
        done = subprocess.run(
            [_program(name), *arguments],
            user=self.user,
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{name} has failed with {done.returncode}"


@pytest.fixture(scope="session")
def postgres():
    reason = missing_postgres()
    if reason:
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.stop()
