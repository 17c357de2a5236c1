"""A worker: its stores, its herder, its operations, put together."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from penstock.base.log_lines import own_logger
from penstock.connect.storage.config_store import ConfigStore
from penstock.connect.storage.offset_store import OffsetStore
from penstock.connect.storage.status_store import StatusStore
from penstock.connect.storage.topic_table import MemoryTable, TopicTable
from penstock.connect.tasks.task_handles import TaskHandle, TaskProcesses, ThreadTask
from penstock.connect.tasks.task_parts import TaskSpec
from penstock.connect.worker.group import Fencing, Solo, WorkerGroupMembership, WorkerMembership
from penstock.connect.worker.herder import Herder, WorkerStores
from penstock.connect.worker.operations import OffsetOperations, Operations
from penstock.connect.worker_settings import WorkerConfig
from penstock.errors import ConfigError
from penstock.log import open_log
from penstock.log.base import TopicLog

__all__ = ["Worker"]

_log = own_logger(__name__)


class Worker:
    """A worker without its REST interface.

    Args:
        config: Its settings.
        worker_id: Its name, ``host:port``.

    Raises:
        ConfigError: A setting is wrong.
        LogError: The log cannot be opened.
    """

    def __init__(self, config: WorkerConfig, worker_id: str) -> None:
        self.config = config
        self.worker_id = worker_id
        self.log: TopicLog = open_log(config.log_url, config.client_settings)
        self.cluster_id = self.log.identity()
        with ThreadPoolExecutor(thread_name_prefix="connect-start") as pool:  # each waits for the log most of its time
            membership_made = pool.submit(_membership, config, self.log, worker_id)
            stores = _stores(config, self.log, pool)
            membership = membership_made.result()
        start: Callable[[TaskSpec, str], TaskHandle]
        start = ThreadTask if config["tasks.in.process"] else TaskProcesses(config.log_url).start
        self.herder = Herder(config, self.log, stores, membership=membership, start_task=start, worker_id=worker_id)
        self.operations = Operations(self.herder)
        self.offsets = OffsetOperations(self.herder)
        self.loggers = self.herder.loggers

    def start(self) -> None:
        """Begin to work.

        Raises:
            LogError: The log cannot be reached.
            SettingError: A converter of the settings is not there.
        """
        self.config.check_plugins(self.herder.plugins)
        for note in self.config.notes(self.herder.plugins):
            _log.warning("%s", note)
        self.herder.start()

    def stop(self) -> None:
        """Stop all connectors and tasks, and close the log."""
        self.herder.stop()
        self.log.close()


def _membership(config: WorkerConfig, log: TopicLog, worker_id: str) -> WorkerMembership:
    if not config.distributed:
        return Solo(worker_id)
    return WorkerGroupMembership(
        log,
        config["group.id"],
        worker_id,
        config_topic=config["config.storage.topic"],
        fencing=Fencing(config, log),
        timing=(config["session.timeout.ms"], config["heartbeat.interval.ms"]),
    )


def _stores(config: WorkerConfig, log: TopicLog, pool: Executor) -> WorkerStores:
    if not config.distributed:
        topic = _standalone_offsets_topic(Path(config["offset.storage.file.filename"]))
        offsets = OffsetStore(TopicTable(log, topic, 1))
        return WorkerStores(ConfigStore(MemoryTable()), StatusStore(MemoryTable()), offsets, topic)
    topic = config["offset.storage.topic"]
    writer = f"connect-cluster-{config['group.id']}"
    tables = [
        pool.submit(
            TopicTable,
            log,
            config["config.storage.topic"],
            1,
            transactional_id=writer,
            settings=config.topic_settings("config"),
        ),
        pool.submit(
            TopicTable,
            log,
            config["status.storage.topic"],
            config["status.storage.partitions"],
            settings=config.topic_settings("status"),
        ),
        pool.submit(
            TopicTable, log, topic, config["offset.storage.partitions"], settings=config.topic_settings("offset")
        ),
    ]
    of_configs, of_statuses, of_offsets = (table.result() for table in tables)
    return WorkerStores(ConfigStore(of_configs), StatusStore(of_statuses), OffsetStore(of_offsets), topic)


def _standalone_offsets_topic(file: Path) -> str:
    """Return the topic of a standalone worker's offsets, whose name its file keeps.

    Offsets are in a topic so that they are written with the records, in one transaction.

    Raises:
        ConfigError: The file is another one, or cannot be written.
    """
    try:
        if file.exists() and file.stat().st_size:
            return str(json.loads(file.read_text())["offsets.topic"])
        topic = f"penstock-standalone-offsets-{uuid.uuid4().hex[:12]}"
        file.write_text(json.dumps({"offsets.topic": topic}) + "\n")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"offset.storage.file.filename={file} cannot be used: {error}",
            hint="Name a file that does not exist yet, in a folder that can be written.",
        ) from error
    return topic
