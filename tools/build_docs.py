"""Write the generated pages of docs/: the settings, the command, errors, and the agreement with Kafka Streams.

    python tools/build_docs.py [--check] [--results FILE]

``--check`` writes nothing and exits with 1 if a page is not current. ``--results`` takes what
``tests/conformance/run.py --json FILE`` wrote; without it the recorded cases run first, which takes some seconds.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from connector_pages import connector_pages

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import sql_reference  # noqa: E402

DOCS = ROOT / "docs"
CONFORMANCE = ROOT / "tests" / "conformance"
ARCHIVE = CONFORMANCE / "cases.tar.xz"
JAVA_CLASSES = Path(__file__).with_name("java_classes.txt")
NOTE = "<!-- Written by tools/build_docs.py: change that, or what it reads. -->"

# How many cases of each family were recorded from the Java library; the archive holds those that pass.
RECORDED = {
    "01-stateless": 39,
    "02-aggregate": 63,
    "03-windows": 54,
    "04-suppress": 30,
    "05-stream-joins": 54,
    "06-table-joins": 67,
    "07-tables": 48,
    "08-processors": 66,
    "09-documentation": 9,
    "10-versioned-stores": 22,
    "fuzz": 152,
}

# An operator (see `uses_of`), Java's name, ours. Without a passing case it counts as not built.
OPERATORS = {
    "KStream": (
        ("stream", "stream", "stream"),
        ("filter", "filter", "filter"),
        ("filterNot", "filterNot", "filter_not"),
        ("map", "map", "map"),
        ("mapValues", "mapValues", "map_values"),
        ("flatMap", "flatMap", "flat_map"),
        ("flatMapValues", "flatMapValues", "flat_map_values"),
        ("selectKey", "selectKey", "select_key"),
        ("peek", "peek", "peek"),
        ("foreach", "foreach", "foreach"),
        ("merge", "merge", "merge"),
        ("split", "split, branch", "split, branch"),
        ("repartition", "repartition", "repartition"),
        ("to", "to", "to"),
        ("toTable", "toTable", "to_table"),
        ("join:stream-table", "join, leftJoin with a table", "join, left_join"),
        ("join:stream-global", "join, leftJoin with a global table", "join, left_join with key="),
        ("join:stream-stream", "join, leftJoin, outerJoin with a stream", "join, left_join, outer_join"),
        ("process", "process", "process"),
        ("processValues", "processValues", "process_values"),
        ("transformValues", "transformValues (of tables)", "transform_values"),
    ),
    "Grouping and windows": (
        ("groupByKey", "groupByKey", "group_by_key"),
        ("groupBy", "groupBy (streams and tables)", "group_by"),
        ("count", "count", "count"),
        ("reduce", "reduce", "reduce"),
        ("aggregate", "aggregate", "aggregate"),
        ("windowedBy:tumbling", "tumbling windows", "TimeWindows.of(size)"),
        ("windowedBy:hopping", "hopping windows", "TimeWindows.of(size).advance_by(advance)"),
        ("windowedBy:unlimited", "unlimited windows", "UnlimitedWindows.of()"),
        ("windowedBy:sliding", "sliding windows", "SlidingWindows.of(time_difference)"),
        ("windowedBy:session", "session windows", "SessionWindows.of(gap)"),
        ("cogroup", "cogroup", "cogroup"),
        ("suppress", "suppress", "suppress"),
    ),
    "KTable": (
        ("table", "table", "table"),
        ("toStream", "toStream", "to_stream"),
        ("globalTable", "globalTable", "global_table"),
        ("join:table-table", "join, leftJoin, outerJoin of tables", "join, left_join, outer_join"),
        ("fkJoin", "foreign-key join, leftJoin", "join(foreign_key=...), left_join(foreign_key=...)"),
    ),
    "Processor API and stores": (
        ("store:key_value", "key-value store", "Stores.key_value"),
        ("store:timestamped", "timestamped key-value store", "Stores.timestamped"),
        ("store:window", "window store", "Stores.window"),
        ("store:session", "session store", "Stores.session"),
        ("store:lru", "LRU store", "Stores.lru"),
        ("store:versioned", "versioned store", "Stores.versioned"),
        ("versioned table", "versioned table", "Materialized(history=...)"),
        (
            "source",
            "Topology without the DSL: addSource, addProcessor, addSink",
            "Topology.add_source, add_processor, add_sink",
        ),
        ("connect", "connectProcessorAndStateStores", "Topology.connect_processor_and_state_stores"),
        ("addGlobalStore", "addGlobalStore", "add_global_store"),
        ("addReadOnlyStateStore", "addReadOnlyStateStore", "Topology.add_read_only_state_store"),
        ("topology.optimization", "topology.optimization", "build({'topology.optimization': 'all'})"),
    ),
}


def markdown(rows: Iterable[Iterable[object]], *heads: str) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    lines += [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


def configuration() -> str:
    """docs/reference/configuration.md."""
    from penstock.config.definitions import ALIASES, CONFIG_DEFS, IN_MICRO_BATCHES, PREFIXES, REFUSED

    parts = [
        "# Configuration",
        NOTE,
        (
            "Settings keep Kafka's dotted names. Give them to `KafkaStreams` or `TopologyTestDriver` as a mapping, or"
            " to `penstock run` with `--config KEY=VALUE` or `--config-file`. A wrong name or value is refused, with"
            ' the nearest right name. Durations are milliseconds, text (`"1 minute"`, `"PT1M"`) or `timedelta`; sizes'
            ' are bytes or text (`"10 MB"`).'
        ),
    ]
    groups: dict[str, list[Any]] = {}
    for definition in CONFIG_DEFS.values():
        groups.setdefault(definition.group, []).append(definition)
    for group, members in groups.items():
        parts.append(f"## {group}")
        if not members[0].effect:
            parts.append(
                "Settings of Kafka Streams that are accepted, so that a config can be shared, and do nothing. An"
                " application that is given one says so in a warning when it starts:"
            )
            parts.append(", ".join(f"`{d.name}`" for d in members) + ".")
            continue
        parts.append(
            markdown(
                [(f"`{d.name}`", d.kind.name, _default(d.default), d.doc) for d in members],
                "setting",
                "type",
                "default",
                "meaning",
            )
        )
    parts += [
        "## Refused",
        "Settings of Kafka Streams that would change results and are not supported:",
        markdown(
            [(f"`{n}`", f"{r.reason}. {r.instead}") for n, r in {**IN_MICRO_BATCHES, **REFUSED}.items()],
            "setting",
            "why, and what instead",
        ),
        "## Prefixes",
        "Settings with one of these prefixes go to that part. `spark.`, `topic.` and those of clients have an effect.",
    ]
    parts.append(markdown([(f"`{prefix}`", goes) for prefix, goes in PREFIXES.items()], "prefix", "for"))
    parts += ["## Older names", markdown([(f"`{old}`", f"`{new}`") for old, new in ALIASES.items()], "name", "means")]
    return "\n\n".join(parts) + "\n"


def _default(value: Any) -> str:
    if value is None or value in {"", ()}:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def command() -> str:
    """docs/reference/cli.md."""
    from typer.main import get_command

    from penstock.cli.main import app

    parts = [
        "# The `penstock` command",
        NOTE,
        (
            "Exit code 0 means that all went well. An error is one message and what to do about it; `penstock --debug`"
            " adds the stack trace. The log is chosen with `-b` or `PENSTOCK_BOOTSTRAP_SERVERS`."
        ),
    ]
    for path, found in commands(get_command(app), ("penstock",)):
        arguments = [p for p in found.params if p.param_type_name == "argument"]
        options = [p for p in found.params if p.param_type_name == "option" and not p.hidden and p.name != "help"]
        words = " ".join([*path, *(f"<{(p.metavar or p.name).strip('{}')}>" for p in arguments)])
        parts += [f"## `{words}`", _plain(found.help or "")]
        rows = [(", ".join(f"`{o}`" for o in (*p.opts, *p.secondary_opts)), _plain(p.help or "")) for p in options]
        if rows:
            parts.append(markdown(rows, "option", "meaning"))
    return "\n\n".join(parts) + "\n"


def commands(found: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands of a group and of its groups, each with the words that call it."""
    for name, inner in sorted(getattr(found, "commands", {}).items()):
        if not inner.hidden:
            yield from commands(inner, (*path, name))
    if not hasattr(found, "commands"):
        yield path, found


def picture() -> str:
    """docs/pictures/word-count.svg: the topology of docs/how-it-works.md, drawn by Penstock."""
    code = re.search(r"```python\n(.*?)print", (DOCS / "how-it-works.md").read_text(), re.DOTALL)
    assert code is not None, "docs/how-it-works.md builds no topology"
    names: dict[str, Any] = {}
    exec(code[1], names)
    drawn: str = names["builder"].build().describe().to_svg()
    return drawn + "\n"


def errors() -> str:
    """docs/reference/errors.md."""
    from penstock import errors as module

    tree = inspect.cleandoc(module.__doc__ or "").split("\n\n")[1]
    parts = [
        "# Errors",
        NOTE,
        (
            "Every error is a `PenstockError`. Its message ends with a hint; the facts that it names (topic, partition,"
            " offset, task, ...) are attributes, and `docs` is the address of its part of this page, which the"
            " `penstock` command prints."
        ),
        f"```text\n{textwrap.dedent(tree)}\n```",
    ]
    for name, kind in _by_tree(module, tree):
        base = ", ".join(f"`{b.__name__}`" for b in kind.__bases__ if b is not Exception)
        text = inspect.cleandoc(kind.__doc__ or "").partition("\n\nArgs:")[0].replace("``", "`")
        first, *rest = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
        parts += [f"## {name}", f"{first} A kind of {base}." if base else first]
        rest = [re.sub(r"^(Cause|Remedy):", r"**\1:**", paragraph) for paragraph in rest]
        parts += [re.sub(r"\bdocs/([\w/-]+\.md)", r"[docs/\1](../\1)", paragraph) for paragraph in rest]
    return "\n\n".join(parts) + "\n"


def _by_tree(module: Any, tree: str) -> Iterator[tuple[str, type]]:
    """The classes of errors in the order of the tree that the module draws, which has all of them."""
    names = re.findall(r"\w+Error", tree)
    if sorted(names) != sorted(module.__all__):
        raise SystemExit(f"the tree of penstock.errors differs from __all__: {set(names) ^ set(module.__all__)}")
    yield from ((name, getattr(module, name)) for name in names)


def _plain(text: str) -> str:
    return " ".join(text.split())


def uses_of(case: dict[str, Any]) -> set[str]:
    """Return the operators that a recorded case uses, by the names of OPERATORS."""
    nodes = {n["id"]: n for n in case["topology"] if "id" in n}
    for n in case["topology"]:
        if n["op"] == "split":
            nodes |= dict.fromkeys([b["id"] for b in [*n["branches"], *filter(None, [n.get("default")])]], n)
    used = {name for name in ("topology.optimization",) if name in case["config"]}
    for n in case["topology"]:
        match n["op"]:
            case "windowedBy":
                used.add(f"windowedBy:{n['window']['type']}")
            case "addStateStore":
                used.add(f"store:{n['type']}")
            case "join":
                sides = [_kind(nodes, source) for source in n["in"]]
                used.add(f"join:{sides[0]}-{sides[1]}")
            case op:
                used.add(op)
                if "versioned_history_ms" in n:
                    used.add("versioned table")
    return used


def _kind(nodes: dict[str, Any], name: str) -> str:
    """Whether a node of a case is a stream or a table."""
    n = nodes[name.partition(".")[0]] if name not in nodes else nodes[name]
    match n["op"]:
        case "globalTable":
            return "global"
        case "table" | "toTable" | "count" | "reduce" | "aggregate" | "cogroup" | "suppress" | "fkJoin":
            return "table"
        case "filter" | "filterNot" | "mapValues" | "transformValues":
            return _kind(nodes, n["in"])
        case "join":
            return _kind(nodes, n["in"][0])
    return "stream"


def run_cases() -> dict[str, Any]:
    """The result of every vendored case."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        script = [sys.executable, str(CONFORMANCE / "run.py"), str(ARCHIVE), "--json", str(results)]
        subprocess.run(script, check=False, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(results.read_text())
        return found


def parity(results: dict[str, Any]) -> str:
    """Return the text of docs/parity.md."""
    sys.path.insert(0, str(CONFORMANCE))
    from run import load

    families: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    for case in load(ARCHIVE):
        if results.get(case["file"], {}).get("passed"):
            families[case["family"]] += 1
            uses.update(uses_of(case))
    parts = [
        "# Parity with Kafka Streams",
        NOTE,
        (
            f"{sum(RECORDED.values())} cases were recorded from Kafka Streams 4.3.1: a topology, its inputs, and the"
            " outputs of the Java library. A case passes when outputs, stores and dropped records are the same, and"
            " so is the text of `describe()`. Passing cases are kept in the repository and run in `make test`, record"
            " by record and in random batches. So are 830 cases of what is new up to 4.4.0: exception handlers with"
            " dead letters, headers in stores, queries, and the rest (`tests/conformance/README.md` says what runs"
            " where). The broker and the programs in Java that tests run are of 4.4.0, too."
        ),
        "## By family",
    ]
    rows: list[tuple[object, ...]] = [(f, families[f], total) for f, total in RECORDED.items()]
    rows.append(("**all**", sum(families.values()), sum(RECORDED.values())))
    parts.append(markdown(rows, "family", "pass", "recorded"))
    for title, operators in OPERATORS.items():
        parts += [
            f"## {title}",
            markdown(
                [(java, _ours(ours, uses[key]), uses[key] or "") for key, java, ours in operators],
                "Kafka Streams",
                "Penstock",
                "passing cases",
            ),
        ]
    parts += [
        "## Outside the recorded cases",
        markdown(
            [
                ("Kafka as the log", "`tests/integration/test_kafka_log.py`, `tests/faults/test_kafka_faults.py`"),
                (
                    "changelog topics",
                    "built; compared with Kafka Streams' own records; random states are rebuilt from them",
                ),
                (
                    "stores with headers, `dsl.store.format`",
                    (
                        "`Stores.timestamped_with_headers`, `window_with_headers`, `session_with_headers`; compared "
                        "with cases recorded from 4.4.0, changelogs byte by byte"
                    ),
                ),
                (
                    "serdes with headers (`Serializer.serialize(topic, headers, data)`)",
                    (
                        "an object whose `serialize` and `deserialize` take topic, headers and data; compared with "
                        "recorded cases in every operator. Hopping and sliding windows in the default format add to "
                        "the headers of a record once for all of its windows, not window by window"
                    ),
                ),
                (
                    "interactive queries, versions 1 and 2",
                    (
                        "built: of committed state, in the process and over HTTP; answers, failures, positions and "
                        "isolation levels are compared with cases recorded from 4.4.0; tests kill the driver and go on "
                        "querying"
                    ),
                ),
                (
                    "standby replicas",
                    "`num.standby.replicas` in continuous mode; else a machine that hosted a task keeps its replica",
                ),
                (
                    "exactly once",
                    "built, on both logs; tests kill the process at each step, the broker, executors and workers",
                ),
                (
                    "consumer groups, kafka-consumer-groups, kafka-streams-application-reset",
                    (
                        "`penstock groups`, `penstock app reset`; `tests/integration/test_kafka_clients.py`, "
                        "`tests/integration/test_moved_offsets.py`"
                    ),
                ),
                (
                    "SASL/PLAIN, SCRAM-SHA-512, mTLS, ACLs",
                    "`tests/integration/test_security.py`, against a broker with ACLs",
                ),
                (
                    "the same topics as a Kafka Streams program in Java",
                    "`tests/integration/test_java_interop.py`: windowed keys, partitions, a hand-over with state",
                ),
                (
                    "metrics",
                    (
                        "groups, names, tags and levels of Kafka Streams, those of what does not exist here left out; "
                        "totals are compared over the recorded cases"
                    ),
                ),
                ("exception handlers, dead letter topic", "built"),
                (
                    "Avro, Protobuf, JSON Schema, schema registry",
                    "built; tests read and write with confluent-kafka's serializers",
                ),
            ],
            "feature",
            "state",
        ),
    ]
    rows = java_classes()
    count = sum(len(names.split(", ")) for names, _, _ in rows)
    parts += [
        "## Class by class",
        f"The {count} public classes of Kafka Streams 4.4.0 and its test-utils, below `org.apache.kafka.streams`.",
        markdown(rows, "Kafka Streams", "state", "here, or why not"),
        "## Beyond Kafka Streams",
        markdown(
            [
                ("calls of coroutine functions, many at once", "`map_async`, `map_values_async`"),
                ("functions that work on whole batches", "Polars expressions in place of functions, `agg`"),
                ("streaming DataFrames in and out", "`stream_dataframe`, `to_dataframe`"),
                ("results in a table or a database, by a sink connector beside the application", "`KStream.sink_to`"),
                ("key-value stores with a time to live", "`Stores.key_value(name, ttl=...)`"),
                ("windows that close on an idle stream", "`emit_strategy('on_window_close', idle=...)`"),
                (
                    "stream threads",
                    "the default; `processing.mode=micro_batch` for micro-batches; to and fro: `penstock app convert`",
                ),
                ("queries over HTTP, of a stopped application too", "`penstock query`, `penstock query serve`"),
            ],
            "extra",
            "by",
        ),
    ]
    return "\n\n".join(parts) + "\n"


def java_classes() -> list[tuple[object, ...]]:
    """Read the classes of Kafka Streams, those of one answer in one row: names, state, answer."""
    lines = (line.split(" | ") for line in JAVA_CLASSES.read_text().splitlines() if not line.startswith("#"))
    return [
        (", ".join(f"`{name.replace('$', '.')}`" for name in names.split()), state, answer)
        for names, state, answer in lines
    ]


def _ours(name: str, cases: int) -> str:
    if not name:
        return "built" if cases else "not built yet"
    code = ", ".join(f"`{part}`" for part in name.split(", "))
    return code if cases else f"{code}; no case was recorded"


def main() -> int:
    """Write the pages, or print those that are not current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is not current")
    parser.add_argument("--results", type=Path, metavar="FILE", help="what tests/conformance/run.py --json wrote")
    args = parser.parse_args()
    results = json.loads(args.results.read_text()) if args.results else run_cases()
    pages = {
        DOCS / "reference" / "configuration.md": configuration(),
        DOCS / "reference" / "cli.md": command(),
        DOCS / "reference" / "errors.md": errors(),
        DOCS / "sql" / "reference" / "functions.md": sql_reference.functions_page(),
        DOCS / "sql" / "reference" / "statements.md": sql_reference.statements_page(),
        DOCS / "pictures" / "word-count.svg": picture(),
        DOCS / "parity.md": parity(results),
        **connector_pages(DOCS),
    }
    stale = [page for page, text in pages.items() if not page.exists() or page.read_text() != text]
    for page in stale:
        if not args.check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(pages[page])
        print(f"{'not current' if args.check else 'written'}: {page.relative_to(ROOT)}")
    return 1 if args.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
