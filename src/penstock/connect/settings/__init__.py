"""The settings of workers, Java's ``.properties`` files, config providers."""

from penstock.connect.settings.properties import parse_properties, read_properties
from penstock.connect.settings.providers import Providers, config_providers
from penstock.connect.settings.worker_config import Mode, WorkerConfig, worker_definition

__all__ = [
    "Mode",
    "Providers",
    "WorkerConfig",
    "config_providers",
    "parse_properties",
    "read_properties",
    "worker_definition",
]
