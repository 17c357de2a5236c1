"""The mirror: topics, groups and settings of one cluster copied to another, as MirrorMaker does it."""

from penstock.connect.mirror.flows import ConfigPropertyFilter, GroupFilter, MirroredTopics, TopicFilter, is_cycle
from penstock.connect.mirror.offset_syncs import OffsetSyncStore, SyncState
from penstock.connect.mirror.policies import (
    POLICIES,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    policy_of,
)
from penstock.connect.mirror.records import Checkpoint, Heartbeat, OffsetSync

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
