"""An application with a Spark of its own, whose metrics go to CSV files; run by test_spark_metrics."""

import sys

from penstock import KafkaStreams, StreamsBuilder


def main(log: str, folder: str) -> None:
    builder = StreamsBuilder()
    builder.stream("words").to("copies")
    sink = "spark.metrics.conf.*.sink.csv."
    settings = {
        "application.id": "words",
        "bootstrap.servers": log,
        "state.dir": f"{folder}/state",
        "default.key.serde": "string",
        "default.value.serde": "string",
        "processing.mode": "micro_batch",
        "penstock.metrics.spark": True,
        f"{sink}class": "org.apache.spark.metrics.sink.CsvSink",
        f"{sink}directory": f"{folder}/csv",
        f"{sink}period": "1",
    }
    KafkaStreams(builder.build(), settings).run(until="latest")


if __name__ == "__main__":
    main(*sys.argv[1:])
