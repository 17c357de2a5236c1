"""Plugins by name, and what configs make of them: chains of transformations, definitions, validation."""

from penstock.connect.plugins.chain import Stage, TransformationChain, enriched, transformation_chain
from penstock.connect.plugins.connector_definition import WorkerSettings
from penstock.connect.plugins.registry import (
    KAFKA_VERSION,
    Plugin,
    PluginKind,
    Plugins,
    connector_plugin,
    standard_plugins,
)
from penstock.connect.plugins.validating import (
    NameCheck,
    check_converter,
    check_names,
    plugin_settings,
    start_notes,
    validate_connector,
)

__all__ = [
    "KAFKA_VERSION",
    "NameCheck",
    "Plugin",
    "PluginKind",
    "Plugins",
    "Stage",
    "TransformationChain",
    "WorkerSettings",
    "check_converter",
    "check_names",
    "connector_plugin",
    "enriched",
    "plugin_settings",
    "standard_plugins",
    "start_notes",
    "transformation_chain",
    "validate_connector",
]
