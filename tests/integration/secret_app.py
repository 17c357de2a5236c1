"""An application with secrets in its settings, in a Spark session that records all it can; run by test_secrets."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa

from penstock import KafkaStreams, StreamsBuilder
from penstock.engines.spark.session import spark_for
from penstock.log.open import open_log


def main(root: Path, secret: str, mode: str) -> None:
    url = f"sqlite:///{root / 'log.db'}"
    with open_log(url) as log:
        log.create_topic("words", 2)
        rows = {"timestamp": pa.array([1, 2]), "key": [b"a", b"b"], "value": [b"x", b"y"]}
        log.append("words", 0, pa.RecordBatch.from_pydict(rows))
    builder = StreamsBuilder()
    builder.stream("words").group_by(lambda k, v: v).count(name="counts").to_stream().to("counted")
    (root / "events").mkdir()
    settings = {
        "spark.master": "local[1]",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(root / "events"),
        "spark.eventLog.compress": "false",
        "spark.log.level": "DEBUG",
        "spark.hadoop.fs.s3a.secret.key": f"{secret} \u00fc=\\",
    }
    session = spark_for(settings, "guarded", str(root)).session
    assert session.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key") == f"{secret} \u00fc=\\"
    assert session.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"
    java = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # one that has ended meanwhile
            java.append(process.cmdline())
    assert any("org.apache.spark.deploy.SparkSubmit" in arguments for arguments in java)
    (root / "arguments").write_text(repr(java))
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="{secret}";'
    app = KafkaStreams(
        builder.build(),
        {
            "application.id": "guarded",
            "processing.mode": mode,
            "bootstrap.servers": url,
            "state.dir": str(root / "state"),
            "default.key.serde": "string",
            "default.value.serde": "string",
            "sasl.jaas.config": jaas,
            "ssl.key.password": secret,
            "producer.sasl.password": secret,
        },
        session=session,
    )
    app.start(until="latest")
    query = app._run.engine._query._query if mode == "micro_batch" else None  # of a session of its own
    app.wait()
    if query is not None:
        query.explain(extended=True)
    print(app.config, app.config.explain(), app.metadata())
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
