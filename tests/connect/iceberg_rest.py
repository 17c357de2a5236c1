"""A REST catalog of Apache Iceberg as a process: ``java/IcebergRestCatalog.java``, compiled against jars of Maven."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import load_catalog

from java_sources import compiled
from lakehouses import Lakehouse
from penstock.base.jars import fetch_jars, java_command
from penstock.tools.broker.broker_settings import free_port
from penstock.tools.broker.java_worker import check_noted

__all__ = ["RestCatalog", "RestLakehouse"]

VERSION = "1.10.0"
JARS = (("org.apache.iceberg", "iceberg-core", VERSION), ("org.xerial", "sqlite-jdbc", "3.46.0.0"))
SOURCE = Path(__file__).parent / "java" / "IcebergRestCatalog.java"
PATIENCE_S = 180


class RestCatalog:
    """A catalog whose tables are in a folder.

    Args:
        folder: Where the compiled classes, the tables and the catalog's database are.
        token: What clients have to show.
    """

    def __init__(self, folder, token):
        self.folder, self.port, self.token = Path(folder), free_port(), token
        (self.folder / "files").mkdir(parents=True)
        jars = fetch_jars(f"packages/iceberg-rest-{VERSION}", JARS, check=check_noted)
        self._path = compiled(SOURCE, self.folder, jars)
        self.start()

    @property
    def uri(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        given = [str(self.port), str(self.folder), self.token]
        self._process = subprocess.Popen(
            [java_command(), "-Xmx256m", "-cp", self._path, "IcebergRestCatalog", *given],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._process.stdout.readline() == "ready\n"

    def lose_the_answer_of_the_next_commit(self):
        (self.folder / "lose").touch()

    def stop(self):
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@dataclass(frozen=True)
class RestLakehouse(Lakehouse):
    """Tables of a REST catalog."""

    server: RestCatalog

    @property
    def options(self):
        return {"type": "rest", "uri": self.server.uri}

    @property
    def secrets(self):
        return {"catalog.token": self.server.token}

    def catalog(self):
        return load_catalog("default", **self.options, token=self.server.token)
