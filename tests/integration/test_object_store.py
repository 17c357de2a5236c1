"""A checkpoint in an object store: an application goes on from it on a machine that has nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.engines.application.locations import Locations
from penstock.engines.committed_state.micro_batch_state import CommitLog
from penstock.engines.dataframes import spark_location
from penstock.errors import EnvironmentProblemError
from penstock.state.checkpoint import list_documents
from penstock.state.segments.object_storage import check_object_store
from s3_server import s3_server

from .conftest import Bench, long

APP = Path(__file__).with_name("counting_app.py")
BUCKET = "penstock-tests"


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of an S3 server in this process; workers find it by the environment, as they do in production."""
    with s3_server(BUCKET) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield f"s3://{BUCKET}"


def test_an_application_goes_on_where_only_the_bucket_is_left(bucket: str, tmp_path: Path) -> None:
    """In processes of its own: workers have the environment of their start."""
    log = tmp_path / "log.db"
    arguments = [f"sqlite:///{log}", f"{bucket}/app", str(tmp_path / "state"), "local[2]", "micro_batch"]
    bench = Bench(tmp_path, None, f"sqlite:///{log}")
    bench.log.create_topic("words", 2)
    bench.write("words", [("k", "a", 0), ("k", "b", 1)], 0)
    run(*arguments)
    bench.write("words", [("k", "a", 2)], 1)
    shutil.rmtree(tmp_path / "state")  # another machine
    run(*arguments)
    assert sorted(bench.read("out", long)) == [("a", 1), ("a", 2), ("b", 1)]
    kept = list_documents(f"{bucket}/app", "spark/commits")
    assert kept == list_documents(f"{bucket}/app", "spark/offsets")
    assert len(kept) >= 2
    newest = CommitLog(f"{bucket}/app").newest()
    assert newest is not None
    assert newest.ends == {"words": {0: 2, 1: 1}}
    bench.log.close()


def run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(APP), *arguments], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("location", "remedy"),
    [
        ("s3://bucket/app", r"spark.jars.packages=org.apache.hadoop:hadoop-aws:\d"),
        ("s3a://bucket/app", r"spark.jars.packages=org.apache.hadoop:hadoop-aws:\d"),
        ("abfss://container@account.dfs.core.windows.net/app", r"org.apache.hadoop:hadoop-azure:\d"),
        ("gs://bucket/app", "gcs-connector"),
        ("az://container/app", "abfss://container@account"),
    ],
)
def test_queries_of_sparks_own_name_the_jar_that_they_need(spark, location: str, remedy: str) -> None:
    """Those of DataFrames write by Hadoop's file systems, which PySpark does not bring."""
    with pytest.raises(EnvironmentProblemError, match="queries of DataFrames") as raised:
        spark_location(spark, location)
    assert re.search(remedy, raised.value.hint or "")
    assert "penstock.checkpoint.location" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("{bucket}/app", ""),
        ("s3a://{name}/app", ""),
        ("s3://nobody/app", "NoSuchBucket|not found"),
        ("hdfs://host/app", "no storage for hdfs://"),
    ],
)
def test_a_place_that_cannot_hold_a_checkpoint_is_found_before_the_start(bucket: str, location: str, said: str) -> None:
    where = location.format(bucket=bucket, name=BUCKET)
    if not said:
        check_object_store(where)
        return
    with pytest.raises(EnvironmentProblemError, match=said):
        Locations(where, "/nowhere/replicas").prepare()
