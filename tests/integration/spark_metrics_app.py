"""An application with a Spark of its own, whose metrics go to CSV files: its arguments are the log and the folder."""

import sys

from penstock import KafkaStreams, StreamsBuilder

LOG, FOLDER = sys.argv[1:]

builder = StreamsBuilder()
builder.stream("words").to("copies")
sink = "spark.metrics.conf.*.sink.csv."
settings = {
    "application.id": "words",
    "bootstrap.servers": LOG,
    "state.dir": f"{FOLDER}/state",
    "default.key.serde": "string",
    "default.value.serde": "string",
    "penstock.metrics.spark": True,
    f"{sink}class": "org.apache.spark.metrics.sink.CsvSink",
    f"{sink}directory": f"{FOLDER}/csv",
    f"{sink}period": "1",
}
KafkaStreams(builder.build(), settings).run(until="latest")
