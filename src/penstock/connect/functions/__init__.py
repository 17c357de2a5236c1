"""Connectors and transformations as functions: a generator is a source, a function of batches is a sink."""

from penstock.connect.functions.decorators import (
    FunctionConnector,
    FunctionTransform,
    Offsets,
    Record,
    Settings,
    definition_of,
    sink,
    source,
    transform,
)
from penstock.connect.functions.loading import installed_plugins, load_plugin

__all__ = [
    "FunctionConnector",
    "FunctionTransform",
    "Offsets",
    "Record",
    "Settings",
    "definition_of",
    "installed_plugins",
    "load_plugin",
    "sink",
    "source",
    "transform",
]
