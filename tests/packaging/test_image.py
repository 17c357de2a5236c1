"""The image: built with what Debian has, its size, and what runs in it: applications in both modes, SQL, Connect, the console."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from eventually import eventually
from penstock.tools.broker.broker_settings import free_port

ROOT = Path(__file__).parents[2]
EPOCH = "1767225600"
MEGABYTES = 700  # unpacked
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

pytestmark = pytest.mark.whole


def run(*words: object, seconds: int = 600, **options) -> str:
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT, **options
    )
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    """A slim Debian without a registry of images."""
    for name in ("buildah", "podman", "debootstrap"):
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"{name} is not installed: apt-get install podman buildah debootstrap")
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root")
    folder = tmp_path_factory.mktemp("base")
    run("/usr/sbin/debootstrap", "--variant=minbase", "bookworm", folder)
    for path in ("usr/share/man", "usr/share/locale", "var/cache", "var/log", "var/lib/apt/lists"):
        shutil.rmtree(folder / path)
        (folder / path).mkdir()
    tarred = folder.with_suffix(".tar")
    run("tar", "--sort=name", "--create", "--file", tarred, "--directory", folder, ".")
    run("podman", "import", "--quiet", tarred, "localhost/penstock-test-base:bookworm")
    shutil.rmtree(folder)
    return "localhost/penstock-test-base:bookworm"


@pytest.fixture(scope="module")
def image(base, tmp_path_factory) -> str:
    settings = tmp_path_factory.mktemp("pip") / "pip.conf"  # a machine may trust others than Debian does
    settings.write_text("[global]\ncert = /run/ca.crt\n")
    name = "localhost/penstock-test:latest"
    run(
        "buildah", "build", "--isolation=chroot", "--file", "deploy/Containerfile", "--timestamp", EPOCH,
        "--build-arg", f"BASE={base}", "--volume", f"{settings}:/etc/pip.conf:ro",
        "--volume", f"{CERTIFICATES}:/run/ca.crt:ro", "--tag", name, ROOT, seconds=1800,
    )  # fmt: skip
    return name


@pytest.fixture(scope="module")
def container(image):
    """A container of the image; nothing starts in it yet."""
    name = run("buildah", "from", image)
    yield name
    run("buildah", "rm", name)


@pytest.fixture(scope="module")
def inside(container) -> list[str]:
    """The words before a command in the container, with the examples at /app."""
    return [
        "buildah", "run", "--isolation=chroot", "--volume", f"{ROOT / 'examples'}:/app:ro", container, "--", "tini", "--",
    ]  # fmt: skip


def test_the_image_is_small_and_runs_as_no_root(image):
    (facts,) = json.loads(run("podman", "image", "inspect", image))
    assert facts["User"] == "10001:10001"
    assert facts["Config"]["Entrypoint"] == ["tini", "--", "penstock"]
    assert facts["Size"] / 1e6 < MEGABYTES


LOADED = """
import importlib, pathlib, ssl, sysconfig

names = ["cryptography.x509", "fastavro", "obstore.store", "polars", "pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet",
    "pyarrow.csv", "pyspark.sql.functions", "numpy.linalg", "confluent_kafka.schema_registry.avro"]
names += [path.name.split(".")[0] for path in pathlib.Path(sysconfig.get_path("stdlib"), "lib-dynload").glob("*.so")]
for name in names:
    importlib.import_module(name)
import pyarrow.compute, pyarrow.fs, numpy, zoneinfo
assert pyarrow.fs.LocalFileSystem() and numpy.ones((2, 2)) @ numpy.ones(2) is not None
assert pyarrow.compute.year(pyarrow.array([0], pyarrow.timestamp("s", "Europe/Rome"))).to_pylist() == [1970]
assert len(ssl.create_default_context().get_ca_certs()) > 50 and zoneinfo.ZoneInfo("Europe/Rome")
assert all(pathlib.Path(importlib.util.find_spec(name).cached).exists() for name in ("json", "polars", "penstock.config"))
"""


def test_what_is_made_smaller_can_be_loaded(inside):
    run(*inside, "python", "-W", "error::ImportWarning", "-c", LOADED)
    run(*inside, "penstock", "doctor", "--kafka", "--state-dir", HOME)
    assert "inside" in run(*inside, "bash", "-c", "ls / | sort | head -3; echo inside")


LICENCES = "for each in /var/lib/dpkg/status.d/*; do [ -s /usr/share/doc/${each##*/}/copyright ] || echo $each; done"


def test_each_package_of_debian_has_its_licence(inside):
    assert not run(*inside, "sh", "-c", LICENCES)


HOME = "/var/lib/penstock"


@pytest.mark.parametrize(("mode", "over"), [("continuous", "embedded"), ("micro_batch", "kafka")])
def test_a_word_count_is_ready_counts_and_ends_at_sigterm(inside, kafka, tmp_path, mode, over):
    inside = [*inside, "penstock"]
    port = str(free_port())
    log = kafka.settings.bootstrap_servers if over == "kafka" else f"{HOME}/logs.db"
    run(*inside, "topics", "create", "streams-plaintext-input", "-b", log)
    run(*inside, "topics", "produce", "streams-plaintext-input", "-b", log, input="to be or not to be\n")
    settings = [
        f"penstock.http.port={port}", "spark.master=local[2]", f"state.dir={HOME}/{mode}", f"processing.mode={mode}",
        f"penstock.checkpoint.location={HOME}/checkpoint-{mode}",
    ]  # fmt: skip
    words = [*inside, "run", "word_count.py:topology", "-b", log, *(word for each in settings for word in ("-c", each))]
    with (tmp_path / "said").open("w+") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, cwd=ROOT)
        try:
            facts = lambda: (process.poll(), (tmp_path / "said").read_text()[-3000:])  # noqa: E731
            eventually(lambda: process.poll() is not None or answer(port, "/ready") == 200, 300, facts=facts)
            assert process.poll() is None, facts()
            assert answer(port, "/health") == 200
            assert answer(port, "/ui") in (200, 401), "the console"
            store = f"http://127.0.0.1:{port}/stores/counts-store/keys/be"
            eventually(
                lambda: json.load(urllib.request.urlopen(store, timeout=30))["value"] == 2,
                passing=(urllib.error.URLError,),
                facts=facts,
            )
            (first,) = [each for each in psutil.Process(process.pid).children(recursive=True) if each.name() == "tini"]
            assert {each.uids().real for each in first.children(recursive=True)} == {10001}
            first.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0, facts()
        finally:
            process.kill()
            process.wait()
        assert "Traceback" not in facts()[1], facts()
        assert "Exception" not in facts()[1], facts()
    shown = run(*inside, "topics", "consume", "streams-wordcount-output", "-b", log, "--json")
    assert {json.loads(line)["key"] for line in shown.splitlines()} == {"to", "be", "or", "not"}


STATEMENTS = """
CREATE STREAM sales (item VARCHAR KEY, price DOUBLE) WITH (KAFKA_TOPIC='sales', VALUE_FORMAT='JSON', PARTITIONS=2);
INSERT INTO sales VALUES ('lamp', 40.0);
INSERT INTO sales VALUES ('lamp', 2.5);
CREATE TABLE totals AS SELECT item, SUM(price) AS total FROM sales GROUP BY item EMIT CHANGES;
"""


def test_a_file_of_sql_runs(inside):
    log = f"{HOME}/sql.db"
    run(*inside, "sh", "-c", f"cat > {HOME}/sales.sql", input=STATEMENTS)
    words = ["sql", "run", f"{HOME}/sales.sql", "-b", log, "--until", "latest", "-c", "spark.master=local[2]"]
    run(*inside, "penstock", *words)
    shown = run(*inside, "penstock", "topics", "consume", "TOTALS", "-b", log)
    assert "42.5" in shown


def test_a_connector_runs(inside):
    log = f"{HOME}/connect.db"
    connector = {
        "name": "lines", "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "topic": "lines",
        "file": f"{HOME}/lines", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }  # fmt: skip
    run(*inside, "sh", "-c", f"cat > {HOME}/lines", input="one\ntwo\n")
    run(*inside, "sh", "-c", f"cat > {HOME}/lines.json", input=json.dumps(connector))
    run(*inside, "penstock", "connect", "run", f"{HOME}/lines.json", "-b", log, "--once")
    shown = run(*inside, "penstock", "topics", "consume", "lines", "-b", log)
    assert "one" in shown
    assert "two" in shown


def answer(port: str, path: str) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
