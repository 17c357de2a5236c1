"""Java's names for running, testing, processing and querying -> Penstock's, if they differ by more than snake_case."""

from __future__ import annotations

from penstock.base.java_names.dsl import NOTHING

__all__ = ["CLASSES", "RUNNING"]

_NO_THREADS = f"{NOTHING}Spark runs the tasks, on as many cores as spark.master has"
_NO_PAUSE = f"{NOTHING}close() stops; the next start continues where it stopped"
_NO_HEADERS_STORES = f"{NOTHING}stores keep no headers"

_STATE_STORE = {
    "flush": f"{NOTHING}every batch is flushed when it ends",
    "commit": f"{NOTHING}every batch ends with a commit",
    "committedOffset": "KafkaStreams.query(...).position",
    "managesOffsets": f"{NOTHING}Penstock keeps the offsets",
    "close": f"{NOTHING}the task closes its stores",
    "init": f"{NOTHING}the task opens its stores",
    "isOpen": f"{NOTHING}a store is open as long as its task",
    "name": "spec.name",
    "persistent": "Stores.key_value(name, persistent=...)",
    "query": "KafkaStreams.query(request)",
    "getPosition": "KafkaStreams.query(...).position",
}
_SESSIONS = {
    "backwardFetch": "fetch(key, reverse=True)",
    "backwardFindSessions": "find_sessions(..., reverse=True)",
}

RUNNING: dict[str, dict[str, str]] = {
    "KafkaStreams": {
        "addStreamThread": _NO_THREADS,
        "removeStreamThread": _NO_THREADS,
        "allMetadata": "metadata_for_all_streams_clients()",
        "allMetadataForStore": "streams_metadata_for_store(store)",
        "cleanUp": "reset()",
        "clientInstanceIds": f"{NOTHING}no telemetry is pushed to brokers",
        "isPaused": _NO_PAUSE,
        "pause": _NO_PAUSE,
        "resume": _NO_PAUSE,
        "localThreadsMetadata": "metadata()",
        "metadataForLocalThreads": "metadata()",
        "metadataForKey": "query_metadata_for_key(store, key)",
        "setStandbyUpdateListener": f"{NOTHING}metadata() says which machines hold replicas",
    },
    "TopologyTestDriver": {
        "createInputTopic": "input_topic(name)",
        "createOutputTopic": "output_topic(name)",
        "getAllStateStores": "topology.stores, and store(name) for each",
        "getKeyValueStore": "store(name)",
        "getTimestampedKeyValueStore": "store(name)",
        "getVersionedKeyValueStore": "store(name)",
        "getWindowStore": "store(name)",
        "getTimestampedWindowStore": "store(name)",
        "getSessionStore": "store(name)",
        "getSessionStoreWithHeaders": _NO_HEADERS_STORES,
        "getTimestampedKeyValueStoreWithHeaders": _NO_HEADERS_STORES,
        "getTimestampedWindowStoreWithHeaders": _NO_HEADERS_STORES,
        "pipeInput": "input_topic(name).pipe(value, key, timestamp)",
        "readOutput": "output_topic(name).read_record()",
    },
    "TestInputTopic": {
        "pipeInput": "pipe(value, key, timestamp)",
        "pipeKeyValueList": "pipe_many([(key, value), ...])",
        "pipeRecordList": "pipe_many([(key, value, timestamp), ...])",
        "pipeValueList": "pipe_many([(None, value), ...])",
    },
    "TestOutputTopic": {
        "getQueueSize": "size",
        "readKeyValuesToMap": "read_key_values_to_map()",
    },
    "TestRecord": {"getRecordTime": "timestamp"},
    "ProcessorContext": {
        "appConfigs": "KafkaStreams.config, outside of the processor",
        "appConfigsWithPrefix": "KafkaStreams.config.with_prefix(...), outside of the processor",
        "keySerde": "a serde that you make, as Serdes.string()",
        "valueSerde": "a serde that you make, as Serdes.string()",
        "metrics": "KafkaStreams.metrics, outside of the processor",
        "stateDir": f"{NOTHING}a task moves between machines; keep state in stores",
        "topic": "record_metadata().topic",
        "partition": "record_metadata().partition",
        "offset": "record_metadata().offset",
        "timestamp": "record.timestamp",
        "headers": "record.headers",
    },
    "KeyValueStore": {**_STATE_STORE, "putAll": "put_many([(key, value), ...])"},
    "WindowStore": {
        **_STATE_STORE,
        "fetch": "fetch(key, start)",
        "backwardAll": "all(reverse=True)",
        "backwardFetch": "fetch_range(key, time_from, time_to, reverse=True)",
        "backwardFetchAll": "fetch_all(time_from, time_to, reverse=True)",
    },
    "SessionStore": {**_STATE_STORE, **_SESSIONS},
    "ReadOnlySessionStore": {"backwardFindSessions": "backward_fetch(key), or find_sessions()"},
    "VersionedKeyValueStore": {
        **_STATE_STORE,
        "PUT_RETURN_CODE_NOT_PUT": "-2",
        "PUT_RETURN_CODE_VALID_TO_UNDEFINED": "-1",
    },
    "ValueAndTimestamp": {
        "make": "ValueAndTimestamp(value, timestamp)",
        "makeAllowNullable": "ValueAndTimestamp(value, timestamp)",
        "getValueOrNull": "value",
    },
    "HostInfo": {"buildFromEndpoint": 'HostInfo.of("host:port")'},
    "StreamsMetadata": {"host": "host_info.host", "port": "host_info.port"},
    "KeyQueryMetadata": {"NOT_AVAILABLE": "None"},
    "StoreQueryParameters": {
        "queryableStoreType": "store_type",
        "staleStoresEnabled": "stale_stores",
    },
    "QueryableStoreTypes": {
        "sessionStoreWithHeaders": _NO_HEADERS_STORES,
        "timestampedKeyValueStoreWithHeaders": _NO_HEADERS_STORES,
        "timestampedWindowStoreWithHeaders": _NO_HEADERS_STORES,
    },
    "KeyQuery": {"isSkipCache": "skips_cache"},
    "TimestampedKeyQuery": {
        "isSkipCache": f"{NOTHING}only committed state is read, so there is no cache to skip",
        "skipCache": f"{NOTHING}only committed state is read, so there is no cache to skip",
    },
    "RangeQuery": {"getLowerBound": "lower", "getUpperBound": "upper", "resultOrder": "order"},
    "TimestampedRangeQuery": {"lowerBound": "lower", "upperBound": "upper", "resultOrder": "order"},
    "VersionedKeyQuery": {"asOfTimestamp": "as_of_ms"},
    "MultiVersionedKeyQuery": {"resultOrder": "order"},
    "StateQueryRequest": {
        "executionInfoEnabled": "has_execution_info",
        "getPositionBound": "bound",
        "getStoreName": "store",
        "isAllPartitions": "partitions is None",
        "isRequireActive": "requires_active",
    },
    "StateQueryResult": {
        "addResult": f"{NOTHING}KafkaStreams.query() fills it",
        "setGlobalResult": f"{NOTHING}KafkaStreams.query() fills it",
    },
    "QueryResult": {
        "addExecutionInfo": "execution_info.append(text)",
        "forUnknownQueryType": "QueryResult.for_failure(FailureReason.UNKNOWN_QUERY_TYPE, message)",
        "notUpToBound": "QueryResult.for_failure(FailureReason.NOT_UP_TO_BOUND, message)",
        "setPosition": "position = ...",
    },
    "Position": {
        "copy": f"{NOTHING}a Position does not change",
        "emptyPosition": "Position()",
        "fromMap": "Position({topic: {partition: offset}})",
        "getPartitionPositions": "offsets[topic]",
        "getTopics": "offsets.keys()",
        "isEmpty": "not offsets",
    },
    "PositionBound": {"isUnbounded": "bound == PositionBound.unbounded()"},
    "StreamsConfig": {
        "METADATA_MAX_AGE_CONFIG": '"metadata.max.age.ms"',
        "METRIC_REPORTER_CLASSES_CONFIG": '"metric.reporters"',
        "RECEIVE_BUFFER_CONFIG": '"receive.buffer.bytes"',
        "SEND_BUFFER_CONFIG": '"send.buffer.bytes"',
        "WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG": '"windowstore.changelog.additional.retention.ms"',
        "WINDOWED_INNER_CLASS_SERDE": '"windowed.inner.class.serde"',
        "AT_LEAST_ONCE": '"at_least_once"',
        "EXACTLY_ONCE_V2": '"exactly_once_v2"',
        "EXACTLY_ONCE": '"exactly_once_v2"',
        "OPTIMIZE": '"all"',
        "NO_OPTIMIZATION": '"none"',
        "REUSE_KTABLE_SOURCE_TOPICS": '"reuse.ktable.source.topics"',
        "MERGE_REPARTITION_TOPICS": '"merge.repartition.topics"',
        "SINGLE_STORE_SELF_JOIN": '"single.store.self.join"',
        "ROCKS_DB": '"rocksDB"',
        "IN_MEMORY": '"in_memory"',
        "METRICS_LATEST": '"latest"',
        "consumerPrefix": '"consumer." + name',
        "mainConsumerPrefix": '"main.consumer." + name',
        "restoreConsumerPrefix": '"restore.consumer." + name',
        "globalConsumerPrefix": '"global.consumer." + name',
        "producerPrefix": '"producer." + name',
        "adminClientPrefix": '"admin." + name',
        "topicPrefix": '"topic." + name',
        "clientTagPrefix": '"client.tag." + name',
    },
}

CLASSES: dict[str, str] = {
    "AutoOffsetReset": 'a text: Consumed(offset_reset="earliest")',
    "EmitStrategy": 'a text: emit_strategy("on_window_close")',
    "KeyValue": "a tuple: (key, value)",
    "Properties": "a dict",
    "Duration": 'a text as "1 minute", a timedelta, or milliseconds',
    "PunctuationType": 'a text: "stream_time" or "wall_clock_time"',
    "WindowedSerdes": "Serdes.time_windowed(inner, size) and Serdes.session_windowed(inner)",
    "StoreBuilder": "what Stores.key_value(name) and the like make",
    "ForeachAction": "any function",
    "KeyValueMapper": "any function",
    "Predicate": "any function",
    "ProcessorSupplier": "the class of the processor, or a function that makes one",
    "ValueJoiner": "any function",
    "ValueMapper": "any function",
    "Initializer": "any function without arguments, or the value itself",
    "TimestampExtractor": "any function of (record, partition_time_ms)",
    "StreamPartitioner": "any function of (topic, key, value, partitions)",
}
CLASSES |= dict.fromkeys(("TestInputTopic", "TestOutputTopic", "TestRecord"), "in penstock.testing")
CLASSES |= dict.fromkeys(
    (
        "FailureReason", "KeyQuery", "MultiVersionedKeyQuery", "Position", "PositionBound", "QueryResult",
        "QueryableStoreTypes", "RangeQuery", "StateQueryRequest", "StateQueryResult", "StoreQueryParameters",
        "TimestampedKeyQuery", "TimestampedRangeQuery", "VersionedKeyQuery", "WindowKeyQuery", "WindowRangeQuery",
    ),
    "in penstock.query",
)  # fmt: skip
