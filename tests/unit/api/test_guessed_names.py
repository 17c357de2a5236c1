"""A method that is guessed, or that another fluent class has, ends in the sentence that says what to write."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_java_names import ours

import penstock
import penstock.query
import penstock.testing
from penstock import KafkaStreams, Serdes, StreamsBuilder, TimeWindows, TopologyTestDriver, agg
from penstock.base.java_names import JAVA_NAMES
from penstock.base.java_names.guesses import GUESSES, STREAM_VERBS
from penstock.base.java_names.kafka_streams import NOTHING
from penstock.errors import NoSuchMethodError, TopologyError
from penstock.query import stores
from penstock.testing import MockProcessorContext, TestInputTopic, TestOutputTopic

FLUENT = {
    "BranchedKStream": "stream", "CogroupedKStream": "groups.grouped", "GlobalKTable": "table",
    "KGroupedStream": "groups.grouped", "KGroupedTable": "groups.grouped", "KStream": "stream", "KTable": "table",
    "SessionWindowedCogroupedKStream": "groups.grouped", "SessionWindowedKStream": "groups.grouped",
    "TimeWindowedCogroupedKStream": "groups.grouped", "TimeWindowedKStream": "groups.grouped",
}  # fmt: skip


def fluent(name: str) -> Any:
    return getattr(importlib.import_module(f"penstock.api.{FLUENT[name]}"), name)


def own(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and hasattr(kind, name)}


def message(kind: Any, name: str) -> str:
    with pytest.raises(NoSuchMethodError) as caught:
        getattr(kind, name)
    return caught.value.message


@pytest.mark.parametrize("here", FLUENT)
@pytest.mark.parametrize("there", FLUENT)
def test_a_verb_of_another_class_says_the_way_to_it(here: str, there: str) -> None:
    for name in own(fluent(there)) - own(fluent(here)):
        assert message(fluent(here), name).startswith(f"{here} has no {name}")


def test_what_is_guessed_most() -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("a"), builder.table("t")
    grouped = stream.group_by_key()
    windowed = grouped.windowed_by(TimeWindows.of("1 minute"))
    everywhere = builder.global_table("g")
    said = [
        (stream, "count", "KStream has no count; group first: .group_by_key().count()"),
        (stream, "sum", 'KStream has no sum; group first: .group_by_key().aggregate(agg.sum("field"))'),
        (stream, "windowed_by", "KStream has no windowed_by; group first: .group_by_key().windowed_by(...)"),
        (stream, "groupby", "KStream has no groupby: it is group_by(...) here"),
        (stream, "where", "KStream has no where: it is filter(...) here"),
        (stream, "withColumn", 'KStream has no withColumn: it is map_values(pl.struct("a", total=pl.col("b") * 2)) here'),
        (stream, "union", "KStream has no union: it is merge(...) here"),
        (stream, "limit", ("KStream has no limit, and there is no replacement: a stream has no end; a window, or the "
        "rows of a table, can be sorted")),
        (grouped, "sum", 'KGroupedStream has no sum: it is aggregate(agg.sum("field")) here'),
        (grouped, "avg", 'KGroupedStream has no avg: it is aggregate(agg.mean("field")) here'),
        (grouped, "tumbling", 'KGroupedStream has no tumbling: it is windowed_by(TimeWindows.of("1 minute")) here'),
        (grouped, "to_stream", "KGroupedStream has no to_stream; tables have it, so aggregate first: .count().to_stream()"),
        (windowed, "suppress", "TimeWindowedKStream has no suppress; tables have it, so aggregate first: .count().suppress(...)"),
        (table, "to", "KTable has no to; streams have it: .to_stream().to(...)"),
        (table, "count", "KTable has no count; group first: .group_by(lambda key, value: (new_key, value)).count()"),
        (table, "get", ("KTable has no get; a running application reads it, if its store has a name: "
        'app.store("name").get(...)')),
        (everywhere, "filter", ("GlobalKTable has no filter; a global table is only joined with: stream.join(table, joiner, "
        "key=...). builder.table() reads one with verbs")),
        (builder, "topic", "StreamsBuilder has no topic: it is stream(topic) here"),
        (builder, "run", "StreamsBuilder has no run; an application has it: KafkaStreams(builder.build(), config).run()"),
        (builder.build(), "stream", "Topology has no stream; a StreamsBuilder has it: StreamsBuilder().stream(...)"),
        (KafkaStreams, "stop", "KafkaStreams has no stop: it is close() here"),
        (TopologyTestDriver, "send", 'TopologyTestDriver has no send: it is input_topic("in").pipe(value, key) here'),
        (TestInputTopic, "put", "TestInputTopic has no put: it is pipe(value, key) here"),
        (TestOutputTopic, "read", "TestOutputTopic has no read: it is read_value() here"),
        (Serdes, "int", "Serdes has no int: it is Serdes.integer(), of 4 bytes, or Serdes.long(), of 8 here"),
    ]  # fmt: skip
    for thing, name, sentence in said:
        assert message(thing, name) == sentence


def test_the_error_is_an_attribute_error_and_one_of_the_topology() -> None:
    stream = StreamsBuilder().stream("a")
    assert not hasattr(stream, "count")
    assert "count" not in dir(stream)
    with pytest.raises(TopologyError, match="group first"):
        stream.count()


CLASSES: dict[str, Any] = {name: fluent(name) for name in FLUENT}
for module in (penstock, penstock.query, penstock.testing):
    CLASSES |= {name: kind for name in module.__all__ if inspect.isclass(kind := getattr(module, name))}
STORES = [getattr(stores, name) for name in stores.__all__ if name.startswith("ReadOnly") and name != "ReadOnlyStore"]
ROOTS = {
    "agg": agg, "app": KafkaStreams, "builder": StreamsBuilder, "penstock": penstock, "pl": pl,
    "stream": CLASSES["KStream"], "table": CLASSES["KTable"], "topology": penstock.Topology,
}  # fmt: skip


def calls(text: str) -> Iterator[tuple[bool, list[str]]]:
    """The chains of names in a text that call something, arguments included, and whether a chain begins with a point."""
    position = 0
    while start := re.compile(r"(?<![\w.])(\.?)([A-Za-z_]\w*)(?=[.(])").search(text, position):
        names, arguments, position = [start[2]], [], start.end()
        while True:
            if text[position : position + 1] == "(":
                depths = itertools.accumulate((c == "(") - (c == ")") for c in text[position:])
                end = position + next(at for at, depth in enumerate(depths) if depth == 0)
                arguments.append(text[position + 1 : end])
                position = end + 1
            following = re.compile(r"\.([A-Za-z_]\w*)").match(text, position)
            if following is None:
                break
            names.append(following[1])
            position = following.end()
        if arguments:
            yield bool(start[1]), names
            for argument in arguments:
                yield from calls(argument)


def has(kind: Any, name: str) -> bool:
    fields = getattr(kind, "__dataclass_fields__", ())
    return hasattr(kind, name) or name in fields or (kind in {KafkaStreams, MockProcessorContext} and name == "config")


def returned(kind: Any, name: str) -> list[Any]:
    """The classes of the project that a method may return; none: it is of another library, or not annotated."""
    if kind is KafkaStreams and name == "store":
        return STORES
    method = inspect.getattr_static(kind, name, None)
    method = method.fget if isinstance(method, property) else getattr(method, "__func__", method)
    annotation = getattr(method, "__annotations__", {}).get("return", "")
    if "Self" in annotation:
        return [kind]
    if annotation.startswith("dict["):
        return [dict]
    return [CLASSES[name] for name in re.findall(r"\w+", annotation) if name in CLASSES]


def is_way(kinds: list[Any], names: list[str]) -> bool:
    """Whether one can go from one of the classes through the names, each a method of what the one before returns."""
    for name in names:
        kinds = [kind for kind in kinds if has(kind, name)]
        if not kinds:
            return False
        if inspect.ismodule(kinds[0]):
            return True
        kinds = [later for kind in kinds for later in returned(kind, name)]
        if not kinds:
            return True
    return True


def is_there(owner: Any, sentence: str, number: int, *, dotted: bool, names: list[str]) -> bool:
    """Whether what a sentence calls is there; ``number`` counts its calls."""
    first = names[0]
    if first in ROOTS:
        return is_way([ROOTS[first]], names[1:])
    if first in CLASSES or first == owner.__name__:
        return is_way([CLASSES.get(first, owner)], names[1:])
    if dotted:
        earlier = "before" in sentence or "each stream" in sentence
        return is_way([owner], names) or (
            earlier and any(is_way([CLASSES[kind]], names) for kind in ("CogroupedKStream", "KStream", "KTable"))
        )
    if number == 0 and not sentence.startswith((";", NOTHING)):
        return is_way([owner], names) or hasattr(builtins, first)
    return hasattr(builtins, first) or any(is_way([kind], names) for kind in (owner, *CLASSES.values()))


SENTENCES = [
    (kind, name, sentence)
    for table in (GUESSES, JAVA_NAMES)
    for kind, sentences in table.items()
    for name, sentence in sentences.items()
]
SENTENCES += [
    (kind, verb, sentence.replace("{}", verb))
    for kind, sentence in STREAM_VERBS.items()
    for verb in sorted(own(fluent("KStream")))
    if verb not in GUESSES[kind] and verb not in own(CLASSES.get(kind) or ours(kind))
]


@pytest.mark.parametrize("kind", sorted({kind for kind, _, _ in SENTENCES}))
def test_each_sentence_names_methods_that_are_there(kind: str) -> None:
    """From the class of the name, or from the class before it; ``.group_by(...).count()`` is followed step by step."""
    owner = CLASSES.get(kind) or ours(kind)
    for name, sentence in [(name, sentence) for of, name, sentence in SENTENCES if of == kind]:
        for number, (dotted, names) in enumerate(calls(sentence)):
            assert is_there(owner, sentence, number, dotted=dotted, names=names), f"{kind}.{name}: {sentence}"


def test_a_way_that_ends_early_is_seen() -> None:
    table = CLASSES["KTable"]
    wrong = "; group first: .group_by(lambda key, value: (key, value)).cogroup(...)"
    ((dotted, names), *_) = calls(wrong)
    assert names == ["group_by", "cogroup"]
    assert not is_there(table, wrong, 0, dotted=dotted, names=names)


def test_methods_in_hints_of_errors_are_there() -> None:
    """Each ``name(`` in a hint of the sources is a function, a method or a class of them, of Polars or of Python."""
    sources = [file.read_text("utf-8") for file in Path(penstock.__file__).parent.rglob("*.py")]
    there = {name for source in sources for name in re.findall(r"\b(?:def|class) (\w+)", source)}
    there |= {*dir(builtins), *dir(pl), *dir(pl.Expr), "then", "otherwise", "withColumn", "master"}
    nodes = [node for source in sources if "hint=" in source for node in ast.walk(ast.parse(source))]
    hints = [one.value for node in nodes if isinstance(node, ast.Call) for one in node.keywords if one.arg == "hint"]
    texts = [
        node.value
        for hint in hints
        for node in ast.walk(hint)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert len(texts) > 500
    called = {name for text in texts for name in re.findall(r"\b([a-z_]\w+)\(", text)}
    assert "map_values" in called
    assert called - there == set()


def test_what_the_sentences_propose_runs() -> None:
    from penstock.testing import try_out

    rows = [("k", {"a": 1, "b": 2}), ("k", {"a": 3, "b": 4})]
    assert try_out(lambda s: s.map_values(pl.struct("a", total=pl.col("b") * 2)), rows)[1] == (
        "k",
        {"a": 3, "total": 8},
    )
    assert try_out(lambda s: s.map_values(pl.struct(new=pl.col("b"))), rows)[0] == ("k", {"new": 2})
    assert try_out(lambda s: s.map_values(pl.struct(a=pl.col("a").fill_null(0))), [("k", {"a": None})]) == [
        ("k", {"a": 0})
    ]
    kept = try_out(lambda s: s.group_by_key().reduce(lambda first, later: first), rows)
    assert kept[-1] == ("k", {"a": 1, "b": 2})
    lists = try_out(lambda s: s.group_by_key().aggregate(list, lambda key, value, items: [*items, value["a"]]), rows)
    assert lists[-1] == ("k", [1, 3])
    regrouped = try_out(lambda s: s.to_table().group_by(lambda key, value: ("new", value)).count(), rows)
    assert regrouped[-1] == ("new", 1)
