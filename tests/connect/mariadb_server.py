"""A MariaDB server of Debian's for tests, on a socket and a port of its own."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from penstock.tools.broker.broker_settings import free_port

__all__ = ["MariadbServer", "mariadb", "missing_mariadb"]

START_S = 240


def _program(name):
    found = shutil.which(name) or f"/usr/sbin/{name}"
    return found if Path(found).exists() else None


def missing_mariadb():
    """Why MariaDB cannot be started here; None: it can."""
    try:
        import pymysql  # noqa: F401 - whether it is there
    except ImportError:
        return "PyMySQL is not installed"
    is_there = _program("mariadbd") and _program("mariadb-install-db")
    return None if is_there else "MariaDB is not installed (Debian: apt install mariadb-server)"


class MariadbServer:
    """A server without durability, whose root has no password."""

    def __init__(self):
        self.user = "mysql" if os.geteuid() == 0 else None  # the server refuses to run as root
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-mariadb-"))
        if self.user:
            shutil.chown(self.folder, self.user)
        self.port = free_port()
        data = self.folder / "data"
        subprocess.run(
            [
                _program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ],
            user=self.user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, check=True,
        )  # fmt: skip
        self._process = subprocess.Popen(
            [
                _program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--socket={self.folder / 'socket'}",
                f"--port={self.port}", "--bind-address=127.0.0.1", f"--pid-file={self.folder / 'pid'}",
                "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--character-set-server=utf8mb4",
                "--default-time-zone=+00:00",
            ],
            user=self.user, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._wait()

    @property
    def url(self):
        """The server's URL, without a database."""
        return f"mariadb+pymysql://root@127.0.0.1:{self.port}"

    def connect(self, database=None):
        """A connection that commits each statement."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user="root",
            database=database,
            autocommit=True,
            charset="utf8mb4",
            ssl_disabled=True,
        )

    def _wait(self):
        import pymysql

        until = time.monotonic() + START_S
        while True:
            try:
                connection = self.connect()
            except pymysql.OperationalError:
                if time.monotonic() > until or self._process.poll() is not None:
                    self.stop()
                    raise
                time.sleep(0.05)
            else:
                connection.close()
                return

    def stop(self):
        """End the server and delete its files."""
        self._process.kill()
        self._process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mariadb():
    reason = missing_mariadb()
    if reason:
        pytest.skip(reason)
    server = MariadbServer()
    yield server
    server.stop()
