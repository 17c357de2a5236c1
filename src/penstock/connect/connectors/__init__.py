"""Connectors that come with Penstock, and those that are found in files and installed packages."""

from penstock.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from penstock.connect.connectors.installed_plugins import OWN, known_plugins, with_own
from penstock.connect.connectors.library import LIBRARY

__all__ = ["LIBRARY", "OWN", "FileStreamSinkConnector", "FileStreamSourceConnector", "known_plugins", "with_own"]
