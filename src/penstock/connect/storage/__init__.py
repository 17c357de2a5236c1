"""The topics of a worker group, in Kafka Connect's own formats: configs, states, source offsets."""

from penstock.connect.storage.config_store import ConfigStore, ConnectorTaskId, RestartRequest
from penstock.connect.storage.offset_store import OffsetStore
from penstock.connect.storage.status_store import StatusStore, StoredStatus
from penstock.connect.storage.topic_table import MemoryTable, TopicTable

__all__ = [
    "ConfigStore",
    "ConnectorTaskId",
    "MemoryTable",
    "OffsetStore",
    "RestartRequest",
    "StatusStore",
    "StoredStatus",
    "TopicTable",
]
