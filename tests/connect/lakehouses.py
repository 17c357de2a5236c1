"""Tables of lakehouses for tests: where they are, the settings of their sinks, what is in them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from penstock.connect.connectors.lakehouse import (
    DeltaSinkConnector,
    DeltaSourceConnector,
    IcebergSinkConnector,
    IcebergSourceConnector,
)

__all__ = ["KINDS", "Lakehouse", "LakehouseTable"]

KINDS = ("delta", "iceberg")


@dataclass(frozen=True)
class Lakehouse:
    """A folder with tables of one format."""

    kind: str
    folder: Path

    def __truediv__(self, name):
        return LakehouseTable(self, name)

    @property
    def source(self):
        return DeltaSourceConnector if self.kind == "delta" else IcebergSourceConnector

    @property
    def connector(self):
        return DeltaSinkConnector if self.kind == "delta" else IcebergSinkConnector

    @property
    def options(self):
        return {"type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/files"}

    @property
    def secrets(self):
        """Settings of connectors that are no options of the catalog."""
        return {}

    def catalog(self):
        return load_catalog("default", **self.options)


@dataclass(frozen=True)
class LakehouseTable:
    """A table, which may not be there yet."""

    lake: Lakehouse
    name: str

    @property
    def config(self):
        if self.lake.kind == "delta":
            return {"table.uri": f"{self.lake.folder}/{self.name}"}
        options = ",".join(f"{name}:{value}" for name, value in self.lake.options.items())
        return {"table": f"lake.{self.name}", "catalog.options": options, **self.lake.secrets}

    @property
    def exists(self):
        if self.lake.kind == "delta":
            return DeltaTable.is_deltatable(str(self.lake.folder / self.name))
        return self.lake.catalog().table_exists(f"lake.{self.name}")

    def load(self):
        if self.lake.kind == "delta":
            return DeltaTable(str(self.lake.folder / self.name))
        return self.lake.catalog().load_table(f"lake.{self.name}")

    def drop(self):
        if self.lake.kind == "delta":
            shutil.rmtree(self.lake.folder / self.name)
        else:
            self.lake.catalog().drop_table(f"lake.{self.name}")

    def arrow(self, versions_back=0):
        """The rows, of now or of an older version: a commit before the last one, and so on."""
        if self.lake.kind == "delta":
            table = self.load()
            if versions_back:
                table.load_as_version(table.version() - versions_back)
            return table.to_pyarrow_table()
        table = self.load()
        snapshots = [each.snapshot_id for each in table.history()]
        return table.scan(snapshot_id=snapshots[-1 - versions_back] if snapshots else None).to_arrow()

    def rows(self, versions_back=0):
        try:
            return self.arrow(versions_back).to_pylist()
        except NoSuchTableError:
            return []
