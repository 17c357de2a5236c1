"""On a real YARN: by spark-submit in both deploy modes, and by `penstock run` while an executor is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from eventually import eventually
from java_sources import compiler
from penstock.tools.broker.process import Broker

from .conftest import Bench, long
from .yarn_cluster import PATIENCE_S, YarnCluster

pytestmark = pytest.mark.whole
APP = Path(__file__).with_name("counting_app.py")
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    if compiler() is None:
        pytest.skip("a JDK compiles what starts the cluster: apt-get install openjdk-17-jdk-headless")
    with YarnCluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture
def words(kafka: Broker, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, None, kafka.settings.bootstrap_servers)
    for topic in ("words", "out"):
        bench.log.create_topic(topic, 2)
    yield bench
    for topic in ("words", "out"):
        bench.log.delete_topic(topic)
    bench.log.close()


def test_spark_submit_runs_it_in_both_deploy_modes(yarn: YarnCluster, words: Bench, tmp_path: Path) -> None:
    settings = [word for name, value in yarn.settings.items() for word in ("--conf", f"{name}={value}")]
    python = f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={sys.executable}"
    for times, deploy in enumerate(("client", "cluster"), 1):
        words.write("words", [("k", "a", 0), ("k", "b", 1)], 0)
        words.write("words", [("k", "a", 2)], 1)
        command = [str(SUBMIT), "--deploy-mode", deploy, *settings, "--conf", python, str(APP), words.url]
        done = subprocess.run(
            [*command, str(tmp_path / "checkpoint"), str(tmp_path / f"state-{deploy}")], capture_output=True, text=True,
            env={**yarn.environment, "PYSPARK_PYTHON": sys.executable}, timeout=PATIENCE_S, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr[-3000:]}\n{yarn.said()}"
        assert dict(words.read("out", long)) == {"a": 2 * times, "b": times}  # the second goes on with the state


def test_a_killed_executor_loses_and_doubles_nothing(yarn: YarnCluster, words: Bench, tmp_path: Path) -> None:
    program = tmp_path / "killed_app.py"
    program.write_text(
        "from penstock import Materialized, StreamsBuilder\n"
        "builder = StreamsBuilder()\n"
        "counts = builder.stream('words').group_by(lambda _, word: word).count(Materialized('counts'))\n"
        "counts.to_stream().to('out')\n"
        "topology = builder.build()\n"
    )
    settings = {
        **yarn.settings, "application.id": "killed", "state.dir": str(tmp_path / "state"), "default.key.serde": "string",
        "default.value.serde": "string", "processing.guarantee": "exactly_once_v2", "num.stream.threads": "2",
    }  # fmt: skip
    command = [sys.executable, "-m", "penstock", "run", f"{program}:topology", "-b", words.url]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (tmp_path / "said").open("w+b") as said:
        process = subprocess.Popen(command, env=yarn.environment, stdout=said, stderr=said, cwd=tmp_path)
        try:
            facts = lambda: f"{(tmp_path / 'said').read_text()[-3000:]}\n{yarn.said()}"  # noqa: E731
            for round_ in range(3):
                words.write("words", [("k", f"word-{each}", round_) for each in range(10)], round_ % 2)
                counted = {f"word-{each}": round_ + 1 for each in range(10)}
                eventually(
                    lambda counted=counted: process.poll() is not None or dict(words.read("out", long)) == counted,
                    PATIENCE_S, facts=facts,
                )  # fmt: skip
                assert process.poll() is None, facts()
                if round_ == 1:
                    executors = eventually(yarn.executors, PATIENCE_S, facts=facts)
                    executors[0].kill()
            assert sorted(words.read("out", long)) == sorted((f"word-{w}", n) for w in range(10) for n in (1, 2, 3))
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, facts()
        finally:
            process.kill()
            process.wait()
