"""Sinks to lakehouses over an S3 server whose requests fail before and after they are carried out: each record is a row once."""

import itertools

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from http_servers import serving
from penstock.connect.connectors.lakehouse import DeltaSinkConnector, IcebergSinkConnector
from penstock.connect.testing import ConnectTestDriver, Step
from penstock.errors import ConnectError
from test_object_faults import Faults
from test_object_sink import bucket

__all__ = ["bucket"]
NUMBERS = itertools.count()


class Table:
    """A table in a bucket."""

    def __init__(self):
        self.uri = f"s3://lake/delta-{next(NUMBERS)}"

    def sink(self, server, **more):
        """A sink that reaches the bucket through a server with faults."""
        options = ",".join(f"{n}:{v}" for n, v in options_of(f"http://127.0.0.1:{server.server_port}").items())
        config = {"topics": "hits", "name": "lake", "flush.interval.ms": "0", "table.uri": self.uri}
        return ConnectTestDriver(DeltaSinkConnector, {**config, "storage.options": options, **more})

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

    def sink(self, server, **more):
        options = self.options(f"http://127.0.0.1:{server.server_port}")
        written = ",".join(f"{name}:{value}" for name, value in options.items())
        config = {"topics": "hits", "name": "lake", "flush.interval.ms": "0", "table": "lake.t"}
        return ConnectTestDriver(IcebergSinkConnector, {**config, "catalog.options": written, **more})

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
