"""Count words with the Processor API alone: Kafka's WordCountProcessorDemo.

A processor counts into a store and, for every second of stream time, sends on all that it has counted. As in the
original this is right for a topic of one partition: nothing brings equal words of several partitions together.
"""

from __future__ import annotations

from typing import Any

from penstock import Processor, ProcessorContext, Record, Stores, Topology

config = {
    "application.id": "streams-wordcount-processor",
    "default.key.serde": "string",
    "default.value.serde": "string",
}


class WordCounter(Processor[str, str]):
    """Counts the words of lines."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.store: Any = context.get_state_store("Counts")
        context.schedule("1 second", "stream_time", self.send_all)

    def process(self, record: Record[str, str]) -> None:
        for word in record.value.lower().split(" "):
            self.store.put(word, (self.store.get(word) or 0) + 1)

    def send_all(self, timestamp: int) -> None:
        for word, count in self.store.all():
            self.context.forward(Record(word, str(count), timestamp))


topology = (
    Topology()
    .add_source("Source", "streams-plaintext-input")
    .add_processor("Process", WordCounter, "Source")
    .add_state_store(Stores.key_value("Counts", key_serde="string", value_serde="integer", persistent=False), "Process")
    .add_sink("Sink", "streams-wordcount-processor-output", "Process")
)

RECORDS = [
    ("streams-plaintext-input", None, "all streams lead to kafka", 0),
    ("streams-plaintext-input", None, "hello kafka streams", 400),
    ("streams-plaintext-input", None, "join kafka summit", 1200),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
