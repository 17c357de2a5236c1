"""The connectors to other systems, each with the libraries that it needs imported when it runs."""

from __future__ import annotations

from typing import Any

from penstock.connect.api import Connector
from penstock.connect.config import Model
from penstock.connect.connectors.confluent_settings import HTTP_SOURCE_MODEL
from penstock.connect.connectors.datagen import DatagenSource
from penstock.connect.connectors.http_source import http_poll
from penstock.connect.connectors.lakehouse import (
    DeltaSinkConnector,
    DeltaSourceConnector,
    IcebergSinkConnector,
    IcebergSourceConnector,
)
from penstock.connect.connectors.objects import ObjectSinkConnector
from penstock.connect.connectors.postgres import PostgresChangesConnector
from penstock.connect.connectors.search_sink import SearchSinkConnector
from penstock.connect.connectors.spark import SparkSinkConnector, SparkSourceConnector
from penstock.connect.connectors.sql_sink import SqlSinkConnector
from penstock.connect.connectors.sql_source import SqlSourceConnector
from penstock.connect.connectors.webhook_sink import WebhookSinkConnector
from penstock.connect.functions import connector_of

__all__ = ["LIBRARY"]


def _of_function(function: Any, model: Model) -> type[Connector]:
    """Return the connector of a function, with its model."""
    connector = connector_of(function)
    connector.model = model
    return connector


LIBRARY: tuple[type[Connector], ...] = (
    DatagenSource,
    DeltaSinkConnector,
    DeltaSourceConnector,
    IcebergSinkConnector,
    IcebergSourceConnector,
    ObjectSinkConnector,
    PostgresChangesConnector,
    SearchSinkConnector,
    SparkSinkConnector,
    SparkSourceConnector,
    SqlSinkConnector,
    SqlSourceConnector,
    _of_function(http_poll, HTTP_SOURCE_MODEL),
    WebhookSinkConnector,
)
