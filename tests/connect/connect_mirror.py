"""Runs the recorded cases of MirrorMaker; each gives the differences that were found, none if it passes."""

import base64

from penstock.connect.mirror import (
    Checkpoint,
    ConfigPropertyFilter,
    GroupFilter,
    Heartbeat,
    MirroredTopics,
    OffsetSync,
    OffsetSyncStore,
    SyncState,
    TopicFilter,
    policy_of,
)
from penstock.log.base import TopicPartition

METHODS = {
    "topicSource": "topic_source",
    "upstreamTopic": "upstream_topic",
    "originalTopic": "original_topic",
    "isHeartbeatsTopic": "is_heartbeats_topic",
    "isCheckpointsTopic": "is_checkpoints_topic",
    "isMM2InternalTopic": "is_mirror_internal_topic",
    "isInternalTopic": "is_internal_topic",
    "formatRemoteTopic": "remote_topic",
    "offsetSyncsTopic": "offset_syncs_topic",
    "checkpointsTopic": "checkpoints_topic",
}
PLACE = TopicPartition("orders", 0)


def run_mirror(case):
    """The differences between a case and what happens here."""
    return RUNNERS[case["op"]](case)


def compare(what, expected, got):
    return [] if expected == got and type(expected) is type(got) else [f"{what}: {got!r} in place of {expected!r}"]


def run_record(case):
    if case["op"] == "heartbeat":
        record = Heartbeat(case["source"], case["target"], case["timestamp"])
    elif case["op"] == "checkpoint":
        place = TopicPartition(case["topic"], case["partition"])
        record = Checkpoint(case["group"], place, case["upstream"], case["downstream"], case["metadata"])
    else:
        record = OffsetSync(TopicPartition(case["topic"], case["partition"]), case["upstream"], case["downstream"])
    found = compare("key", base64.b64decode(case["key_base64"]), record.key())
    found += compare("value", base64.b64decode(case["value_base64"]), record.value())
    found += compare("read again", record, type(record).read(record.key(), record.value()))
    if "connect_partition" in case:
        found += compare("partition", case["connect_partition"], record.connect_partition())
    return found


def policy(case):
    return policy_of({"replication.policy.class": case.get("policy"), **case.get("policy_config", {})})


def run_policy(case):
    made = policy(case)
    found = []
    for call in case["calls"]:
        method = METHODS.get(call["method"])
        got = made.heartbeats if method is None else getattr(made, method)(*call["args"])
        found += compare(f"{call['method']}{call['args']}", call["result"], got)
    return found


def run_replicates(case):
    topics = TopicFilter(case["filter"])
    mirrored = MirroredTopics(policy(case), case["target"], topics, heartbeats=case.get("heartbeats", True))
    got = {name: mirrored.takes(name) for name in case["topics"]}
    return [line for name, want in case["replicated"].items() for line in compare(name, want, got[name])]


def run_names(case):
    names = GroupFilter(case["filter"]) if case["op"] == "groups" else ConfigPropertyFilter(case["filter"])
    return [line for name, want in case["replicated"].items() for line in compare(name, want, names.takes(name))]


def run_translate(case):
    store = OffsetSyncStore(must_read_to_end=case.get("must_read_to_end", True))
    for pair in case["loaded"]:
        store.add(OffsetSync(PLACE, *pair))
    store.finish_loading()
    found = []
    for number, step in enumerate(case["steps"]):
        if "sync" in step:
            store.add(OffsetSync(PLACE, *step["sync"]))
        else:
            got = [store.translate(PLACE, offset) for offset in step["translate"]]
            found += compare(f"step {number}", step["results"], got)
    return found


def run_emit(case):
    state = SyncState(case["max_lag"])
    return compare("due", case["due"], [state.update(*pair) for pair in case["records"]])


RUNNERS = {
    "heartbeat": run_record,
    "checkpoint": run_record,
    "offset_sync": run_record,
    "policy": run_policy,
    "replicates": run_replicates,
    "groups": run_names,
    "properties": run_names,
    "translate": run_translate,
    "emit": run_emit,
}
