"""Count words with a processor inside the DSL: Kafka's WordCountTransformerDemo, which is `process()` since 3.3.

The processor brings its store along (`stores()`), as ConnectedStoreProvider does in Java.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock import Processor, ProcessorContext, Record, Stores, StreamsBuilder

config = {
    "application.id": "streams-wordcount-transformer",
    "default.key.serde": "string",
    "default.value.serde": "string",
}


class WordCounter(Processor[str, str]):
    """Counts the words of lines, and tells the counts for every second of stream time."""

    @classmethod
    def stores(cls) -> Iterable[Any]:
        return [Stores.key_value("Counts", key_serde="string", value_serde="integer", persistent=False)]

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


builder = StreamsBuilder()
builder.stream("streams-plaintext-input").process(WordCounter).to("streams-wordcount-processor-output")
topology = builder.build()

RECORDS = [
    ("streams-plaintext-input", None, "all streams lead to kafka", 0),
    ("streams-plaintext-input", None, "hello kafka streams", 400),
    ("streams-plaintext-input", None, "join kafka summit", 1200),
]

if __name__ == "__main__":
    from penstock.tools.demo import run_example

    run_example(topology, config, RECORDS)
