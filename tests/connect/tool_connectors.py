"""Kafka's own connectors for tests (``connect-test-plugins``) as a file of `plugin.path`: mock and verifiable ones."""

import threading
import time

from penstock.connect.api import SinkConnector, SinkTask, SourceConnector, SourceTask
from penstock.connect.config import ConfigDef
from penstock.connect.data import INT32, INT64, SourceRecord
from penstock.errors import ConnectError

TOOLS = "org.apache.kafka.connect.tools."
VERSION = "4.3.1"
DELAY_MS = 15_000


class Failure:
    """When a mock fails: ``delay_ms`` after its start, if its ``mock_mode`` says so."""

    def __init__(self, settings, mode):
        self.fails = settings.get("mock_mode") == mode
        self.at = time.monotonic() + int(settings.get("delay_ms") or DELAY_MS) / 1000

    def is_due(self):
        return self.fails and time.monotonic() >= self.at


class MockSourceTask(SourceTask):
    java_class = f"{TOOLS}MockSourceTask"

    def start(self, settings):
        self.failure = Failure(settings, "task-failure")

    def poll(self):
        if self.failure.is_due():
            raise RuntimeError


class MockSinkTask(SinkTask):
    java_class = f"{TOOLS}MockSinkTask"

    def start(self, settings):
        self.failure = Failure(settings, "task-failure")

    def put(self, records):
        if self.failure.is_due():
            raise RuntimeError


class Mock:
    """What both mock connectors are: one task, whatever ``tasks.max`` says."""

    version = VERSION
    config = ConfigDef([])
    timer = None

    def start(self, settings):
        self.settings = dict(settings)
        failure = Failure(settings, "connector-failure")
        if failure.fails:
            wait_s = max(failure.at - time.monotonic(), 0)
            self.timer = threading.Timer(wait_s, self.context.raise_error, [ConnectError("scripted failure")])
            self.timer.start()

    def task_configs(self, max_tasks):
        return [dict(self.settings)]

    def stop(self):
        if self.timer is not None:
            self.timer.cancel()


class MockSourceConnector(Mock, SourceConnector):
    java_class = f"{TOOLS}MockSourceConnector"
    task_class = MockSourceTask


class MockSinkConnector(Mock, SinkConnector):
    java_class = f"{TOOLS}MockSinkConnector"
    task_class = MockSinkTask


class VerifiableSourceTask(SourceTask):
    java_class = f"{TOOLS}VerifiableSourceTask"

    def start(self, settings):
        try:
            self.id, self.topic = int(settings["id"]), settings["topic"]
            self.pause_s = 1 / float(settings["throughput"])
        except (KeyError, ValueError) as error:
            raise ConnectError("Invalid VerifiableSourceTask configuration") from error
        stored = self.context.offset_reader.offset({"id": self.id})
        self.seqno = int(stored["seqno"]) + 1 if stored else 0

    def poll(self):
        time.sleep(self.pause_s)
        record = SourceRecord(
            topic=self.topic, key=self.id, key_schema=INT32, value=self.seqno, value_schema=INT64,
            source_partition={"id": self.id}, source_offset={"seqno": self.seqno},
        )  # fmt: skip
        self.seqno += 1
        return [record]


class VerifiableSourceConnector(SourceConnector):
    java_class = f"{TOOLS}VerifiableSourceConnector"
    version = VERSION
    config = ConfigDef([])
    task_class = VerifiableSourceTask

    def start(self, settings):
        self.settings = dict(settings)

    def task_configs(self, max_tasks):
        return [{**self.settings, "id": str(number)} for number in range(max_tasks)]


class VerifiableSinkTask(SinkTask):
    java_class = f"{TOOLS}VerifiableSinkTask"

    def put(self, records):
        """Take them: Kafka's prints them."""


class VerifiableSinkConnector(SinkConnector):
    java_class = f"{TOOLS}VerifiableSinkConnector"
    version = VERSION
    config = ConfigDef([])
    task_class = VerifiableSinkTask

    def start(self, settings):
        self.settings = dict(settings)

    def task_configs(self, max_tasks):
        return [{**self.settings, "id": str(number)} for number in range(max_tasks)]
