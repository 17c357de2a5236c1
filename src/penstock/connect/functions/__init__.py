"""Connectors and transformations as functions: a generator is a source, a function of batches is a sink."""

from penstock.connect.functions.decorators import FunctionConnector, FunctionTransform, sink, source, transform
from penstock.connect.functions.function_settings import Settings, definition_of
from penstock.connect.functions.loading import installed_plugins, load_plugin
from penstock.connect.functions.record import Offsets, Record

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
