"""Names that users of Kafka Streams, pandas, Polars, Spark, ksqlDB, Flink or Faust guess -> what to write.

Entries that begin with ``;`` go on after "KStream has no count". Each fluent class says the way to the verbs of the
others. Those of `KStream` are taken from that class, with one sentence for all (`STREAM_VERBS`), unless the table has
one for a verb; those of the others are in the tables.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.java_names.kafka_streams import NOTHING

__all__ = ["GUESSED_CLASSES", "GUESSES", "STREAM_VERBS"]

_TABLE = ("queryable_store_name", "suppress", "to_stream", "transform_values")
_AGGREGATIONS = ("aggregate", "count", "reduce")
_BRANCHES = ("branch", "default_branch", "no_default_branch")
_READS = ("all", "approximate_num_entries", "fetch", "get", "range")
_FOLDS = {
    "average": "mean", "avg": "mean", "count_distinct": "n_unique", "earliest": "first", "first": "first",
    "last": "last", "latest": "last", "max": "max", "mean": "mean", "min": "min", "n_unique": "n_unique",
    "nunique": "n_unique", "sum": "sum",
}  # fmt: skip
_LISTS = ("collect_list", "collect_set", "topk")
_SINKS = ("add_sink", "insert_into", "output", "produce", "send", "sink", "sink_to", "to_topic", "write", "write_to")
_NEW_KEYS = ("key_by", "key_on", "keyby", "set_key", "with_key")
_UNNESTED = ("explode", "flatten")
_UNIONS = ("combine", "concat", "union", "union_all")
_DISTINCT = ("deduplicate", "distinct", "drop_duplicates", "unique")
_SORTED = ("limit", "order_by", "orderby", "sort", "sort_by", "sort_values", "tail", "take")
_WINDOWS = {
    "hopping": 'windowed_by(TimeWindows.of("1 minute", advance="10 seconds"))',
    "session": 'windowed_by(SessionWindows.of("1 minute"))',
    "sliding": 'windowed_by(SlidingWindows.of("1 minute"))',
    "tumbling": 'windowed_by(TimeWindows.of("1 minute"))',
}
_WINDOWS |= {f"{name}_window": verb for name, verb in _WINDOWS.items()}
_WINDOWS |= dict.fromkeys(("resample", "rolling", "window", "window_by"), _WINDOWS["tumbling"])


def _each(names: Iterable[str], sentence: str) -> dict[str, str]:
    """Return the sentence for each of the names, with the name in place of ``{}``."""
    return {name: sentence.replace("{}", name) for name in names}


def _folds(grouped: str) -> dict[str, str]:
    """Return what stands for ``sum`` and the like behind the expression that groups."""
    folds = {name: f'{grouped}aggregate(agg.{ours}("field"))' for name, ours in _FOLDS.items()}
    return folds | _each(_LISTS, f"{grouped}aggregate(list, lambda key, value, items: ...)")


# Of rows, in the words of pandas, Polars and Spark.
_ROWS = {
    **_each(("query", "where"), "filter(...)"),
    **_each(("drop_nulls", "dropna"), 'filter(pl.col("field").is_not_null())'),
    **_each(("apply", "transform"), "map_values(...)"),
    **_each(("assign", "with_column", "with_columns"), 'map_values(pl.struct("a", total=pl.col("b") * 2))'),
    "select": 'map_values(pl.struct("a", "b"))',
    "drop": 'map_values(pl.struct("a", "b")), of the fields that stay',
    "rename": 'map_values(pl.struct(new=pl.col("old")))',
    **_each(("astype", "cast"), 'map_values(pl.struct(a=pl.col("a").cast(pl.Int64)))'),
    **_each(("fill_null", "fillna"), 'map_values(pl.struct(a=pl.col("a").fill_null(0)))'),
    "groupby": "group_by(...)",
}
_START = "KafkaStreams(builder.build(), config).run()"
_STREAM_NAMES = {
    **_ROWS,
    **_each((*_AGGREGATIONS, "cogroup", "windowed_by"), "; group first: .group_by_key().{}(...)"),
    "count": "; group first: .group_by_key().count()",
    **{name: f"; group first: .{verb}" for name, verb in _folds("group_by_key().").items()},
    **{name: f"; group first: .group_by_key().{verb}" for name, verb in _WINDOWS.items()},
    **_each(("agg", "fold", "scan"), "; group first: .group_by_key().aggregate(...)"),
    "emit_strategy": "; windows have it: .group_by_key().windowed_by(...).emit_strategy(...)",
    "suppress": "; tables have it: .group_by_key().windowed_by(...).count().suppress(...)",
    "transform_values": "process_values(...)",
    "queryable_store_name": "; tables have it: .to_table(...)",
    **_each(_BRANCHES, "; split first: .split().branch(...).{}()"),
    "branch": "; split first: .split().branch(...).default_branch()",
    **_each(_READS, "; tables have rows: .to_table(\"name\"), which app.store(\"name\").{}(...) reads"),
    "to_stream": "the stream itself",
    **_each(_UNNESTED, "flat_map_values(...)"),
    **_each(_UNIONS, "merge(...)"),
    **_each(_NEW_KEYS, "select_key(...)"),
    "partition_by": "select_key(...); the next grouping or join repartitions",
    **_each(_SINKS, "to(...)"),
    "write_stream": "to(...), or to_dataframe(...) for Spark",
    "foreach_batch": "foreach(...), or to_dataframe(...) for Spark",
    **_each(("for_each", "subscribe"), "foreach(...)"),
    **_each(("inspect", "tap"), "peek(...)"),
    **_each(("head", "show"), "peek(print)"),
    **_each(("collect", "to_pandas"), "penstock.testing.try_out(...) in a test, or to_dataframe(...)"),
    "items": "map(lambda key, value: ...)",
    "events": "process(...), whose records have timestamp and headers",
    "process_function": "process(...)",
    **_each(("async_map", "map_parallel"), "map_values_async(...)"),
    **_each(
        _DISTINCT,
        "group_by_key().reduce(lambda first, later: first), or process(...) with a store",
    ),
    "interval_join": "join(other, joiner, JoinWindows.of(...))",
    "with_watermark": "grace= of the windows",
    **_each(_SORTED, f"{NOTHING}a stream has no end; a window, or the rows of a table, can be sorted"),
    **_each(("cache", "persist"), f"{NOTHING}all verbs of a stream read it once"),
    **_each(("run", "start"), _START),
}  # fmt: skip

_NEW_KEY = ".group_by(lambda key, value: (new_key, value))"
_IN_STREAM = "; streams have it: .to_stream().{}(...)"
_TABLE_NAMES = {
    **{name: verb for name, verb in _STREAM_NAMES.items() if name not in {*_TABLE, *_READS}},
    "windowed_by": "; grouped streams have it: .to_stream().group_by_key().windowed_by(...)",
    **_each(_UNNESTED, "; streams have it: .to_stream().flat_map_values(...)"),
    **_each((*_NEW_KEYS, "partition_by"), "; streams have it: .to_stream(new_key)"),
    **_each(_SINKS, "; streams have it: .to_stream().to(...)"),
    "write_stream": "; streams have it: .to_stream().to(...), or .to_stream().to_dataframe(...) for Spark",
    "foreach_batch": "; streams have it: .to_stream().foreach(...)",
    **_each(("for_each", "subscribe"), "; streams have it: .to_stream().foreach(...)"),
    **_each(("inspect", "tap"), "; streams have it: .to_stream().peek(...)"),
    **_each(("head", "show"), "; streams have it: .to_stream().peek(print)"),
    **_each(_UNIONS, "outer_join(...), or .to_stream().merge(...)"),
    **_each(("events", "process_function"), "; streams have it: .to_stream().process(...)"),
    "items": "; streams have it: .to_stream().map(lambda key, value: ...)",
    **_each(("async_map", "map_parallel"), "; streams have it: .to_stream().map_values_async(...)"),
    "interval_join": "join(other, joiner)",
    "collect": 'app.store("name").all(), for a table with a named store',
    "to_pandas": 'app.store("name").all(), for a table with a named store',
    **_each(_READS, '; a running application reads it, if its store has a name: app.store("name").{}(...)'),
    **_each(("aggregate", "reduce"), f"; group first: {_NEW_KEY}.{{}}(...)"),
    "cogroup": "; grouped streams have it: .to_stream().group_by_key().cogroup(...)",
    **_each(("agg", "fold", "scan"), f"; group first: {_NEW_KEY}.aggregate(...)"),
    "count": f"; group first: {_NEW_KEY}.count()",
    "group_by_key": "group_by(lambda key, value: (new_key, value)), or to_stream().group_by_key()",
    **_each((*_FOLDS, *_LISTS), f"; group first: {_NEW_KEY}.aggregate(initializer, adder, subtractor)"),
    **{name: f"; grouped streams have it: .to_stream().group_by_key().{verb}" for name, verb in _WINDOWS.items()},
    "emit_strategy": "; windows have it: .to_stream().group_by_key().windowed_by(...).emit_strategy(...)",
    **_each(_BRANCHES, "; streams have it: .to_stream().split().branch(...).{}()"),
    "branch": "; streams have it: .to_stream().split().branch(...).default_branch()",
    "to_table": "the table itself",
    "to_dataframe": "; streams have it: .to_stream().to_dataframe(...), or app.to_dataframe(topic) of its topic",
    **_each(_DISTINCT, "the table itself: it has one row for each key"),
    **_each(_SORTED, f'{NOTHING}a table changes; sort the rows of app.store("name").all()'),
}  # fmt: skip

_GROUPED_ALREADY = "; the records are grouped already; each further grouping begins at the stream or table"
_GROUP_LATER = "; streams have it: .{}(...) before the grouping, or .count().to_stream().{}(...) after it"
_OF_RESULT = "; tables have it, so aggregate first: .count().{}(...)"
_READ = '; aggregate first, with a named store: .count("name"), which app.store("name").{}(...) reads'
_WINDOWED_NAMES = {
    **_each(("group_by", "group_by_key"), _GROUPED_ALREADY),
    **_each((*_TABLE, *_BRANCHES), _OF_RESULT),
    **_each(_BRANCHES, "; streams have it: .count().to_stream().split().branch(...).{}()"),
    "queryable_store_name": "; tables have it, so aggregate first: .count(\"name\").queryable_store_name",
    "to_stream": "; tables have it, so aggregate first: .count().to_stream()",
    **_each(_READS, _READ),
    **_each(("agg", "apply", "fold", "scan"), "aggregate(...)"),
    "size": "count()",
    **_folds(""),
    "having": "filter(...) of the table: .count().filter(lambda count: count > 1)",
    "where": "; streams have it: .filter(...) before the grouping",
    "cogroup": "; it stands before the windows: .group_by_key().cogroup(...).windowed_by(...)",
    "windowed_by": "; the records are windowed already; give each windowed_by() its own grouped stream",
    "final": 'emit_strategy("on_window_close")',
    "emit": 'emit_strategy("on_window_update")',
    "grace": "TimeWindows.of(size, grace=...)",
}  # fmt: skip
_GROUPED_NAMES = {
    **{name: verb for name, verb in _WINDOWED_NAMES.items() if name not in {"cogroup", "windowed_by", "final", "emit"}},
    **_WINDOWS,
    "emit_strategy": "; windows have it: .windowed_by(...).emit_strategy(...)",
    "grace": "windowed_by(TimeWindows.of(size, grace=...))",
}
_BEFORE_COGROUP = "; streams have it: .{}(...) before the grouping, or .aggregate(...).to_stream().{}(...) after it"


def _folds_of_cogroups(windowing: str) -> dict[str, str]:
    """Return what stands for ``count``, ``sum`` and the like where several streams are aggregated together."""
    functions = {"count": "agg.count()", "reduce": "function"}
    for name, ours in _FOLDS.items():
        has_result = ours in {"mean", "n_unique"}  # one that is not the aggregate itself: refused in a cogroup
        functions[name] = "lambda key, value, aggregate: ..." if has_result else f'agg.{ours}("field")'
    return {
        name: f"; each stream has its function: .cogroup(grouped, {function}){windowing} and aggregate() at the end"
        for name, function in functions.items()
    }


_WINDOWED_COGROUPED_NAMES = {
    **_each(("group_by", "group_by_key"), _GROUPED_ALREADY),
    **_each(_TABLE, "; tables have it, so aggregate first: .aggregate(...).{}"),
    **_each(("suppress", "transform_values"), "; tables have it, so aggregate first: .aggregate(...).{}(...)"),
    "to_stream": "; tables have it, so aggregate first: .aggregate(...).to_stream()",
    **_each(_BRANCHES, "; streams have it: .aggregate(...).to_stream().split().branch(...).{}()"),
    **_folds_of_cogroups(", before windowed_by(),"),
    **_each(_READS, _READ.replace(".count(", ".aggregate(initializer, ")),
    "emit_strategy": f"{NOTHING}Java has none either; suppress() of the table sends final results",
    "cogroup": "; it stands before windowed_by()",
    "windowed_by": "; the streams are windowed already",
}  # fmt: skip
_COGROUPED_NAMES = {
    **{name: verb for name, verb in _WINDOWED_COGROUPED_NAMES.items() if name not in {"cogroup", "windowed_by"}},
    **_folds_of_cogroups(","),
    **_WINDOWS,
}
_GROUPED_TABLE_NAMES = {
    **{name: verb for name, verb in _WINDOWED_NAMES.items() if name not in {"final", "emit", "grace"}},
    **_each((*_FOLDS, *_LISTS), "aggregate(initializer, adder, subtractor)"),
    **_each(("group_by", "group_by_key"), _GROUPED_ALREADY),
    **_each(("cogroup", "windowed_by"), "; grouped streams have it: table.to_stream().group_by_key().{}(...)"),
    **{name: f"; grouped streams have it: table.to_stream().group_by_key().{verb}" for name, verb in _WINDOWS.items()},
    "emit_strategy": "; windows have it: table.to_stream().group_by_key().windowed_by(...).emit_strategy(...)",
}  # fmt: skip
_TAKE_A_BRANCH = '; take a branch first: .branch(..., name="-a").default_branch(), a dict of streams'
_BRANCHED_NAMES = {
    **_each((*_TABLE, *_AGGREGATIONS, "cogroup", "windowed_by", "emit_strategy"), _TAKE_A_BRANCH),
    **_each(("default", "otherwise"), "default_branch()"),
    **_each(("case", "filter", "when", "where"), "branch(predicate)"),
}
_ONLY_JOINED = (
    "; a global table is only joined with: stream.join(table, joiner, key=...). builder.table() reads one with verbs"
)
_GLOBAL_NAMES = {
    **_each((*_TABLE, *_AGGREGATIONS, *_BRANCHES, "cogroup", "windowed_by", "emit_strategy"), _ONLY_JOINED),
    **_each(_READS, '; a running application reads it, if its store has a name: app.store("name").{}(...)'),
}
del _GLOBAL_NAMES["queryable_store_name"]

_NEEDS_BUILDER = "; a StreamsBuilder has it: StreamsBuilder().{}(...)"
_SOURCES = ("add_global_store", "global_table", "sql", "stream", "stream_dataframe", "table")

GUESSES: dict[str, dict[str, str]] = {
    "BranchedKStream": _BRANCHED_NAMES,
    "CogroupedKStream": _COGROUPED_NAMES,
    "GlobalKTable": _GLOBAL_NAMES,
    "KGroupedStream": _GROUPED_NAMES,
    "KGroupedTable": _GROUPED_TABLE_NAMES,
    "KStream": _STREAM_NAMES,
    "KTable": _TABLE_NAMES,
    "SessionWindowedCogroupedKStream": _WINDOWED_COGROUPED_NAMES,
    "SessionWindowedKStream": _WINDOWED_NAMES,
    "TimeWindowedCogroupedKStream": _WINDOWED_COGROUPED_NAMES,
    "TimeWindowedKStream": _WINDOWED_NAMES,
    "StreamsBuilder": {
        **_each(
            ("add_stream", "create_stream", "from_source", "from_topic", "kstream", "read", "read_stream", "source",
             "topic"),
            "stream(topic)",
        ),
        **_each(("add_table", "create_table", "ktable", "read_table"), "table(topic)"),
        **_each(("create_dataframe", "dataframe", "from_dataframe"), 'stream_dataframe(df, name="...")'),
        "agent": "stream(topic).foreach(...)",
        **_each(("add_processor", "add_sink", "add_source"), "; a Topology has it: builder.build().{}(...)"),
        **_each(("add_store", "create_store", "state_store"), "add_state_store(Stores.key_value(...))"),
        **_each(("describe", "explain"), "; the built topology has it: builder.build().{}()"),
        "explain": "KafkaStreams(builder.build(), config).explain()",
        **_each(("close", "run", "start"), "; an application has it: KafkaStreams(builder.build(), config).{}()"),
        **_each(("create", "topology", "to_topology"), "build()"),
        **_each(_AGGREGATIONS, "; a grouped stream has it: .stream(topic).group_by_key().{}(...)"),
    },
    "Topology": {
        **_each(_SOURCES, _NEEDS_BUILDER),
        **_each(("close", "run", "start"), "; an application has it: KafkaStreams(topology, config).{}()"),
        "explain": "describe(), or KafkaStreams(topology, config).explain()",
        "build": "the topology itself",
        **_each(("connect", "connect_stores"), "connect_processor_and_state_stores(processor, store)"),
    },
    "KafkaStreams": {
        **_each(("shutdown", "stop"), "close()"),
        **_each(("await_termination", "join", "wait_for_termination"), "wait()"),
        **_each(("main", "run_forever"), "run()"),
        **_each(("get_store", "get_state_store", "state_store"), 'store("name")'),
        **_each(("is_running", "running", "status"), 'state, e.g. app.state == "RUNNING"'),
        **_each(_SOURCES, _NEEDS_BUILDER),
        **_each(("build", "describe"), "; the topology has it: topology.describe()"),
    },
    "TopologyTestDriver": {
        **_each(("pipe", "pipe_input", "produce", "put", "send"), 'input_topic("in").pipe(value, key)'),
        **_each(("consume", "poll", "read", "read_output"), 'output_topic("out").read_value()'),
        **_each(("get_store", "store"), 'get_state_store("name")'),
        **_each(("run", "start"), f"{NOTHING}records that are piped are processed at once"),
    },
    "TestInputTopic": {
        **_each(("produce", "put", "send", "write"), "pipe(value, key)"),
        **_each(("send_many", "write_many"), "pipe_many(values)"),
    },
    "TestOutputTopic": {
        **_each(("consume", "get", "pop", "read"), "read_value()"),
        **_each(("read_all", "to_list", "values"), "read_values_to_list()"),
    },
    "TimeWindows": {
        **_each(("hopping", "tumbling"), 'TimeWindows.of("1 minute", advance="10 seconds"), or without advance'),
        "session": 'SessionWindows.of("1 minute")',
        "sliding": 'SlidingWindows.of("1 minute")',
    },
    "JoinWindows": {"within": 'JoinWindows.of("1 minute")'},
    "Serdes": {
        "int": "Serdes.integer(), of 4 bytes, or Serdes.long(), of 8",
        "str": "Serdes.string()",
        "text": "Serdes.string()",
        "bool": "Serdes.boolean()",
        **_each(("dict", "map", "struct"), "Serdes.json()"),
        **_each(("none", "null"), "Serdes.void()"),
        "raw": "Serdes.bytes()",
        "pickle": f"{NOTHING}bytes of a topic must never run code; Serdes.json() or Serdes.auto() hold Python's values",
    },
    "Stores": {
        **_each(("in_memory", "memory"), "Stores.key_value(name, persistent=False)"),
        **_each(("kv", "keyvalue", "persistent"), "Stores.key_value(name)"),
    },
}  # fmt: skip

_BEFORE_OR_AFTER = "; tables have it, or streams: .{}(...) before the grouping, or .count().to_stream().{}(...)"

# Class -> what stands for each verb of `KStream` that it lacks and that is not in `GUESSES`.
STREAM_VERBS: dict[str, str] = {
    "BranchedKStream": _TAKE_A_BRANCH,
    "CogroupedKStream": _BEFORE_COGROUP,
    "GlobalKTable": _ONLY_JOINED,
    "KGroupedStream": _GROUP_LATER,
    "KGroupedTable": _BEFORE_OR_AFTER,
    "KTable": _IN_STREAM,
    "SessionWindowedCogroupedKStream": _BEFORE_COGROUP,
    "SessionWindowedKStream": _GROUP_LATER,
    "StreamsBuilder": "; a stream has it: .stream(topic).{}(...)",
    "TimeWindowedCogroupedKStream": _BEFORE_COGROUP,
    "TimeWindowedKStream": _GROUP_LATER,
}

GUESSED_CLASSES: dict[str, str] = {
    **_each(("App", "Application"), "KafkaStreams"),
    "Builder": "StreamsBuilder",
    **_each(("Stream", "StreamingDataFrame"), "KStream, from builder.stream(topic)"),
    "Table": "KTable, from builder.table(topic)",
    **_each(("HoppingWindows", "Tumbling", "TumblingWindows"), 'TimeWindows.of("1 minute")'),
}
