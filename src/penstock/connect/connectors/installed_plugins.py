"""All plugins that a worker has: Apache Kafka's, Penstock's connectors, those of packages and files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.connect.api import Connector
from penstock.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from penstock.connect.connectors.library import LIBRARY
from penstock.connect.connectors.mirror import (
    MirrorCheckpointConnector,
    MirrorHeartbeatConnector,
    MirrorSourceConnector,
)
from penstock.connect.functions import file_plugins, installed_plugins
from penstock.connect.plugins import Plugin, PluginKind, Plugins, connector_plugin
from penstock.connect.transforms.debezium import DEBEZIUM_TRANSFORMS
from penstock.errors import ConfigError

__all__ = ["OWN", "known_plugins", "with_own"]

OWN: tuple[type[Connector], ...] = (
    FileStreamSourceConnector,
    FileStreamSinkConnector,
    MirrorSourceConnector,
    MirrorCheckpointConnector,
    MirrorHeartbeatConnector,
    *LIBRARY,
)


def with_own(plugins: Plugins) -> Plugins:
    """Add the connectors and transformations that come with Penstock, beside those of Kafka."""
    for connector in OWN:
        plugins.add(connector_plugin(connector))
    for each in DEBEZIUM_TRANSFORMS:
        plugins.add(Plugin(each.java_class, (PluginKind.TRANSFORMATION,), each, each.config))
    return plugins


def known_plugins(paths: Iterable[str] = ()) -> Plugins:
    """Return the plugins of a worker.

    Those of Kafka and of Penstock, of installed packages, and of the files of its paths.

    Args:
        paths: Python files, or folders of them. All of their connectors and transformations are plugins; others of a
            folder can be named by a reference such as ``my_connectors.py:http_poll``.

    Raises:
        ConfigError: A path does not exist, or its code does not run.
    """
    places = [Path(path) for path in paths if path]
    for plugin_path in places:
        if not plugin_path.exists():
            raise ConfigError(
                f"plugin.path names {plugin_path}, which does not exist", hint="Name Python files, or folders of them."
            )
    folders = [plugin_path for plugin_path in places if plugin_path.is_dir()]
    plugins = with_own(installed_plugins(folders))
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    for file in (
        *files,
        *(plugin_path for plugin_path in places if plugin_path.suffix == ".py" and plugin_path.is_file()),
    ):
        for plugin in file_plugins(file):
            plugins.add(plugin)
    return plugins
