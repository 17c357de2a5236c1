"""One connector in this process: its config checked, its tasks made, run one after another until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.base.log_lines import own_logger
from penstock.connect.api import Connector, SinkConnector, SinkTask, SourceTask
from penstock.connect.data import RetriableError, SettingError
from penstock.connect.delivery.pipeline import Pipeline
from penstock.connect.delivery.sink import SinkDelivery
from penstock.connect.delivery.source import Unwatched
from penstock.connect.delivery.workerless import SingleSource, plainly, single_sink
from penstock.connect.plugins import Plugins, start_notes, validate_connector
from penstock.errors import ConfigError
from penstock.log.base import TopicLog, TopicPartition
from penstock.log.ensure_topic import ensure_topic

__all__ = ["PLAIN_CONVERTERS", "ConnectorRun", "check_config", "topics_of"]

PLAIN_CONVERTERS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
COMMIT_EVERY = 20  # puts; a sink that is idle commits at once
_log = own_logger(__name__)
_POLL_S = 0.1
_RETRY_MS = 1000


def check_config(config: Mapping[str, str], plugins: Plugins) -> None:
    """Validate a connector's config.

    Raises:
        SettingError: There is no such connector, or settings are wrong; the message names all of them.
    """
    chosen = config.get("connector.class") or ""
    try:
        validated = validate_connector(config, plugins)
    except LookupError as error:
        if not chosen:
            raise SettingError(
                "connector.class is missing", hint="It names the connector: a class, or file.py:name."
            ) from error
        raise SettingError(
            f"there is no connector {chosen!r}", hint="penstock connect list shows those that there are."
        ) from error
    values = [entry["value"] for entry in validated["configs"]]
    errors = [f"{value['name']}: {text}" for value in values for text in value["errors"]]
    if errors:
        raise SettingError("the config has errors:\n  " + "\n  ".join(errors), hint="Nothing has run yet.")


def topics_of(settings: Mapping[str, str], log: TopicLog) -> list[str]:
    """Return the topics that a sink reads: those of ``topics``, or those that ``topics.regex`` matches."""
    from penstock.base.java_text.regex import compile_java

    if settings.get("topics.regex"):
        pattern = compile_java(settings["topics.regex"])
        return [info.name for info in log.topics() if pattern.fullmatch(info.name)]
    return [name.strip() for name in settings.get("topics", "").split(",") if name.strip()]


class ConnectorRun:
    """A connector without a worker: no REST interface, no cluster, errors end it.

    Args:
        log: The log.
        config: Its config, with ``name`` and ``connector.class``.
        plugins: The plugins that there are.

    Raises:
        SettingError: The config is wrong.
    """

    def __init__(self, log: TopicLog, config: Mapping[str, str], plugins: Plugins) -> None:
        check_config(config, plugins)
        for note in start_notes(config, plugins):
            _log.warning("%s", note)
        self.name, self.config = config["name"], dict(config)
        self.connector: Connector = plugins.connector(config["connector.class"]).make()
        self._log = log
        self.connector.start(self.config)
        self._watcher = Unwatched()
        self.sources: list[SingleSource] = []
        self.sinks: list[SinkDelivery] = []
        for number, own in enumerate(self.connector.task_configs(int(config.get("tasks.max", "1")))):
            settings = {**self.config, **own}
            pipeline = Pipeline.of(settings, plugins, PLAIN_CONVERTERS)
            task = self.connector.task_class()
            if isinstance(task, SourceTask):
                identity = self.name, number
                self.sources.append(SingleSource(log, identity, task, settings, pipeline, watcher=self._watcher))
            elif isinstance(task, SinkTask):
                self.sinks.append(single_sink(log, task, settings, pipeline, watcher=self._watcher))
            else:
                raise ConfigError(f"{type(task).__name__} is neither a task of a source nor of a sink")

    @property
    def records(self) -> int:
        """The records that were carried so far."""
        return self._watcher.records

    def run(self, stopped: threading.Event, *, once: bool = False) -> None:
        """Carry records until it is stopped.

        Args:
            stopped: Set it to stop; all that is read is written and committed then.
            once: Stop by itself when the source has nothing, or the sink has read all.

        Raises:
            ConnectError: A task fails.
        """
        if isinstance(self.connector, SinkConnector):
            self._assign()
        for source in self.sources:
            source.start()
        failed = True
        try:
            with plainly():
                self._rounds(stopped, once=once)
            failed = False
        finally:
            for source in self.sources:
                source.stop(failed=failed)
            for sink in self.sinks:
                sink.stop(failed=failed)
            self.connector.stop()

    def _rounds(self, stopped: threading.Event, *, once: bool) -> None:
        idle, rounds = 0, 0
        while not stopped.is_set():
            moved = sum(len(source.deliver()) for source in self.sources)
            moved += sum(self._put(sink, stopped) for sink in self.sinks)
            rounds += 1
            idle = 0 if moved else idle + 1
            if idle == 1 or rounds % COMMIT_EVERY == 0:
                for sink in self.sinks:
                    sink.commit()
            if idle and once and not any(sink.behind() for sink in self.sinks):
                break

    def _put(self, sink: SinkDelivery, stopped: threading.Event) -> int:
        try:
            return len(sink.deliver(timeout_s=_POLL_S / len(self.sinks)))
        except RetriableError:
            stopped.wait(sink.context.take_timeout_ms(_RETRY_MS) / 1000)
            return 0

    def _assign(self) -> None:
        for sink in self.sinks:
            sink.start()
        places = []
        for topic in topics_of(self.config, self._log):
            places += [TopicPartition(topic, n) for n in range(ensure_topic(self._log, topic, 1))]
        for number, sink in enumerate(self.sinks):
            sink.assign(places[number :: len(self.sinks)])
