"""Locations of an application: its log by its settings, and a lasting place for its state, which no other shares."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.errors import ConfigError, EnvironmentProblemError
from penstock.log.open import open_log, warn_of_plain_text
from penstock.log.url import kafka_servers, parse_log_url
from penstock.state.checkpoint import local_directory, own_part
from penstock.state.private_folders import check_folder, new_file, own_folder, state_home
from penstock.state.segments.object_storage import check_object_store

if TYPE_CHECKING:
    from penstock.config import StreamsConfig
    from penstock.log.base import TopicLog

__all__ = ["Locations", "former_checkpoint", "log_settings", "open_app_log"]


def open_app_log(config: StreamsConfig) -> TopicLog:
    """Open the log that ``bootstrap.servers`` names.

    Raises:
        ConfigError: It is a log in memory, which other processes cannot open.
    """
    config.require("application.id", "bootstrap.servers")
    url = str(config["bootstrap.servers"])
    if url.startswith("memory:"):
        raise ConfigError(
            f"bootstrap.servers is {url!r}, in the memory of this process, but Spark's workers are other processes",
            hint='Use a file, "sqlite:///penstock.db"; for tests without Spark there is TopologyTestDriver.',
        )
    warn_of_plain_text(url, log_settings(config))
    return open_log(url, log_settings(config))


def log_settings(config: StreamsConfig) -> dict[str, Any]:
    """Select the settings that a log may use: texts and numbers."""
    settings = {name: value for name, value in config.given.items() if isinstance(value, str | int | float)}
    return {"task.timeout.ms": config["task.timeout.ms"], **settings}


@dataclass(frozen=True, slots=True)
class Locations:
    """The locations of an application's state.

    Attributes:
        checkpoint: The checkpoint location: a folder, or a URI.
        replicas: The directory of replicas on each machine.
        is_given: Whether ``penstock.checkpoint.location`` names the checkpoint.
    """

    checkpoint: str
    replicas: str
    is_given: bool = False

    @classmethod
    def of(cls, config: StreamsConfig, log: TopicLog | None = None) -> Locations:
        """Determine the locations from the settings.

        ``state.dir`` holds a folder for each ``application.id``. Without it, that folder is beside an embedded log, in
        ``<its file>.penstock``; over Kafka in ``penstock/<cluster id>`` in the user's directory of state.

        Args:
            config: The application's settings.
            log: The application's log, if it is open; Kafka's says the cluster's id.

        Raises:
            ConfigError: The ``application.id`` cannot name a folder.
        """
        application = str(config["application.id"])
        if application in (".", "..") or "/" in application:
            raise ConfigError(
                f"application.id is {application!r}, which cannot name a folder and topics",
                hint='Use letters, digits, ".", "_" and "-".',
            )
        given_root = config.get("state.dir")
        root = Path(given_root).expanduser().absolute() if given_root else _default_root(config, log)
        home = root / application
        location = config.get("penstock.checkpoint.location")
        checkpoint = str(location).rstrip("/") if location else str(home / "checkpoint")
        if "://" not in checkpoint:
            checkpoint = str(Path(checkpoint).expanduser().absolute())
        return cls(checkpoint, str(home / "replicas"), bool(location))

    @property
    def queries(self) -> Path:
        """The directory of replicas of processes on this machine that query the application."""
        return Path(self.replicas).with_name("queries")

    @property
    def journal(self) -> str:
        """The driver's directory of Spark's own checkpoint, if the application's is in an object store; else empty."""
        is_local = local_directory(self.checkpoint) is not None
        return "" if is_local else str(Path(self.replicas).with_name("journal"))

    def prepare(self) -> None:
        """Create the local folders, for this user alone.

        Raises:
            EnvironmentProblemError: A folder cannot be written to, or belongs to another user.
        """
        if self.journal:
            check_object_store(self.checkpoint)
        for setting, location in (("penstock.checkpoint.location", self.checkpoint), ("state.dir", self.replicas)):
            folder = local_directory(location)
            if folder is None:
                continue
            try:
                if self.is_given and location == self.checkpoint and folder.is_dir():
                    check_folder(folder)  # it may hold other things, for others to read
                else:
                    own_folder(folder)
                with new_file(folder, "writable"):
                    pass
                if location == self.checkpoint:
                    own_part(location, "state")
                    own_part(location, "spark")
            except OSError as error:
                raise EnvironmentProblemError(
                    f"the directory {location} is not writable: {error.strerror}",
                    hint=f"Set {setting} (or state.dir) to a directory that this user may write to.",
                    directory=location,
                ) from error


def _default_root(config: StreamsConfig, log: TopicLog | None) -> Path:
    url = str(config["bootstrap.servers"])
    if kafka_servers(url) is None:
        log_url = parse_log_url(url)
        if log_url.path is None:
            return Path(_of_process().name)
        return log_url.path.with_name(f"{log_url.path.name}.penstock")
    if log is not None:
        return _of_cluster(log.identity())
    with open_log(url, log_settings(config)) as opened:
        return _of_cluster(opened.identity())


def _of_cluster(cluster: str) -> Path:
    return state_home() / "penstock" / quote(cluster, safe="")


@cache
def _of_process() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory for logs in memory, which do not outlive the process either."""
    return tempfile.TemporaryDirectory(prefix="penstock-")


def former_checkpoint(application: str) -> Path:
    """Return the default checkpoint location of earlier versions."""
    return Path(tempfile.gettempdir()) / "penstock" / application / "checkpoint"
