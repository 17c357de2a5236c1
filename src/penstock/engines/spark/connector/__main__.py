"""``python -m penstock.engines.spark.connector``: PySpark for one task of a connector, over standard input and output.

The first message has the settings. A source sends batches and waits for the answer to each; a sink answers each table.
The process ends with its parent, whose end closes standard input.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.engines.spark.connector.frames import Frame, read_frame, write_frame
from penstock.engines.spark.failures import spark_error_reason, spark_error_text
from penstock.engines.spark.pyspark_warnings import quiet_pyspark

__all__ = ["main"]

_MOST_TEXT = 2000


def main() -> None:
    """Run the task that the first message describes."""
    source = sys.stdin.buffer
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what Spark and formats such as console print
    first = read_frame(source)
    if first is None:
        return
    try:
        quiet_pyspark()
        session = _session(first.head)
        if first.head["kind"] == "source":
            _Source(session, first.head, source, out).run()
        else:
            _run_sink(session, first.head, source, out)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        write_frame(out, Frame({"kind": "error", "text": _text_of(error)}))
    finally:
        out.flush()
        os._exit(0)  # threads of Spark may still wait for the parent


def _session(head: Mapping[str, Any]) -> SparkSession:
    builder = SparkSession.builder.appName(head["name"]).master(head["master"])
    usual = {
        "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "4", "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }  # fmt: skip
    for name, value in {**usual, **head["conf"]}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class _Source:
    """A query over the source; each of its batches is sent, and the query goes on when it is answered."""

    def __init__(self, session: SparkSession, head: Mapping[str, Any], source: BinaryIO, out: BinaryIO) -> None:
        self._session, self._head, self._out = session, head, out
        self._answers: queue.Queue[Frame] = queue.Queue()
        self._query_id: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, args=[source], daemon=True).start()

    def run(self) -> None:
        """Send all batches until the parent ends, or the source does."""
        head = self._head
        if head["mode"] == "batch":
            frame = self._configured(self._session.read).load()
            self._query_id.put("batch")
            self._send(frame, 0)
        else:
            frame = self._configured(self._session.readStream).load()
            writer = frame.writeStream.option("checkpointLocation", head["checkpoint"]).foreachBatch(self._send)
            query = writer.trigger(processingTime=f"{head['interval_ms']} milliseconds").start()
            self._query_id.put(str(query.id))
            query.awaitTermination()
        write_frame(self._out, Frame({"kind": "end"}))
        self._answers.get()

    def _configured(self, reader: Any) -> Any:
        reader = reader.format(self._head["format"]).options(**self._head["options"])
        return reader.schema(self._head["schema"]) if self._head["schema"] else reader

    def _send(self, frame: Any, number: int) -> None:
        table = frame.toArrow()
        identity = self._query_id.get()
        self._query_id.put(identity)
        write_frame(self._out, Frame({"kind": "batch", "batch": number, "query": identity}, _packed(table)))
        self._answers.get()

    def _listen(self, source: BinaryIO) -> None:
        while (frame := read_frame(source)) is not None:
            self._answers.put(frame)
        os._exit(0)  # the parent has ended: what it has not answered comes again


def _run_sink(session: SparkSession, head: Mapping[str, Any], source: BinaryIO, out: BinaryIO) -> None:
    """Write each table that comes, and answer when it is written."""
    write_frame(out, Frame({"kind": "ready"}))
    while (frame := read_frame(source)) is not None:
        table = pa.ipc.open_stream(frame.data).read_all()
        writer = session.createDataFrame(table).write.format(head["format"]).options(**head["options"])
        if head["partition_by"]:
            writer = writer.partitionBy(*head["partition_by"]).option("partitionOverwriteMode", "dynamic")
        writer.mode("overwrite" if head["partition_by"] else "append").save()
        write_frame(out, Frame({"kind": "done"}))


def _packed(table: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    packed: bytes = buffer.getvalue().to_pybytes()
    return packed


def _text_of(error: Exception) -> str:
    return spark_error_reason(spark_error_text(error))[:_MOST_TEXT]


if __name__ == "__main__":
    main()
