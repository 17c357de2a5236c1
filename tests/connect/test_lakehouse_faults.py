"""Lakehouses over an S3 server whose requests fail before and after they are carried out: each record is a row once, and back."""

import itertools

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from http_servers import serving
from lakehouses import KINDS
from penstock.connect.connectors.lakehouse import (
    DeltaSinkConnector,
    DeltaSourceConnector,
    IcebergSinkConnector,
    IcebergSourceConnector,
)
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from test_object_faults import Faults
from test_object_sink import bucket

__all__ = ["bucket"]
NUMBERS = itertools.count()
SINK = {"topics": "hits", "name": "lake", "flush.interval.ms": "0"}
SOURCE = {
    "topic": "rows", "name": "back", "read.mode": "changes", "key.fields": "id", "poll.interval.ms": "1", "batch.max.rows": "1",
}  # fmt: skip


class Table:
    """A table in a bucket."""

    def __init__(self):
        self.uri = f"s3://lake/delta-{next(NUMBERS)}"

    def place(self, server):
        """The settings of connectors that reach the bucket through a server with faults."""
        options = ",".join(f"{n}:{v}" for n, v in options_of(f"http://127.0.0.1:{server.server_port}").items())
        return {"table.uri": self.uri, "storage.options": options}

    def sink(self, server, **more):
        return ConnectTestDriver(DeltaSinkConnector, {**SINK, **self.place(server), **more})

    def source(self, server):
        return ConnectTestDriver(DeltaSourceConnector, {**SOURCE, **self.place(server)})

    def rows(self, endpoint):
        found = DeltaTable(self.uri, storage_options=options_of(endpoint)).to_pyarrow_table().to_pylist()
        return sorted(found, key=lambda row: row["n"])


class IcebergTable:
    """A table in a bucket, its catalog in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def options(self, endpoint):
        return {
            "type": "sql", "uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"s3://lake/{next(NUMBERS)}",
            "s3.endpoint": endpoint, "s3.region": "us-east-1",
        }  # fmt: skip

    def place(self, server):
        options = self.options(f"http://127.0.0.1:{server.server_port}")
        return {"table": "lake.t", "catalog.options": ",".join(f"{name}:{value}" for name, value in options.items())}

    def sink(self, server, **more):
        return ConnectTestDriver(IcebergSinkConnector, {**SINK, **self.place(server), **more})

    def source(self, server):
        return ConnectTestDriver(IcebergSourceConnector, {**SOURCE, **self.place(server)})

    def rows(self, endpoint):
        table = load_catalog("default", **self.options(endpoint)).load_table("lake.t")
        return sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["n"])


def options_of(endpoint):
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}


MODES = ["insert", pytest.param("upsert", marks=pytest.mark.whole)]


@pytest.mark.parametrize("fault", ["500 before", "503 before", "reset before", "500 after", "reset after"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.whole)])
def test_each_record_is_a_row_once_whatever_happens_to_requests(bucket, fault, mode, kind, tmp_path):
    table = Table() if kind == "delta" else IcebergTable(tmp_path)
    with serving(Faults(bucket, [fault])) as server:
        more = {"insert.mode": "upsert", "pk.fields": "id"} if mode == "upsert" else {}
        driver = table.sink(server, **more)
        for number in range(5):
            driver.produce("hits", {"n": number}, key=str(number % 3))
            driver.put(crash=Step.PUT if number == 3 else None)
            server.faults += [None] * number + [fault]  # another request of each commit
        server.faults.clear()
        driver.put_all()
        driver.restart()
        driver.put_all()
        driver.stop()
    expected = [{"n": number} for number in range(5)]
    if mode == "upsert":
        expected = [{"id": str(number % 3), "n": number} for number in range(2, 5)]
    assert table.rows(bucket) == expected


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        pytest.param(kind, fault, marks=[] if (kind, fault) == ("delta", "reset before") else pytest.mark.whole)
        for kind in KINDS
        for fault in ("500 before", "503 before", "reset before", "cut")
    ],
)
def test_each_change_of_a_row_is_a_record_once_whatever_happens_to_requests(bucket, fault, kind, tmp_path):
    table = Table() if kind == "delta" else IcebergTable(tmp_path)
    changes = [("0", {"n": 0}), ("1", {"n": 1}), ("2", {"n": 2}), ("0", {"n": 3}), ("1", None)]
    with serving(Faults(bucket, [])) as server:
        sink = table.sink(server, **{"insert.mode": "upsert", "pk.fields": "id"})
        source = table.source(server)
        for key, value in changes:
            sink.produce("hits", value, key=key)
            sink.put_all()
            for number in range(3):
                server.read_faults += [None] * 2 * number + [fault] * 4
                source.poll(crash=Step.WRITTEN if number == 2 else None)
            server.read_faults.clear()
            for _ in range(3):
                source.poll()
        found = [(record.key, record.value and record.value["n"]) for record in source.read("rows")]
    assert found == [(key, value and value["n"]) for key, value in changes]


def test_a_request_that_is_forbidden_fails_the_task_and_a_restart_goes_on(bucket):
    table = Table()
    with serving(Faults(bucket, [])) as server:
        driver = table.sink(server)
        driver.produce("hits", {"n": 0})
        driver.put()
        server.faults += ["403"] * 4
        driver.produce("hits", {"n": 1})
        with pytest.raises(ConnectError, match=r"403|[Ff]orbidden|[Dd]enied"):
            driver.put()
        server.faults.clear()
        driver.kill()
        driver.put_all()
        driver.stop()
    assert [row["n"] for row in table.rows(bucket)] == [0, 1]
