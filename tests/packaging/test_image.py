"""The image: built with what Debian has, its size, and what runs in it: applications in both modes, SQL, Connect, the console.

Then the Compose file over it, by podman-compose. PENSTOCK_TEST_IMAGE names an image that is there already.
"""

from __future__ import annotations

import contextlib
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
from penstock.base.jars import broker_jars
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
def image(request, tmp_path_factory) -> str:
    if given := os.environ.get("PENSTOCK_TEST_IMAGE"):
        return given
    base = request.getfixturevalue("base")
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


# What stands in for the broker's image, which no registry of images has here: settings from the environment, as it takes them.
BROKER = r"""#!/bin/bash
set -e
env | grep '^KAFKA_' | while IFS='=' read -r name value; do name=${name#KAFKA_}; name=${name,,}; echo "${name//_/.}=$value"; done > /tmp/server.properties
options="-Xmx512m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
java $options -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format --ignore-formatted -t 4L6g3nShT-eMCtK--X86sw -c /tmp/server.properties
exec java $options -cp '/opt/kafka/libs/*' kafka.Kafka /tmp/server.properties
"""
TOPICS = """#!/bin/bash
exec penstock topics list -b "$2"
"""
OVERRIDES = """
services:
  kafka: {image: localhost/penstock-test-broker}
  app: {image: IMAGE}
"""
SETTINGS = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=30000:30000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


@pytest.fixture(scope="module")
def composed(image, tmp_path_factory):
    """Return a function that runs podman, or podman-compose over the Compose file; all goes at the end."""
    if shutil.which("podman-compose") is None:
        pytest.skip("podman-compose is not installed: pip install podman-compose")
    folder = tmp_path_factory.mktemp("compose")
    (folder / "containers.conf").write_text(
        SETTINGS if shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin") else ""
    )
    (folder / "run").write_text(BROKER)
    (folder / "kafka-topics.sh").write_text(TOPICS)
    (folder / "overrides.yaml").write_text(OVERRIDES.replace("IMAGE", image))
    environment = os.environ | {"CONTAINERS_CONF": str(folder / "containers.conf")}

    def podman(*words: object, **options) -> str:
        return run("podman", *words, env=environment, **options)

    broker = run("buildah", "from", image)
    run("buildah", "copy", broker, broker_jars(), "/opt/kafka/libs")
    run("buildah", "copy", "--chmod", "755", broker, folder / "run", folder / "kafka-topics.sh", "/opt/kafka/bin/")
    run("buildah", "config", "--entrypoint", '["tini", "--", "/opt/kafka/bin/run"]', "--cmd", "", broker)
    run("buildah", "config", "--user", "0", broker)
    run("buildah", "commit", "--rm", broker, "localhost/penstock-test-broker")
    files = ["-f", ROOT / "deploy" / "compose.yaml", "-f", folder / "overrides.yaml"]

    def compose(*words: object, **options) -> str:
        return run("podman-compose", "-p", "penstock-test", *files, *words, env=environment, **options)

    yield compose, podman
    compose("down", "--volumes")
    podman("image", "rm", "localhost/penstock-test-broker")


def test_what_compose_starts_is_healthy_comes_again_after_a_kill_and_ends_in_order(composed):
    compose, podman = composed
    name, servers = "penstock-test_app_1", ["-b", "kafka:9092"]

    def state(field: str) -> str:
        return podman("inspect", name, "--format", f"{{{{.{field}}}}}")

    def is_healthy() -> bool:
        """Podman asks by itself only where there is systemd."""
        with contextlib.suppress(AssertionError):
            podman("healthcheck", "run", name)
        return state("State.Health.Status") == "healthy"

    def facts() -> str:
        return podman("ps", "--all") + podman("logs", "--tail", "20", name)

    compose("up", "--detach", "--no-build")
    eventually(is_healthy, 300, facts=facts)
    podman(
        "exec",
        "--interactive",
        name,
        "penstock",
        "topics",
        "produce",
        "streams-plaintext-input",
        *servers,
        input="to be or not to be\n",
    )
    first = int(state("State.Pid"))
    (application,) = psutil.Process(first).children()  # of tini
    application.kill()
    eventually(lambda: state("State.Status") == "running" and int(state("State.Pid")) != first, 120, facts=facts)
    assert state("RestartCount") == "1"
    eventually(is_healthy, 300, facts=facts)
    lines = "".join(f"to be {number}\n" for number in range(2000))
    podman(
        "exec", "--interactive", name, "penstock", "topics", "produce", "streams-plaintext-input", *servers, input=lines
    )
    compose("stop", "app")
    assert (state("State.Status"), state("State.ExitCode")) == ("exited", "0"), facts()
    network = ["--rm", "--network", "penstock-test_default"]
    image = state("ImageName")
    committed = json.loads(podman("run", *network, image, "groups", "lag", "streams-wordcount", "--json", *servers))
    assert {each["lag"] for each in committed} == {0}, committed
    shown = podman("run", *network, image, "topics", "consume", "streams-wordcount-output", "--json", *servers)
    counts = {row["key"]: row["value"] for row in map(json.loads, shown.splitlines())}
    assert (counts["to"], counts["or"]) == (2002, 1)


def answer(port: str, path: str) -> int | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None
