"""The connectors to other systems, each with the libraries that it needs imported when it runs."""

from __future__ import annotations

from penstock.connect.api import Connector
from penstock.connect.connectors.datagen import DatagenSource
from penstock.connect.connectors.http import webhook
from penstock.connect.connectors.http_source import http_poll
from penstock.connect.connectors.objects import ObjectSinkConnector
from penstock.connect.connectors.postgres import PostgresChangesConnector
from penstock.connect.connectors.search_sink import SearchSinkConnector
from penstock.connect.connectors.spark import SparkSinkConnector, SparkSourceConnector
from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.functions.loading import connector_of

__all__ = ["LIBRARY"]

LIBRARY: tuple[type[Connector], ...] = (
    DatagenSource,
    ObjectSinkConnector,
    PostgresChangesConnector,
    SearchSinkConnector,
    SparkSinkConnector,
    SparkSourceConnector,
    SqlSinkConnector,
    SqlSourceConnector,
    connector_of(http_poll),
    connector_of(webhook),
)
