"""The mirror: topics, groups and settings of one cluster copied to another, as MirrorMaker does it."""

from penstock.connect.mirror.flows import ConfigPropertyFilter, GroupFilter, MirroredTopics, TopicFilter, is_cycle
from penstock.connect.mirror.mirror_records import Checkpoint, Heartbeat, OffsetSync
from penstock.connect.mirror.offset_syncs import OffsetSyncStore, SyncState
from penstock.connect.mirror.replication_policies import (
    POLICIES,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    policy_of,
)

__all__ = [
    "POLICIES",
    "Checkpoint",
    "ConfigPropertyFilter",
    "DefaultReplicationPolicy",
    "GroupFilter",
    "Heartbeat",
    "IdentityReplicationPolicy",
    "MirroredTopics",
    "OffsetSync",
    "OffsetSyncStore",
    "ReplicationPolicy",
    "SyncState",
    "TopicFilter",
    "is_cycle",
    "policy_of",
]
