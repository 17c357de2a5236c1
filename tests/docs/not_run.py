"""Which commands and blocks of the pages the tests do not run, and why. All others run, verbatim.

What runs until Ctrl-C is interrupted once it has said ``UNTIL``.
"""

from __future__ import annotations

SPARK = "starts Spark"
BROKER = "needs a broker at localhost:9092"
SERVER = "goes on until it is stopped"
CLUSTER = "needs a cluster"
NETWORK = "installs packages"
MINUTES = "takes minutes"
THEIRS = "needs a service or a file that is the reader's own"

# (page, beginning of the command or of a line of the block) -> reason
NOT_RUN: dict[tuple[str, str], str] = {
    ("README.md", "pip install"): NETWORK,
    ("README.md", "make demo"): MINUTES,
    ("README.md", "make test"): MINUTES,
    ("README.md", "penstock run app.py:topology"): SPARK,
    ("README.md", "penstock ui"): SERVER,
    ("README.md", "penstock connect file"): SERVER,
    ("README.md", "penstock connect worker"): SERVER,
    ("README.md", "penstock broker start"): BROKER,
    ("README.md", "penstock registry start"): SERVER,
    ("docs/connect/ten-minutes.md", "pip install"): NETWORK,
    ("docs/connect/ten-minutes.md", "penstock connect"): SERVER,
    ("docs/connect/ten-minutes.md", "curl"): THEIRS,
    ("docs/connect/ten-minutes.md", "penstock topics consume"): THEIRS,
    ("docs/connect/lakehouse.md", "pip install"): NETWORK,
    ("docs/connect/java.md", "penstock connect java"): BROKER,
    ("docs/how-to/doctor.md", "penstock doctor -b"): BROKER,
    ("docs/how-to/broker.md", "penstock broker"): BROKER,
    ("docs/how-to/changelogs.md", "penstock state rebuild app.py:topology -b logs.db --without-checkpoint"): THEIRS,
    ("docs/how-to/upgrade.md", "penstock app plan"): THEIRS,
    ("docs/how-to/upgrade.md", "penstock run"): SPARK,
    ("docs/how-to/broker.md", "with Broker("): BROKER,
    ("docs/how-to/broker.md", "with BrokerCluster("): BROKER,
    ("docs/how-to/cluster.md", "export PYSPARK_PYTHON"): CLUSTER,
    ("docs/how-to/cluster.md", "spark-submit"): CLUSTER,
    ("docs/how-to/cluster.md", "export PYSPARK_DRIVER_PYTHON"): CLUSTER,
    ("docs/how-to/cluster.md", "pip install venv-pack"): NETWORK,
    ("docs/how-to/managed-spark.md", "aws s3 cp"): THEIRS,
    ("docs/how-to/managed-spark.md", "gcloud"): THEIRS,
    ("docs/how-to/managed-spark.md", "environment/bin/spark-submit"): CLUSTER,
    ("docs/how-to/backfills.md", "airflow"): MINUTES,
    ("docs/how-to/backfills.md", "dagster"): MINUTES,
    ("docs/how-to/containers.md", "podman"): MINUTES,
    ("docs/how-to/containers.md", "docker"): THEIRS,
    ("docs/how-to/containers.md", "helm"): CLUSTER,
    ("docs/how-to/continuous.md", "app.run()"): BROKER,
    ("docs/how-to/dataframes.md", "spark = SparkSession"): SPARK,
    ("docs/how-to/groups.md", "penstock app reset"): THEIRS,
    ("docs/how-to/install.md", "pip install"): NETWORK,
    ("docs/how-to/kafka.md", "app.run()"): BROKER,
    ("docs/how-to/metrics.md", "app.metrics"): SPARK,
    ("docs/how-to/metrics.md", "from penstock.metrics.otel"): SERVER,
    ("docs/how-to/operate.md", "penstock run"): SPARK,
    ("docs/how-to/move-from-java.md", "python examples/move_from_java/move.py"): MINUTES,
    ("docs/how-to/scale-out.md", "penstock groups describe"): SPARK,
    ("docs/how-to/queries.md", "streams.start()"): SPARK,
    ("docs/how-to/queries.md", "penstock query logs.py"): SPARK,
    ("docs/how-to/queries.md", "penstock query os-counts"): SPARK,
    ("docs/how-to/queries.md", "penstock query os-check"): BROKER,
    ("docs/how-to/queries.md", "penstock query where"): SPARK,
    ("docs/how-to/queries.md", "penstock query lags"): SERVER,
    ("docs/how-to/queries.md", "timed = "): SPARK,
    ("docs/how-to/queries.md", "bound = "): SPARK,
    ("docs/how-to/queries.md", "pip install"): NETWORK,
    ("docs/how-to/queries.md", "penstock query serve"): SERVER,
    ("docs/how-to/queries.md", "penstock query by-minute"): SERVER,
    ("docs/how-to/queries.md", "penstock query stores --checkpoint s3"): THEIRS,
    ("docs/how-to/schemas.md", "penstock registry"): SERVER,
    ("docs/sql/server.md", "penstock sql serve"): SERVER,
    ("docs/sql/ten-minutes.md", "with SqlSession"): SPARK,
    ("docs/sql/server.md", "curl"): SERVER,
}

# A command or block that ends by Ctrl-C -> what it has said by then.
UNTIL: dict[tuple[str, str], str] = {
    ("README.md", "python app.py"): r"records/s, lag 0, .* [1-9][\d,]* in",
}

# Pages that go on in the folder of another.
CONTINUES = {
    "docs/how-to/operate.md": "docs/tutorial.md",
    "docs/how-to/changelogs.md": "docs/tutorial.md",
}
